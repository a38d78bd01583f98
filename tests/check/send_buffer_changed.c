#include "ends.h"

int main(void)
{
	struct ends ends;
	open_device(&ends);
	make_ends(&ends, 8);
	connect_ends(&ends);
	/* The peer has no receive yet, so the request cannot be complete. */
	MUST(!post(&ends, IBV_WR_SEND, IBV_SEND_SIGNALED)); // BUG: send-buffer-changed
#ifndef FIXED
	memory[3] = 1;
#endif
	MUST(!post_receive(&ends, ends.there));
	poll_one(ends.send_cq);
	poll_one(ends.recv_cq);
	memory[3] = 2;
	/* What is inline was copied, and what comes back is meant to change the buffer. */
	MUST(!post(&ends, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED | IBV_SEND_INLINE));
	memory[3] = 3;
	poll_one(ends.send_cq);
	memory[64] = 4;
	MUST(!post(&ends, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED));
	poll_one(ends.send_cq);
	MUST(memory[0] == 4);
	close_device(&ends);
	return 0;
}
