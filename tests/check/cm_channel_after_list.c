#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

/* Correct: librdmacm opens the device by itself, after the program has freed the list. */
int main(void)
{
	ibv_free_device_list(ibv_get_device_list(NULL));
	struct rdma_event_channel *channel = rdma_create_event_channel();
	if (!channel)
		return 1;
	rdma_destroy_event_channel(channel);
	return 0;
}
