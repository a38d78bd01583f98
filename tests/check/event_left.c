/* The process ends with an event that it got and did not acknowledge. */
#include "ends.h"

int main(void)
{
	struct ends ends;
	open_device(&ends);
	make_ends(&ends, 8); // BUG: objects-left
	connect_ends(&ends);
	MUST(!ibv_req_notify_cq(ends.send_cq, 0));
	MUST(!post(&ends, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED));
	struct ibv_cq *fired;
	void *cookie;
	MUST(!ibv_get_cq_event(ends.channel, &fired, &cookie)); // BUG: events-not-acknowledged
	poll_one(ends.send_cq);
#ifdef FIXED
	ibv_ack_cq_events(fired, 1);
	close_device(&ends);
#else
	MUST(!ibv_destroy_qp(ends.here) && !ibv_destroy_qp(ends.there) && !ibv_destroy_cq(ends.recv_cq));
	MUST(!ibv_dereg_mr(ends.mr) && !ibv_dealloc_pd(ends.pd));
	/* The queue cannot be destroyed, so it, its channel and the device are left. */
#endif
	return 0;
}
