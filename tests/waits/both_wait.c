/* Each of two processes waits for the other's message before it sends its own. */
#include "two.h"

int main(void)
{
	struct side side;
	uint32_t peer = two_sides(&side);
	connect_side(&side, peer, 14);
	MUST(!post_receive(&side.ends, side.qp));
	meet(&side);
	alarm(120);
#ifdef FIXED
	send_one(&side);
	MUST(poll_one(side.ends.recv_cq).status == IBV_WC_SUCCESS);
	MUST(poll_one(side.ends.recv_cq).status == IBV_WC_SUCCESS);
	meet(&side);
#else
	MUST(poll_one(side.ends.recv_cq).status == IBV_WC_SUCCESS); // HERE
	send_one(&side);
	MUST(poll_one(side.ends.recv_cq).status == IBV_WC_SUCCESS);
#endif
	close_side(&side);
	return 0;
}
