/* A queue pair of MRC is to use a profile of entropy values that no controller has made. */
#include "mrc_ends.h"

int main(void)
{
	struct ends ends;
	open_mrc(&ends);
	struct mrc_end here = make_mrc(&ends), there = make_mrc(&ends);
#ifndef FIXED
	struct mrc_qp_attr own = {.profile = {.ev_profile_id = 7}};
	MUST(mrc_to_init(here, &own, MRC_QP_EV_PROFILE_ID) == ENOENT); // BUG: mrc-profile-unknown
#endif
	MUST(!mrc_to_init(here, NULL, 0) && !mrc_to_init(there, NULL, 0));
	close_mrc(&ends, here, there);
	return 0;
}
