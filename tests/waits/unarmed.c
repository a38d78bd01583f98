/* A thread sleeps on a channel whose queue it has not armed. */
#include "ends.h"

int main(int argc, char **argv)
{
	struct ends ends;
	struct ibv_cq *cq;
	void *context;
	open_device(&ends);
	make_ends(&ends, 8);
	connect_ends(&ends);
#ifdef FIXED
	MUST(!ibv_req_notify_cq(ends.send_cq, 0));
#endif
	MUST(!post(&ends, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED));
	alarm(argc > 2 ? atoi(argv[2]) : 120);
	MUST(!ibv_get_cq_event(ends.channel, &cq, &context)); // HERE
	ibv_ack_cq_events(cq, 1);
	MUST(poll_one(ends.send_cq).status == IBV_WC_SUCCESS);
	close_device(&ends);
	return 0;
}
