#include "ends.h"

int main(void)
{
	static char others[64];
	struct ends ends;
	open_device(&ends);
	make_ends(&ends, 8);
	connect_ends(&ends);
	struct ibv_mr *mr = ibv_reg_mr(ends.pd, others, sizeof(others), IBV_ACCESS_LOCAL_WRITE);
	MUST(mr);
	struct ibv_sge sge = {.addr = (uintptr_t)others, .length = 8, .lkey = mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
	MUST(!ibv_post_recv(ends.there, &wr, &bad));
#ifdef FIXED
	struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
	MUST(!ibv_modify_qp(ends.there, &error, IBV_QP_STATE));
	poll_one(ends.recv_cq);
#endif
	MUST(!ibv_dereg_mr(mr)); // BUG: deregistered-while-in-use
	close_device(&ends);
	return 0;
}
