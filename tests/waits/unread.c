/* A listener whose program does not read its events. */
#include "cm.h"

int main(int argc, char **argv)
{
	MUST(argc > 1);
	struct rdma_event_channel *own = rdma_create_event_channel(), *others = rdma_create_event_channel();
	struct sockaddr_in here = at_port(argv[1], 7003);
	struct rdma_cm_id *listens = listener(own, here);
	alarm(120);
	struct rdma_cm_id *id = asker(others, here);
#ifdef FIXED
	struct rdma_cm_event *asked = next(own);
	struct rdma_cm_id *came = asked->id;
	MUST(!rdma_reject(came, NULL, 0) && !rdma_ack_cm_event(asked) && !rdma_destroy_id(came));
#endif
	struct rdma_cm_event *event = next(others); // HERE
	MUST(!rdma_ack_cm_event(event));
	rdma_destroy_qp(id);
	MUST(!rdma_destroy_id(id) && !rdma_destroy_id(listens));
	rdma_destroy_event_channel(own);
	rdma_destroy_event_channel(others);
	return 0;
}
