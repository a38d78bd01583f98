/* Runs with a fault plan whose first four answers say that the peer has no receive for half a second more. */
#include "ends.h"

int main(void)
{
	struct ends ends;
	open_device(&ends);
	make_ends(&ends, 8);
	MUST(!to_init(ends.here) && !to_init(ends.there));
	MUST(!to_rtr(ends.here, ends.there->qp_num) && !to_rtr(ends.there, ends.here->qp_num));
	struct ibv_qp_attr rts = rts_attributes();
#ifdef FIXED
	rts.rnr_retry = 6;
#endif
	MUST(!ibv_modify_qp(ends.here, &rts, RTS_MASK)); // BUG: rnr-retry-for-ever
	MUST(!to_rts(ends.there));
	MUST(!post_receive(&ends, ends.there));
	MUST(!post(&ends, IBV_WR_SEND, IBV_SEND_SIGNALED));
	MUST(poll_one(ends.send_cq).status == IBV_WC_SUCCESS);
	poll_one(ends.recv_cq);
	close_device(&ends);
	return 0;
}
