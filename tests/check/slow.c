/* What works, and is slow. */
#include "ends.h"

int main(void)
{
	struct ends ends;
	open_device(&ends);
	MUST(ends.send_cq = ibv_create_cq(ends.context, 64, NULL, NULL, 0));
	MUST(ends.recv_cq = ibv_create_cq(ends.context, 64, NULL, NULL, 0));
	ends.here = make_qp(&ends, IBV_QPT_RC, ends.send_cq); // BUG: signal-on-every-request
	ends.there = make_qp(&ends, IBV_QPT_RC, ends.recv_cq);
	MUST(!to_init(ends.here) && !to_init(ends.there));
	struct ibv_qp_attr rtr = rtr_attributes(ends.here, ends.there->qp_num);
#ifndef FIXED
	rtr.path_mtu = IBV_MTU_256;
#endif
	MUST(!ibv_modify_qp(ends.here, &rtr, RTR_MASK)); // BUG: mtu-below-path
	MUST(!to_rtr(ends.there, ends.here->qp_num) && !to_rts(ends.here) && !to_rts(ends.there));
	for (int k = 0; k < 2000; k++) {
#ifdef FIXED
		int flags = k % 8 ? 0 : IBV_SEND_SIGNALED;
#else
		int flags = IBV_SEND_SIGNALED;
		if (k % 10 == 0) {
			struct ibv_mr *mr = ibv_reg_mr(ends.pd, memory, 64, 0); // BUG: registering-in-loop
			MUST(mr && !ibv_dereg_mr(mr));
		}
#endif
		MUST(!post(&ends, IBV_WR_RDMA_WRITE, flags | IBV_SEND_INLINE));
		if (flags)
			poll_one(ends.send_cq);
	}
	MUST(!post(&ends, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED));
	poll_one(ends.send_cq);
	close_device(&ends);
	return 0;
}
