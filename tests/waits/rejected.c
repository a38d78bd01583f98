/* The peer rejects the connection, and the program goes on waiting for its beginning. */
#include "cm.h"

int main(int argc, char **argv)
{
	MUST(argc > 1);
	struct rdma_event_channel *own = rdma_create_event_channel(), *others = rdma_create_event_channel();
	struct sockaddr_in here = at_port(argv[1], 7004);
	struct rdma_cm_id *listens = listener(own, here);
	alarm(120);
	struct rdma_cm_id *id = asker(others, here);
	struct rdma_cm_event *asked = next(own);
	struct rdma_cm_id *came = asked->id;
	MUST(!rdma_reject(came, NULL, 0) && !rdma_ack_cm_event(asked) && !rdma_destroy_id(came));
	for (;;) {
		struct rdma_cm_event *event = next(others); // HERE
		enum rdma_cm_event_type type = event->event;
		MUST(!rdma_ack_cm_event(event));
		if (type == RDMA_CM_EVENT_ESTABLISHED)
			break;
#ifdef FIXED
		if (type == RDMA_CM_EVENT_REJECTED)
			break;
#endif
	}
	rdma_destroy_qp(id);
	MUST(!rdma_destroy_id(id) && !rdma_destroy_id(listens));
	rdma_destroy_event_channel(own);
	rdma_destroy_event_channel(others);
	return 0;
}
