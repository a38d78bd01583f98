/* A connection has its own event channel, and its identifier was not moved there. */
#include "cm.h"

int main(int argc, char **argv)
{
	MUST(argc > 1);
	struct rdma_event_channel *own = rdma_create_event_channel(), *others = rdma_create_event_channel();
	struct sockaddr_in here = at_port(argv[1], 7004);
	struct rdma_cm_id *listens = listener(others, here), *id;
	MUST(!rdma_create_id(others, &id, NULL, RDMA_PS_TCP));
#ifdef FIXED
	MUST(!rdma_migrate_id(id, own));
#endif
	MUST(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&here, 2000));
	alarm(120);
	struct rdma_cm_event *event = next(own); // HERE
	MUST(!rdma_ack_cm_event(event) && !rdma_destroy_id(id) && !rdma_destroy_id(listens));
	rdma_destroy_event_channel(own);
	rdma_destroy_event_channel(others);
	return 0;
}
