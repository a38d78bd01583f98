/* A request that is refused, of which the program does not look at the answer. */
#include "ends.h"

int main(void)
{
	struct ends ends;
	open_device(&ends);
	make_ends(&ends, 32);
	connect_ends(&ends);
	struct ibv_sge sge[2];
	struct ibv_send_wr wr = request(&ends, sge, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED), *bad;
	sge[1] = sge[0];
#ifndef FIXED
	wr.num_sge = 2;
#endif
	if (!ibv_post_send(ends.here, &wr, &bad)) // BUG: call-refused
		poll_one(ends.send_cq);
	/* A program that asks whether something can be done, and goes on with less, has not failed. */
	MUST(!ibv_reg_mr(ends.pd, memory, sizeof(memory), IBV_ACCESS_REMOTE_WRITE));
	struct ibv_mr *less = ibv_reg_mr(ends.pd, memory, sizeof(memory), IBV_ACCESS_REMOTE_READ);
	MUST(less && !ibv_dereg_mr(less));
#ifndef FIXED
	MUST(!ibv_create_cq(ends.context, 1 << 30, NULL, NULL, 0)); // BUG: call-refused
#endif
	for (int k = 0; k < 16; k++)
		MUST(!post(&ends, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED));
	MUST(post(&ends, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED) == ENOMEM);
	for (int k = 0; k < 16; k++)
		MUST(poll_one(ends.send_cq).status == IBV_WC_SUCCESS);
	close_device(&ends);
	return 0;
}
