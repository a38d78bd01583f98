// Chapter 1: register memory, and print its keys.
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>

static void need(int good, const char *what)
{
	if (good)
		return;
	perror(what);
	exit(1);
}

int main(int count, char **words)
{
	size_t bytes = count > 1 ? strtoul(words[1], NULL, 0) : 4096;

	struct ibv_device **devices = ibv_get_device_list(NULL);
	need(devices && devices[0], "no RDMA device");
	struct ibv_context *context = ibv_open_device(devices[0]);
	need(context != NULL, "ibv_open_device");
	printf("device %s\n", ibv_get_device_name(devices[0]));

	// A protection domain is a box. Objects in one box may use each other.
	struct ibv_pd *pd = ibv_alloc_pd(context);
	need(pd != NULL, "ibv_alloc_pd");

	char *memory = calloc(1, bytes);
	need(memory != NULL, "calloc");
	// The device may write here for this program. Peers may read here, and may not write.
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, bytes, access);
	need(mr != NULL, "ibv_reg_mr");
	printf("%zu bytes: lkey 0x%08x, rkey 0x%08x\n", mr->length, mr->lkey, mr->rkey);

	// Give all back, the newest first.
	ibv_dereg_mr(mr);
	free(memory);
	ibv_dealloc_pd(pd);
	ibv_close_device(context);
	ibv_free_device_list(devices);
	return 0;
}
