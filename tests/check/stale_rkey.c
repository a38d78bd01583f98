#include "ends.h"

int main(void)
{
	static char others[64];
	struct ends ends;
	open_device(&ends);
	make_ends(&ends, 8); // BUG: async-events-never-read
	connect_ends(&ends);
	struct ibv_mr *mr =
		ibv_reg_mr(ends.pd, others, sizeof(others), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	MUST(mr);
	struct ibv_sge sge;
	struct ibv_send_wr wr = request(&ends, &sge, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED), *bad;
	wr.wr.rdma.remote_addr = (uintptr_t)others;
	wr.wr.rdma.rkey = mr->rkey;
	MUST(!ibv_post_send(ends.here, &wr, &bad));
	MUST(poll_one(ends.send_cq).status == IBV_WC_SUCCESS);
#ifdef FIXED
	MUST(!ibv_post_send(ends.here, &wr, &bad));
	MUST(poll_one(ends.send_cq).status == IBV_WC_SUCCESS);
#endif
	MUST(!ibv_dereg_mr(mr)); // BUG: stale-rkey
#ifndef FIXED
	MUST(!ibv_post_send(ends.here, &wr, &bad));
	MUST(poll_one(ends.send_cq).status == IBV_WC_REM_ACCESS_ERR);
#endif
	close_device(&ends);
	return 0;
}
