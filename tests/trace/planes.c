/* WRITEs by MRC between two queue pairs of one process, one after the other: what the planes of a device carry. */
#include "../check/mrc_ends.h"

enum { COUNT = 64, BYTES = 32 << 10 };

static char big[2 * BYTES];

int main(void)
{
	struct ends ends;
	open_mrc(&ends);
	struct ibv_mr *region = ibv_reg_mr(ends.pd, big, sizeof(big), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	MUST(region);
	struct mrc_end here = make_mrc(&ends), there = make_mrc(&ends);
	MUST(!mrc_to_init(here, NULL, 0) && !mrc_to_init(there, NULL, 0));
	MUST(!mrc_to_rtr(&ends, here, there, NULL, 0) && !mrc_to_rtr(&ends, there, here, NULL, 0));
	MUST(!mrc_to_rts(here, NULL, 0) && !mrc_to_rts(there, NULL, 0));
	struct ibv_sge sge = {.addr = (uintptr_t)big, .length = BYTES, .lkey = region->lkey};
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {(uintptr_t)big + BYTES, region->rkey},
	}, *bad;
	for (int k = 0; k < COUNT; k++)
		MUST(!do_mrc_post_send(here.qp, &wr, &bad) && mrc_poll_one().status == IBV_WC_SUCCESS);
	MUST(!ibv_dereg_mr(region));
	close_mrc(&ends, here, there);
	return 0;
}
