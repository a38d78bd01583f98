/* A WRITE with immediate comes before its receive: RC would wait for it, MRC ends. */
#include "mrc_ends.h"

int main(void)
{
	struct ends ends;
	open_mrc(&ends);
	struct mrc_end here = make_mrc(&ends), there = make_mrc(&ends);
	MUST(!mrc_to_init(here, NULL, 0) && !mrc_to_init(there, NULL, 0));
#ifdef FIXED
	mrc_receive(there);
#endif
	MUST(!mrc_to_rtr(&ends, here, there, NULL, 0));
	MUST(!mrc_to_rtr(&ends, there, here, NULL, 0)); // BUG: mrc-without-receive
	MUST(!mrc_to_rts(here, NULL, 0) && !mrc_to_rts(there, NULL, 0));
	MUST(!mrc_write(&ends, here, IBV_WR_RDMA_WRITE_WITH_IMM));
#ifdef FIXED
	MUST(mrc_poll_one().status == IBV_WC_SUCCESS && mrc_poll_one().status == IBV_WC_SUCCESS);
#else
	MUST(mrc_poll_one().status == IBV_WC_REM_OP_ERR);
	mrc_read_events();
#endif
	close_mrc(&ends, here, there);
	return 0;
}
