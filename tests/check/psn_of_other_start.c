/* The first PSN that the receiver expects is not that of the sender, and all packets are dropped. */
#include "ends.h"

int main(void)
{
	struct ends ends;
	open_device(&ends);
	make_ends(&ends, 32);
	MUST(!to_init(ends.here) && !to_init(ends.there));
	struct ibv_qp_attr attr = rtr_attributes(ends.there, ends.here->qp_num);
#ifndef FIXED
	attr.rq_psn = 1000;
#endif
	MUST(!ibv_modify_qp(ends.there, &attr, RTR_MASK));
	MUST(!to_rtr(ends.here, ends.there->qp_num) && !to_rts(ends.there));
	struct ibv_qp_attr sends = rts_attributes();
	sends.retry_cnt = 2;
	MUST(!ibv_modify_qp(ends.here, &sends, RTS_MASK));
	MUST(!post(&ends, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED)); // BUG: queue-pair-failed
	poll_one(ends.send_cq);
	close_device(&ends);
	return 0;
}
