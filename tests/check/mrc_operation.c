/* A program sends by MRC, which has no SEND. */
#include "mrc_ends.h"

int main(void)
{
	struct ends ends;
	open_mrc(&ends);
	struct mrc_end here = make_mrc(&ends), there = make_mrc(&ends);
	MUST(!mrc_to_init(here, NULL, 0) && !mrc_to_init(there, NULL, 0));
	MUST(!mrc_to_rtr(&ends, here, there, NULL, 0) && !mrc_to_rtr(&ends, there, here, NULL, 0));
	MUST(!mrc_to_rts(here, NULL, 0) && !mrc_to_rts(there, NULL, 0));
#ifndef FIXED
	MUST(mrc_write(&ends, here, IBV_WR_SEND) == EINVAL); // BUG: mrc-operation-unknown
#endif
	MUST(!mrc_write(&ends, here, IBV_WR_RDMA_WRITE) && mrc_poll_one().status == IBV_WC_SUCCESS);
	close_mrc(&ends, here, there);
	return 0;
}
