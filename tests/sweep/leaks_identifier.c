/* Wrong: if the address cannot be bound, the identifier stays. */
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>

int main(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	if (!channel)
		return 1;
	struct rdma_cm_id *id;
	if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP)) {
		rdma_destroy_event_channel(channel);
		return 1;
	}
	struct sockaddr_in any = {.sin_family = AF_INET};
	if (rdma_bind_addr(id, (struct sockaddr *)&any)) {
		perror("rdma_bind_addr");
		return 1;
	}
	int failed = rdma_destroy_id(id);
	rdma_destroy_event_channel(channel);
	return failed != 0;
}
