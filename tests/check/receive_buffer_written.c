#include "ends.h"

int main(void)
{
	struct ends ends;
	open_device(&ends);
	make_ends(&ends, 8);
	connect_ends(&ends);
#ifdef FIXED
	memset(memory + 128, 1, 8);
#endif
	MUST(!post_receive(&ends, ends.there)); // BUG: receive-buffer-written
#ifndef FIXED
	memset(memory + 128, 1, 8);
#endif
	MUST(!post(&ends, IBV_WR_SEND, IBV_SEND_SIGNALED));
	poll_one(ends.send_cq);
	poll_one(ends.recv_cq);
	memset(memory + 128, 2, 8);
	close_device(&ends);
	return 0;
}
