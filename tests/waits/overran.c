/* More completions than the completion queue has room for, and a program that takes an error for "none yet". */
#include "ends.h"
#ifdef FIXED
#define DEPTH 16
#else
#define DEPTH 2
#endif

int main(void)
{
	struct ends ends;
	struct ibv_wc wc;
	open_device(&ends);
	make_ends(&ends, DEPTH);
	connect_ends(&ends);
	for (int i = 0; i < 8; i++)
		MUST(!post(&ends, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED));
	alarm(120);
	usleep(200000);
	for (int i = 0; i < 8; i++)
		while (ibv_poll_cq(ends.send_cq, 1, &wc) < 1) // HERE
			usleep(20000);
	close_device(&ends);
	return 0;
}
