#include "ends.h"

int main(void)
{
	struct ends ends;
	open_device(&ends);
	make_ends(&ends, 8);
	MUST(!to_init(ends.here) && !to_init(ends.there));
	MUST(!to_rtr(ends.here, ends.there->qp_num) && !to_rtr(ends.there, ends.here->qp_num));
	struct ibv_qp_attr rts = rts_attributes();
#ifndef FIXED
	rts.rnr_retry = 0;
#endif
	MUST(!ibv_modify_qp(ends.here, &rts, RTS_MASK)); // BUG: rnr-retries-zero
	MUST(!to_rts(ends.there));
#ifdef FIXED
	/* A receive that is posted behind the message is late on a busy machine. */
	MUST(!post_receive(&ends, ends.there));
#endif
	MUST(!post(&ends, IBV_WR_SEND, IBV_SEND_SIGNALED));
#ifdef FIXED
	MUST(poll_one(ends.send_cq).status == IBV_WC_SUCCESS);
	poll_one(ends.recv_cq);
#else
	MUST(poll_one(ends.send_cq).status == IBV_WC_RNR_RETRY_EXC_ERR);
#endif
	close_device(&ends);
	return 0;
}
