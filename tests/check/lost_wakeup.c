/* The classic one: armed after the last poll, and asleep without another poll. */
#include "ends.h"

int main(void)
{
	struct ends ends;
	open_device(&ends);
	make_ends(&ends, 8);
	connect_ends(&ends);
	MUST(!post_receive(&ends, ends.there));
	MUST(!post(&ends, IBV_WR_SEND, IBV_SEND_SIGNALED));
	poll_one(ends.recv_cq);
	drive(ends.recv_cq);
	MUST(!ibv_req_notify_cq(ends.send_cq, 0));
#ifdef FIXED
	poll_one(ends.send_cq);
#else
	alarm(5);
	struct ibv_cq *fired;
	void *cookie;
	ibv_get_cq_event(ends.channel, &fired, &cookie); // BUG: lost-wakeup
#endif
	close_device(&ends);
	return 0;
}
