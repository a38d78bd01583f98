/* Says what verbs and sysfs tell of the devices: each line of its standard input asks something.
 *
 * event N   waits for an asynchronous event of the N-th device, and names it
 * port N    the port of the N-th device: by ibv_query_port, and by the files of sysfs
 * list      the devices: by ibv_get_device_list, and below /sys/class/infiniband
 */
#include <dirent.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 4 };
static struct ibv_context *contexts[MOST];
static const char *names[MOST];

static void file(int device, const char *name)
{
	char path[200], line[100] = "none";
	snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/1/%s", names[device], name);
	FILE *stream = fopen(path, "r");
	if (stream) {
		if (fgets(line, sizeof line, stream))
			line[strcspn(line, "\n")] = 0;
		fclose(stream);
	}
	printf(", %s", line);
}

static void port(int device)
{
	struct ibv_port_attr attributes;
	if (ibv_query_port(contexts[device], 1, &attributes))
		printf("refused");
	else
		printf("%d %d %d %d", attributes.state, attributes.phys_state, attributes.active_speed,
		       attributes.active_width);
	file(device, "state");
	file(device, "phys_state");
	file(device, "rate");
	puts("");
}

static void list(void)
{
	int count;
	struct ibv_device **devices = ibv_get_device_list(&count);
	printf("verbs");
	for (int i = 0; i < count; i++)
		printf(" %s", ibv_get_device_name(devices[i]));
	ibv_free_device_list(devices);
	struct dirent **entries;
	int found = scandir("/sys/class/infiniband", &entries, NULL, alphasort);
	printf(", sysfs");
	for (int i = 0; i < found; i++)
		if (entries[i]->d_name[0] != '.')
			printf(" %s", entries[i]->d_name);
	puts("");
}

int main(void)
{
	int count, number;
	char line[100];
	setvbuf(stdout, NULL, _IOLBF, 0);
	struct ibv_device **devices = ibv_get_device_list(&count);
	for (int i = 0; i < count && i < MOST; i++) {
		names[i] = strdup(ibv_get_device_name(devices[i]));
		if (!(contexts[i] = ibv_open_device(devices[i])))
			return 1;
	}
	ibv_free_device_list(devices);
	puts("ready");
	while (fgets(line, sizeof line, stdin)) {
		if (sscanf(line, "event %d", &number) == 1 && number < MOST && contexts[number]) {
			struct ibv_async_event event;
			if (ibv_get_async_event(contexts[number], &event))
				return 2;
			printf("%s\n", ibv_event_type_str(event.event_type));
			ibv_ack_async_event(&event);
		} else if (sscanf(line, "port %d", &number) == 1 && number < MOST && contexts[number]) {
			port(number);
		} else if (!strncmp(line, "list", 4)) {
			list();
		} else {
			return 3;
		}
	}
	for (int i = 0; i < MOST; i++)
		if (contexts[i])
			ibv_close_device(contexts[i]);
	return 0;
}
