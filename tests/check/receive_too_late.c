/* 0.64 ms: the receive of a busy machine may be late by many of them, which must not become a storm. */
#define MIN_RNR_TIMER 12
#include "ends.h"

int main(void)
{
	struct ends ends;
	open_device(&ends);
	make_ends(&ends, 8);
	connect_ends(&ends);
	for (int k = 0; k < 8; k++) {
#ifdef FIXED
		MUST(!post_receive(&ends, ends.there));
		MUST(!post(&ends, IBV_WR_SEND, IBV_SEND_SIGNALED));
#else
		MUST(!post(&ends, IBV_WR_SEND, IBV_SEND_SIGNALED));
		drive(ends.recv_cq);
		MUST(!post_receive(&ends, ends.there)); // BUG: receive-too-late
#endif
		poll_one(ends.recv_cq);
		poll_one(ends.send_cq);
	}
	close_device(&ends);
	return 0;
}
