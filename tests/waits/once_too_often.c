/* The program polls once more than there are requests. */
#include "ends.h"

int main(void)
{
	struct ends ends;
	open_device(&ends);
	make_ends(&ends, 8);
	connect_ends(&ends);
	MUST(!post(&ends, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED));
	MUST(poll_one(ends.send_cq).status == IBV_WC_SUCCESS);
	alarm(120);
#ifndef FIXED
	MUST(poll_one(ends.send_cq).status == IBV_WC_SUCCESS);
#endif
	close_device(&ends);
	return 0;
}
