/* Both ends have a P_Key of the same partition, but neither is a full member. */
#include "ends.h"

static int to_init_with(struct ibv_qp *qp, int pkey_index)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .pkey_index = pkey_index, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

int main(void)
{
	struct ends ends;
	open_device(&ends);
	make_ends(&ends, 8);
#ifdef FIXED
	MUST(!to_init_with(ends.here, 0) && !to_init_with(ends.there, 0));
#else
	MUST(!to_init_with(ends.here, 1));
	MUST(!to_init_with(ends.there, 0)); // BUG: pkey-mismatch
#endif
	MUST(!to_rtr(ends.here, ends.there->qp_num) && !to_rtr(ends.there, ends.here->qp_num));
	struct ibv_qp_attr rts = rts_attributes();
	rts.timeout = 1;
	rts.retry_cnt = 1;
	MUST(!ibv_modify_qp(ends.here, &rts, RTS_MASK) && !to_rts(ends.there));
	MUST(!post(&ends, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED));
	poll_one(ends.send_cq);
	close_device(&ends);
	return 0;
}
