/* Two queue pairs write to one place of the peer, and nothing says which of the WRITEs is the last. */
#include "ends.h"

int main(void)
{
	struct ends ends, more;
	open_device(&ends);
	make_ends(&ends, 8);
	more = ends;
	more.here = make_qp(&more, IBV_QPT_RC, ends.send_cq);
	more.there = make_qp(&more, IBV_QPT_RC, ends.recv_cq);
	connect_ends(&ends);
	connect_ends(&more);
	MUST(!post(&ends, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED));
#ifdef FIXED
	poll_one(ends.send_cq);
	MUST(!post(&more, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED));
	poll_one(ends.send_cq);
#else
	MUST(!post(&more, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED)); // BUG: remote-race
	poll_one(ends.send_cq);
	poll_one(ends.send_cq);
#endif
	MUST(!ibv_destroy_qp(more.here) && !ibv_destroy_qp(more.there));
	close_device(&ends);
	return 0;
}
