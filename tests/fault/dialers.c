/* A keeper takes the first connection of TCP that it accepts for that of dialer 0: that is the mistake.
 *
 *   dialers told     dialer 1 is told to connect first, and dialer 0 when it has: the mistake shows, and the exit code is 1
 *   dialers free     both are told at once, dialer 0 a little earlier */
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define DIALERS 2

static void must(int so, const char *what)
{
	if (so)
		return;
	perror(what);
	exit(9);
}

static char hear(int from)
{
	char byte;
	must(recv(from, &byte, 1, MSG_WAITALL) == 1, "recv");
	return byte;
}

static void tell(int to, char byte)
{
	must(write(to, &byte, 1) == 1, "write");
}

static int dialer(int keeper, int number, struct sockaddr_in *at)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	must(devices && devices[0], "ibv_get_device_list");
	struct ibv_context *context = ibv_open_device(devices[0]);
	must(context && ibv_alloc_pd(context), "ibv_open_device");
	tell(keeper, 'r');
	hear(keeper);
	/* What cannot be reached is tried in vain, which is no connection. */
	struct sockaddr_in nothing = *at;
	nothing.sin_port = htons(1);
	int in_vain = socket(AF_INET, SOCK_STREAM, 0), stream = socket(AF_INET, SOCK_STREAM, 0);
	must(connect(in_vain, (struct sockaddr *)&nothing, sizeof nothing) != 0, "port 1");
	must(!connect(stream, (struct sockaddr *)at, sizeof *at), "connect");
	tell(stream, (char)number);
	tell(keeper, 'c');
	hear(keeper);
	return 0;
}

int main(int count, char **words)
{
	int told = count > 1 && !strcmp(words[1], "told"), to[DIALERS], failed = 0, status;
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof at;
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	must(!bind(listener, (struct sockaddr *)&at, sizeof at) && !listen(listener, DIALERS), "listen");
	must(!getsockname(listener, (struct sockaddr *)&at, &length), "getsockname");
	for (int number = 0; number < DIALERS; number++) {
		int pair[2];
		must(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair), "socketpair");
		pid_t child = fork();
		must(child >= 0, "fork");
		if (!child) {
			setenv("PUMICE_TAG", number ? "dialer1" : "dialer0", 1);
			exit(dialer(pair[1], number, &at));
		}
		close(pair[1]);
		to[number] = pair[0];
	}
	for (int number = 0; number < DIALERS; number++)
		hear(to[number]);
	tell(to[told], 'g');
	if (told)
		hear(to[1]);
	tell(to[!told], 'g');
	int first = accept(listener, NULL, NULL), who = hear(first);
	must(accept(listener, NULL, NULL) >= 0, "accept");
	for (int number = 0; number < DIALERS; number++) {
		if (!told || number == 0)
			hear(to[number]);
		tell(to[number], 'e');
	}
	while (wait(&status) > 0)
		failed |= status;
	must(!failed, "a dialer");
	printf("the first connection is that of dialer %d\n", who);
	return who != 0;
}
