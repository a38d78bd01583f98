/* An event of the completion channel was not acknowledged before its queue is destroyed. */
#include "ends.h"

int main(void)
{
	struct ends ends;
	struct ibv_cq *queue;
	void *context;
	open_device(&ends);
	make_ends(&ends, 8);
	connect_ends(&ends);
	MUST(!ibv_req_notify_cq(ends.send_cq, 0) && !post(&ends, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED));
	MUST(!ibv_get_cq_event(ends.channel, &queue, &context));
#ifdef FIXED
	ibv_ack_cq_events(queue, 1);
#endif
	MUST(poll_one(ends.send_cq).status == IBV_WC_SUCCESS);
	alarm(120);
	close_device(&ends);
	return 0;
}
