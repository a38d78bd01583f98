#include "srq.h"

int main(void)
{
	struct ends ends;
	open_device(&ends);
	struct ibv_srq *srq = make_shared_ends(&ends);
	MUST(!post_shared(&ends, srq, 0));
#ifdef FIXED
	memset(memory + 136, 1, 8);
#endif
	MUST(!post_shared(&ends, srq, 1)); // BUG: receive-buffer-written
#ifndef FIXED
	memset(memory + 136, 1, 8);
#endif
	for (uint64_t k = 0; k < 2; k++) {
		MUST(!post(&ends, IBV_WR_SEND, IBV_SEND_SIGNALED));
		MUST(poll_one(ends.recv_cq).wr_id == k);
		poll_one(ends.send_cq);
		memset(memory + 128 + 8 * k, 2, 8);
	}
	close_shared(&ends, srq);
	return 0;
}
