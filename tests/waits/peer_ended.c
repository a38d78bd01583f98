/* The peer's process has ended, and the program waits for its message. */
#include "two.h"

int main(void)
{
	struct side side;
	uint32_t peer = two_sides(&side);
	connect_side(&side, peer, 14);
	MUST(!post_receive(&side.ends, side.qp));
	meet(&side);
	alarm(120);
	if (!side.child) {
#ifndef FIXED
		_exit(0);
#endif
		send_one(&side);
		MUST(poll_one(side.ends.recv_cq).status == IBV_WC_SUCCESS);
	} else {
		MUST(poll_one(side.ends.recv_cq).status == IBV_WC_SUCCESS); // HERE
	}
	close_side(&side);
	return 0;
}
