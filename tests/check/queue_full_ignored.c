/* Requests that a full queue refuses are ignored, and the program waits for their completions. */
#include "ends.h"

int main(void)
{
	struct ends ends;
	struct ibv_wc wc;
	open_device(&ends);
	make_ends(&ends, 64);
	connect_ends(&ends);
	int posted = 0, done = 0;
	for (int k = 0; k < 20; k++) {
#ifdef FIXED
		if (post(&ends, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED)) {
			poll_one(ends.send_cq);
			done++;
			MUST(!post(&ends, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED));
		}
#else
		post(&ends, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED); // BUG: call-refused
#endif
		posted++;
	}
	alarm(12);
	while (done < posted)
		done += ibv_poll_cq(ends.send_cq, 1, &wc); // BUG: waits-in-vain
	close_device(&ends);
	return 0;
}
