/* A program asks for a connection where no program listens; it listens
 * itself at another port. Correct: it asks its own listener. */
#include "cm.h"

int main(int argc, char **argv)
{
	MUST(argc > 1);
	struct rdma_event_channel *own = rdma_create_event_channel(), *others = rdma_create_event_channel();
	struct sockaddr_in here = at_port(argv[1], 7001), there = at_port("127.77.77.77", 7002);
	struct rdma_cm_id *listens = listener(own, here);
	alarm(120);
#ifdef FIXED
	there = here;
#endif
	struct rdma_cm_id *id = asker(others, there);
#ifdef FIXED
	struct rdma_cm_event *asked = next(own);
	MUST(!rdma_reject(asked->id, NULL, 0));
	struct rdma_cm_id *came = asked->id;
	MUST(!rdma_ack_cm_event(asked) && !rdma_destroy_id(came));
#endif
	struct rdma_cm_event *event = next(others); // HERE
	MUST(event->event == RDMA_CM_EVENT_REJECTED || event->event == RDMA_CM_EVENT_UNREACHABLE);
	MUST(!rdma_ack_cm_event(event));
	rdma_destroy_qp(id);
	MUST(!rdma_destroy_id(id) && !rdma_destroy_id(listens));
	rdma_destroy_event_channel(own);
	rdma_destroy_event_channel(others);
	return 0;
}
