/* Armed once, and not again after the first event. */
#include "ends.h"

int main(void)
{
	struct ends ends;
	open_device(&ends);
	make_ends(&ends, 8);
	connect_ends(&ends);
	MUST(!ibv_req_notify_cq(ends.send_cq, 0));
	for (int k = 0; k < 2; k++) {
		MUST(!post(&ends, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED));
		struct ibv_cq *fired;
		void *cookie;
		if (k)
			alarm(5);
		MUST(!ibv_get_cq_event(ends.channel, &fired, &cookie)); // BUG: lost-wakeup
		ibv_ack_cq_events(fired, 1);
#ifdef FIXED
		MUST(!ibv_req_notify_cq(ends.send_cq, 0));
#endif
		poll_one(ends.send_cq);
	}
	close_device(&ends);
	return 0;
}
