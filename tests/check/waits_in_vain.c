/* The completion of a WRITE is in the queue for sends, and the program polls the one for receives, for ever. */
#include "ends.h"

int main(void)
{
	struct ends ends;
	open_device(&ends);
	make_ends(&ends, 8);
	connect_ends(&ends);
	MUST(!post(&ends, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED));
#ifndef FIXED
	struct ibv_wc wc;
	alarm(8);
	while (ibv_poll_cq(ends.recv_cq, 1, &wc) == 0) // BUG: waits-in-vain
		;
#endif
	MUST(poll_one(ends.send_cq).status == IBV_WC_SUCCESS);
	close_device(&ends);
	return 0;
}
