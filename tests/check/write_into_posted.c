#include "ends.h"

int main(void)
{
	struct ends ends;
	open_device(&ends);
	make_ends(&ends, 8);
	connect_ends(&ends);
	MUST(!post_receive(&ends, ends.there)); // BUG: write-into-posted
	struct ibv_sge sge;
	struct ibv_send_wr wr = request(&ends, &sge, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED), *bad;
#ifndef FIXED
	wr.wr.rdma.remote_addr = (uintptr_t)memory + 132;
#endif
	MUST(!ibv_post_send(ends.here, &wr, &bad));
	poll_one(ends.send_cq);
	MUST(!post(&ends, IBV_WR_SEND, IBV_SEND_SIGNALED));
	poll_one(ends.send_cq);
	poll_one(ends.recv_cq);
	close_device(&ends);
	return 0;
}
