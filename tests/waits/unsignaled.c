/* All requests are unsignaled, and the program waits for a completion. */
#include "ends.h"

int main(void)
{
	struct ends ends;
	open_device(&ends);
	make_ends(&ends, 8);
	connect_ends(&ends);
	for (int k = 0; k < 5; k++) {
		int flags = 0;
#ifdef FIXED
		flags = k == 4 ? IBV_SEND_SIGNALED : 0;
#endif
		MUST(!post(&ends, IBV_WR_RDMA_WRITE, flags));
	}
	alarm(120);
	MUST(poll_one(ends.send_cq).status == IBV_WC_SUCCESS); // HERE
	close_device(&ends);
	return 0;
}
