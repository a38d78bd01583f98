#include "ends.h"

int main(void)
{
	struct ends ends;
	open_device(&ends);
	make_ends(&ends, 8); // BUG: completions-never-polled
	connect_ends(&ends);
	MUST(!post_receive(&ends, ends.there));
	MUST(!post(&ends, IBV_WR_SEND, IBV_SEND_SIGNALED));
	poll_one(ends.recv_cq);
#ifdef FIXED
	poll_one(ends.send_cq);
#else
	/* The acknowledgement comes before that of this message. */
	MUST(!post_receive(&ends, ends.there));
	MUST(!post(&ends, IBV_WR_SEND, 0));
	poll_one(ends.recv_cq);
	drive(ends.recv_cq);
#endif
	close_device(&ends);
	return 0;
}
