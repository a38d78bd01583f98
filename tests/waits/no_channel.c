/* A connection has its own event channel, and its identifier was not moved there. */
#include "cm.h"

int main(int argc, char **argv)
{
	MUST(argc > 1);
	struct rdma_event_channel *own = rdma_create_event_channel(), *others = rdma_create_event_channel();
	struct sockaddr_in here = at_port(argv[1], 7004);
	struct rdma_cm_id *listens = listener(others, here), *id = asker(others, here);
	struct rdma_cm_event *asked = next(others);
	struct rdma_cm_id *came = asked->id;
	MUST(!rdma_reject(came, NULL, 0) && !rdma_ack_cm_event(asked) && !rdma_destroy_id(came));
	alarm(120);
#ifdef FIXED
	MUST(!rdma_migrate_id(id, own));
#endif
	struct rdma_cm_event *event = next(own); // HERE
	MUST(!rdma_ack_cm_event(event));
	rdma_destroy_qp(id);
	MUST(!rdma_destroy_id(id) && !rdma_destroy_id(listens));
	rdma_destroy_event_channel(own);
	rdma_destroy_event_channel(others);
	return 0;
}
