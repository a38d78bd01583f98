/* What a READ brings is sent on before the READ is over, and a WRITE overtakes a READ of the same bytes. */
#include "ends.h"

#ifdef FIXED
#define FENCE IBV_SEND_FENCE
#else
#define FENCE 0
#endif

int main(void)
{
	struct ends ends;
	open_device(&ends);
	make_ends(&ends, 8);
	connect_ends(&ends);
	MUST(!post_receive(&ends, ends.there));
	MUST(!post(&ends, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED));
	MUST(!post(&ends, IBV_WR_SEND, IBV_SEND_SIGNALED | FENCE)); // BUG: read-result-early
	poll_one(ends.send_cq);
	poll_one(ends.send_cq);
	poll_one(ends.recv_cq);

	MUST(!post(&ends, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED));
	struct ibv_sge sge;
	struct ibv_send_wr write = request(&ends, &sge, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED | FENCE), *bad;
	sge.addr = (uintptr_t)memory + 512;
	MUST(!ibv_post_send(ends.here, &write, &bad)); // BUG: write-passes-read
	poll_one(ends.send_cq);
	poll_one(ends.send_cq);
	close_device(&ends);
	return 0;
}
