/* Opens the XRC domain of a file, closes it if its second argument says so, and ends without closing the device. */
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <string.h>

int main(int count, char **words)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = list && list[0] ? ibv_open_device(list[0]) : NULL;
	int file = count == 3 ? open(words[1], O_RDWR | O_CREAT, 0600) : -1;
	struct ibv_xrcd_init_attr attributes = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = file, .oflags = O_CREAT};
	struct ibv_xrcd *domain = context ? ibv_open_xrcd(context, &attributes) : NULL;
	if (!domain) {
		fprintf(stderr, "no domain: %s\n", strerror(errno));
		return 2;
	}
	return strcmp(words[2], "close") ? 0 : ibv_close_xrcd(domain);
}
