/* The peer's queue pair is still in INIT, and the program waits until its message has arrived. */
#include "two.h"

int main(void)
{
	struct side side;
	uint32_t peer = two_sides(&side);
	if (side.child)
		connect_side(&side, peer, 0);
#ifdef FIXED
	else
		connect_side(&side, peer, 0);
#endif
	MUST(!post_receive(&side.ends, side.qp));
	meet(&side);
	alarm(120);
	if (!side.child) {
#ifdef FIXED
		MUST(poll_one(side.ends.recv_cq).status == IBV_WC_SUCCESS);
#else
		char more;
		hear(&side, &more, 1);
#endif
	} else {
		send_one(&side);
		MUST(poll_one(side.ends.recv_cq).status == IBV_WC_SUCCESS); // HERE
	}
	close_side(&side);
	return 0;
}
