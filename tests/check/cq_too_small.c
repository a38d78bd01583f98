#include "ends.h"

int main(void)
{
	struct ends ends;
	open_device(&ends);
#ifdef FIXED
	make_ends(&ends, 8);
#else
	make_ends(&ends, 4); // BUG: cq-too-small
#endif
	connect_ends(&ends);
	for (int k = 0; k < 8; k++)
		MUST(!post(&ends, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED));
#ifdef FIXED
	for (int k = 0; k < 8; k++)
		poll_one(ends.send_cq);
#else
	poll_one(ends.send_cq);
	exit(1);
#endif
	close_device(&ends);
	return 0;
}
