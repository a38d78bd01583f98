/* A WRITE of MRC beyond the region of its key: both ends fail, and the program is told once, where it posted. */
#include "mrc_ends.h"

int main(void)
{
	struct ends ends;
	open_mrc(&ends);
	struct mrc_end here = make_mrc(&ends), there = make_mrc(&ends);
	MUST(!mrc_to_init(here, NULL, 0) && !mrc_to_init(there, NULL, 0));
	MUST(!mrc_to_rtr(&ends, here, there, NULL, 0) && !mrc_to_rtr(&ends, there, here, NULL, 0));
	MUST(!mrc_to_rts(here, NULL, 0) && !mrc_to_rts(there, NULL, 0));
	struct ibv_sge sge;
	struct ibv_send_wr wr = request(&ends, &sge, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED), *bad;
#ifndef FIXED
	wr.wr.rdma.remote_addr += 1 << 20;
#endif
	MUST(!do_mrc_post_send(here.qp, &wr, &bad)); // BUG: queue-pair-failed
#ifdef FIXED
	MUST(mrc_poll_one().status == IBV_WC_SUCCESS);
#else
	MUST(mrc_poll_one().status == IBV_WC_REM_ACCESS_ERR);
	struct mrc_async_event event;
	do {
		MUST(!do_mrc_get_async_event(mrc, &event));
		do_mrc_ack_async_event(&event);
	} while (event.event_type != IBV_EVENT_QP_ACCESS_ERR);
#endif
	close_mrc(&ends, here, there);
	return 0;
}
