/* After a message, one end is reset and connected again, with the same PSNs, and the other one is left. */
#include "ends.h"

static void exchange(struct ends *ends)
{
	MUST(!post_receive(ends, ends->there));
	MUST(!post(ends, IBV_WR_SEND, IBV_SEND_SIGNALED));
	MUST(poll_one(ends->send_cq).status == IBV_WC_SUCCESS);
}

static void reset(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
	MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE) && !to_init(qp));
}

int main(void)
{
	struct ends ends;
	open_device(&ends);
	make_ends(&ends, 8);
	connect_ends(&ends);
	exchange(&ends);
	poll_one(ends.recv_cq);
	reset(ends.here);
#ifdef FIXED
	reset(ends.there);
	MUST(!to_rtr(ends.there, ends.here->qp_num) && !to_rts(ends.there));
#endif
	MUST(!to_rtr(ends.here, ends.there->qp_num)); // BUG: reset-at-one-end
	MUST(!to_rts(ends.here));
	/* The other end acknowledges it, and takes it for a repetition. */
	exchange(&ends);
#ifdef FIXED
	poll_one(ends.recv_cq);
#else
	drive(ends.recv_cq);
#endif
	close_device(&ends);
	return 0;
}
