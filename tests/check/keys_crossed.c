/* The lkey is given to the peer, and the rkey to a buffer: one number on many adapters, but not on all. */
#include "ends.h"

int main(void)
{
	static char others[64];
	struct ends ends;
	open_device(&ends);
	make_ends(&ends, 8);
	connect_ends(&ends);
	int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	struct ibv_mr *mr = ibv_reg_mr(ends.pd, others, sizeof(others), rights); // BUG: keys-crossed
	MUST(mr);
	struct ibv_sge sge;
	struct ibv_send_wr wr = request(&ends, &sge, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED), *bad;
	wr.wr.rdma.remote_addr = (uintptr_t)others;
#ifdef FIXED
	wr.wr.rdma.rkey = mr->rkey;
#else
	wr.wr.rdma.rkey = mr->lkey;
	sge.lkey = ends.mr->rkey;
#endif
	MUST(!ibv_post_send(ends.here, &wr, &bad)); // BUG: keys-crossed
	MUST(poll_one(ends.send_cq).status == IBV_WC_SUCCESS);
	MUST(!ibv_dereg_mr(mr));
	close_device(&ends);
	return 0;
}
