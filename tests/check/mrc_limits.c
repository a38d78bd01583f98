/* The sender may have four WRITEs with immediate in flight, and the receiver has granted one. The plan of the test
 * loses the first packet, so that the others wait for it. */
#include "mrc_ends.h"

#ifdef FIXED
enum { GRANTED = 4 };
#else
enum { GRANTED = 1 };
#endif

int main(void)
{
	struct ends ends;
	open_mrc(&ends);
	struct mrc_end here = make_mrc(&ends), there = make_mrc(&ends);
	MUST(!mrc_to_init(here, NULL, 0) && !mrc_to_init(there, NULL, 0));
	struct mrc_qp_attr own = {.wimm = {.max_wimm = 4, .max_wimm_dest = GRANTED}};
	MUST(!mrc_to_rtr(&ends, here, there, NULL, 0));
	MUST(!mrc_to_rtr(&ends, there, here, &own, MRC_QP_MAX_WIMM_DEST)); // BUG: mrc-limits-differ
	MUST(!mrc_to_rts(here, &own, MRC_QP_MAX_WIMM) && !mrc_to_rts(there, NULL, 0));
	for (int k = 0; k < 4; k++)
		mrc_receive(there);
	for (int k = 0; k < 4; k++)
		MUST(!mrc_write(&ends, here, IBV_WR_RDMA_WRITE_WITH_IMM));
	for (int k = 0; k < 8; k++)
		MUST((mrc_poll_one().status == IBV_WC_SUCCESS) == (GRANTED == 4));
#ifndef FIXED
	mrc_read_events();
#endif
	close_mrc(&ends, here, there);
	return 0;
}
