/* The completion is in one queue, and the program polls another one. */
#include "ends.h"

int main(void)
{
	struct ends ends;
	open_device(&ends);
	make_ends(&ends, 8);
	connect_ends(&ends);
	MUST(!post(&ends, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED));
	alarm(120);
#ifdef FIXED
	struct ibv_cq *polled = ends.send_cq;
#else
	struct ibv_cq *polled = ends.recv_cq;
#endif
	MUST(poll_one(polled).status == IBV_WC_SUCCESS);
	close_device(&ends);
	return 0;
}
