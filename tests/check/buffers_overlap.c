#include "ends.h"

static int post_receive_at(struct ends *ends, int offset)
{
	struct ibv_sge sge = {.addr = (uintptr_t)memory + offset, .length = 8, .lkey = ends->mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
	return ibv_post_recv(ends->there, &wr, &bad);
}

int main(void)
{
	struct ends ends;
	open_device(&ends);
	make_ends(&ends, 8);
	connect_ends(&ends);
	/* A buffer for the same message again and again is no harm. */
	for (int k = 0; k < 2; k++) {
		MUST(!post_receive_at(&ends, 128));
		MUST(!post_receive_at(&ends, 128));
		MUST(!post(&ends, IBV_WR_SEND, IBV_SEND_SIGNALED));
		MUST(!post(&ends, IBV_WR_SEND, IBV_SEND_SIGNALED));
		for (int n = 0; n < 2; n++) {
			poll_one(ends.send_cq);
			poll_one(ends.recv_cq);
		}
	}
	MUST(!post_receive_at(&ends, 128));
#ifdef FIXED
	MUST(!post_receive_at(&ends, 136));
#else
	MUST(!post_receive_at(&ends, 132)); // BUG: buffers-overlap
#endif
	for (int k = 1; k <= 2; k++) {
		memset(memory, k, 8);
		MUST(!post(&ends, IBV_WR_SEND, IBV_SEND_SIGNALED));
		poll_one(ends.send_cq);
	}
	poll_one(ends.recv_cq);
	poll_one(ends.recv_cq);
	close_device(&ends);
	return 0;
}
