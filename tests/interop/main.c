/*
 *   interop -d DEVICE [-g GID-INDEX] [-m PATH-MTU] [-n ROUNDS] -p PORT [-l | -s SCENARIO,...] [SERVER]
 *
 * Without SERVER it is the server, which runs what its client asks for. The client prints a line for each scenario: "ok" or
 * "no" or "skip", its name, and figures. Exits with 1 if there was a "no". -l lists the scenarios.
 */
#include "interop.h"

#include <stdlib.h>
#include <unistd.h>

/* Said in place of the 1 with which everything that tell() sends begins. */
static const uint8_t given_up = 2;

static const struct named *const groups[] = {data_scenarios, key_scenarios, datagram_scenarios, newer_scenarios,
					    error_scenarios, captured_scenarios, captured_failures};

static const struct named *find(const char *name)
{
	for (size_t g = 0; g < sizeof(groups) / sizeof(*groups); g++)
		for (const struct named *entry = groups[g]; entry->name; entry++)
			if (!strcmp(entry->name, name))
				return entry;
	return NULL;
}

void skip(struct side *s, const char *why)
{
	snprintf(s->figures, sizeof(s->figures), "%s", why);
	longjmp(s->given_up, 3);
}

/* How it went: 0 well, 1 not, 2 not for the peer, 3 skipped. */
static int run(struct side *s, scenario *what)
{
	s->figures[0] = 0;
	int how = setjmp(s->given_up);
	if (how == 0) {
		what(s);
		meet(s);
	}
	if (how == 1)
		say(s->control, &given_up, 1);
	disconnect(s);
	return how;
}

/* After a scenario that one side gave up the other may still be saying things: all up to a mark is thrown away. */
static bool in_step(int control)
{
	static const uint8_t mark[32] = "nothing before this line counts";
	uint8_t last[32] = {0};
	if (!say(control, mark, sizeof(mark)))
		return false;
	while (memcmp(last, mark, sizeof(mark))) {
		memmove(last, last + 1, sizeof(last) - 1);
		if (!hear(control, last + sizeof(last) - 1, 1))
			return false;
	}
	return true;
}

static int serve(struct side *s)
{
	char name[32];
	int worst = 0;
	while (hear(s->control, name, sizeof(name)) && name[0]) {
		name[sizeof(name) - 1] = 0;
		const struct named *entry = find(name);
		int how = entry ? run(s, entry->run) : 1;
		if (how == 1 || how == 2)
			worst = 1;
		fprintf(stderr, "%s: %d %s\n", name, how, s->figures);
		if (!in_step(s->control) || !say(s->control, s->figures, sizeof(s->figures)))
			return 1;
	}
	return worst;
}

static int ask(struct side *s, char *names)
{
	static const char *const words[] = {"ok", "no", "no", "skip"};
	int worst = 0;
	for (char *name = strtok(names, ","); name; name = strtok(NULL, ",")) {
		char request[32] = {0}, theirs[sizeof(s->figures)] = {0};
		const struct named *entry = find(name);
		if (!entry) {
			fprintf(stderr, "there is no scenario %s\n", name);
			return 2;
		}
		snprintf(request, sizeof(request), "%s", name);
		if (!say(s->control, request, sizeof(request)))
			return 1;
		int how = run(s, entry->run);
		if (!in_step(s->control) || !hear(s->control, theirs, sizeof(theirs)))
			return 1;
		theirs[sizeof(theirs) - 1] = 0;
		printf("%s %s %s%s%s\n", words[how], name, s->figures, s->figures[0] && theirs[0] ? "; " : "", theirs);
		fflush(stdout);
		if (how == 1 || how == 2)
			worst = 1;
	}
	char end[32] = {0};
	say(s->control, end, sizeof(end));
	return worst;
}

static void list(void)
{
	for (size_t g = 0; g < sizeof(groups) / sizeof(*groups); g++)
		for (const struct named *entry = groups[g]; entry->name; entry++)
			puts(entry->name);
}

int main(int argc, char **argv)
{
	static struct side side;
	struct side *s = &side;
	const char *device = "";
	char *names = NULL;
	int option, port = 18600, mtu = 1024;
	s->rounds = 100;
	while ((option = getopt(argc, argv, "d:g:m:n:p:s:l")) != -1) {
		switch (option) {
		case 'd': device = optarg; break;
		case 'g': s->gid_index = atoi(optarg); break;
		case 'm': mtu = atoi(optarg); break;
		case 'n': s->rounds = atoi(optarg); break;
		case 'p': port = atoi(optarg); break;
		case 's': names = optarg; break;
		case 'l': list(); return 0;
		default: return 2;
		}
	}
	s->mtu_bytes = mtu;
	s->mtu = mtu == 256 ? IBV_MTU_256 : mtu == 512 ? IBV_MTU_512 : mtu == 2048 ? IBV_MTU_2048 : mtu == 4096 ? IBV_MTU_4096 : IBV_MTU_1024;
	s->client = optind < argc;
	open_side(s, device);
	s->control = s->client ? reach(argv[optind], port) : listen_once(port);
	if (!s->client)
		return serve(s);
	if (!names) {
		fprintf(stderr, "which scenarios? -s NAME,..., and -l lists them\n");
		return 2;
	}
	return ask(s, names);
}
