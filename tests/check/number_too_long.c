/* The PSN is drawn and not masked. */
#include "ends.h"

int main(void)
{
	struct ends ends;
	open_device(&ends);
	make_ends(&ends, 32);
	MUST(!to_init(ends.here) && !to_init(ends.there));
	uint32_t psn = 0x51234567;
#ifdef FIXED
	psn &= 0xffffff;
#endif
	struct ibv_qp_attr attr = rtr_attributes(ends.there, ends.here->qp_num);
	attr.rq_psn = psn;
	MUST(!ibv_modify_qp(ends.there, &attr, RTR_MASK)); // BUG: number-too-long
	MUST(!to_rtr(ends.here, ends.there->qp_num) && !to_rts(ends.there));
	struct ibv_qp_attr sends = rts_attributes();
	sends.sq_psn = psn;
	MUST(!ibv_modify_qp(ends.here, &sends, RTS_MASK)); // BUG: number-too-long
	MUST(!post(&ends, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED));
	MUST(poll_one(ends.send_cq).status == IBV_WC_SUCCESS);
	close_device(&ends);
	return 0;
}
