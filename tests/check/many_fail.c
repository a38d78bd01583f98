/* Ten queue pairs fail for one reason: a key that no region has. Then the program ends by _exit, as a time limit of
 * a test runner ends it; with -DFIXED nothing fails, and with -DWELL it ends
 * as other programs do. */
#include "ends.h"

#define COUNT 10

int main(void)
{
	struct ends ends[COUNT];
	struct ibv_sge sge;
	for (int k = 0; k < COUNT; k++) {
		open_device(&ends[k]);
		make_ends(&ends[k], 8);
		connect_ends(&ends[k]);
	}
	for (int k = 0; k < COUNT; k++) {
		struct ibv_send_wr wr = request(&ends[k], &sge, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED), *bad;
		wr.wr.rdma.remote_addr += 64 * k;
#ifndef FIXED
		wr.wr.rdma.rkey = 0x12345;
#endif
		MUST(!ibv_post_send(ends[k].here, &wr, &bad)); // BUG: queue-pair-failed
	}
	for (int k = 0; k < COUNT; k++)
		poll_one(ends[k].send_cq);
#ifdef FIXED
	for (int k = 0; k < COUNT; k++)
		close_device(&ends[k]);
#endif
#ifdef WELL
	return 0;
#else
	_exit(0);
#endif
}
