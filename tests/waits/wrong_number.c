/* A number that no queue pair of the peer has, and a timer that never expires: no status says it. */
#include "two.h"
#ifdef FIXED
#define WRONG 0
#else
#define WRONG 0x155
#endif

int main(void)
{
	struct side side;
	uint32_t peer = two_sides(&side);
	connect_side(&side, side.child ? peer ^ WRONG : peer, 0);
	MUST(!post_receive(&side.ends, side.qp));
	meet(&side);
	alarm(120);
	if (side.child)
		send_one(&side);
	MUST(poll_one(side.ends.recv_cq).status == IBV_WC_SUCCESS); // HERE
#ifdef FIXED
	meet(&side);
#endif
	close_side(&side);
	return 0;
}
