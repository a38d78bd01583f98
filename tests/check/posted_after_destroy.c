/* On the data path, where calls do not look whether their object is there. */
#include "ends.h"

int main(void)
{
	struct ends ends;
	open_device(&ends);
	make_ends(&ends, 8);
	connect_ends(&ends);
	MUST(!post(&ends, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED));
	poll_one(ends.send_cq);
#ifndef FIXED
	struct ibv_qp *here = ends.here;
	MUST(!ibv_destroy_qp(ends.here));
	struct ibv_sge sge;
	struct ibv_send_wr wr = request(&ends, &sge, IBV_WR_RDMA_WRITE, 0), *bad;
	ibv_post_send(here, &wr, &bad); // BUG: used-after-destroy
	_exit(1);
#endif
	close_device(&ends);
	return 0;
}
