#include "ends.h"

int main(void)
{
	struct ends ends;
	open_device(&ends);
	make_ends(&ends, 8);
	MUST(!to_init(ends.here) && !to_init(ends.there));
	MUST(!to_rtr(ends.here, ends.there->qp_num));
	/* The other side is ready before the last retry on a busy machine, too: 8 times half a second. */
	struct ibv_qp_attr attr = rts_attributes();
	attr.timeout = 17;
	MUST(!ibv_modify_qp(ends.here, &attr, RTS_MASK));
#ifndef FIXED
	MUST(!post(&ends, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED));
	drive(ends.recv_cq);
#endif
	MUST(!to_rtr(ends.there, ends.here->qp_num)); // BUG: connected-too-late
#ifdef FIXED
	MUST(!post(&ends, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED));
#endif
	poll_one(ends.send_cq);
	close_device(&ends);
	return 0;
}
