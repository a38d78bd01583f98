#include "ends.h"

int main(void)
{
	struct ends ends;
	open_device(&ends);
	make_ends(&ends, 8);
	connect_ends(&ends);
	for (int k = 0; k < 100; k++) {
#ifdef FIXED
		int flags = k % 16 == 15 ? IBV_SEND_SIGNALED : 0;
#else
		int flags = 0;
#endif
		if (post(&ends, IBV_WR_RDMA_WRITE, flags)) // BUG: send-queue-never-reaped
			break;
		if (flags)
			poll_one(ends.send_cq);
	}
	close_device(&ends);
	return 0;
}
