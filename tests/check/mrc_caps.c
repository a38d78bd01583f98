/* Only one side of a connection of MRC changes its window while it receives. */
#include "mrc_ends.h"

int main(void)
{
	struct ends ends;
	open_mrc(&ends);
	struct mrc_end here = make_mrc(&ends), there = make_mrc(&ends);
	MUST(!mrc_to_init(here, NULL, 0) && !mrc_to_init(there, NULL, 0));
	struct mrc_qp_attr own = {.cap = MRC_QP_CAP_DYNAMIC_MPR}, other = own;
#ifndef FIXED
	other.cap = 0;
#endif
	MUST(!mrc_to_rtr(&ends, here, there, &own, MRC_QP_CAP) && !mrc_to_rtr(&ends, there, here, &other, MRC_QP_CAP));
	MUST(!mrc_to_rts(here, NULL, 0)); // BUG: mrc-limits-differ
	MUST(!mrc_to_rts(there, NULL, 0)); // BUG: mrc-limits-differ
	MUST(!mrc_write(&ends, here, IBV_WR_RDMA_WRITE) && mrc_poll_one().status == IBV_WC_SUCCESS);
	MUST(!mrc_write(&ends, there, IBV_WR_RDMA_WRITE) && mrc_poll_one().status == IBV_WC_SUCCESS);
	close_mrc(&ends, here, there);
	return 0;
}
