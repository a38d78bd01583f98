/* The receiver asks the sender for the shortest wait, and posts its receive a second later. */
#include "ends.h"

#include <time.h>

UNUSED static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec * 1e-9;
}

int main(void)
{
	struct ends ends;
	open_device(&ends);
	make_ends(&ends, 8);
	MUST(!to_init(ends.here) && !to_init(ends.there));
	struct ibv_qp_attr rtr = rtr_attributes(ends.there, ends.here->qp_num);
	rtr.min_rnr_timer = 1;
	MUST(!ibv_modify_qp(ends.there, &rtr, RTR_MASK)); // BUG: rnr-storm
	MUST(!to_rtr(ends.here, ends.there->qp_num) && !to_rts(ends.here) && !to_rts(ends.there));
#ifdef FIXED
	MUST(!post_receive(&ends, ends.there));
	MUST(!post(&ends, IBV_WR_SEND, IBV_SEND_SIGNALED));
#else
	MUST(!post(&ends, IBV_WR_SEND, IBV_SEND_SIGNALED));
	for (double end = now() + 1; now() < end;)
		drive(ends.recv_cq);
	MUST(!post_receive(&ends, ends.there));
#endif
	poll_one(ends.recv_cq);
	poll_one(ends.send_cq);
	close_device(&ends);
	return 0;
}
