/* Both ends have their own numbers for that of the peer. */
#include "ends.h"

int main(void)
{
	struct ends ends;
	open_device(&ends);
	make_ends(&ends, 32);
	MUST(!to_init(ends.here) && !to_init(ends.there));
	struct ibv_qp *peer = ends.there;
#ifndef FIXED
	peer = ends.here;
#endif
	struct ibv_qp_attr attr = rtr_attributes(ends.here, peer->qp_num), sends = rts_attributes();
#ifndef FIXED
	attr.rq_psn = 700;
#endif
	MUST(!ibv_modify_qp(ends.here, &attr, RTR_MASK)); // BUG: connected-to-itself
	MUST(!to_rtr(ends.there, ends.here->qp_num) && !to_rts(ends.there));
	sends.retry_cnt = 2;
	MUST(!ibv_modify_qp(ends.here, &sends, RTS_MASK));
	MUST(!post(&ends, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED));
	poll_one(ends.send_cq);
	close_device(&ends);
	return 0;
}
