/* WRITEs go to a region with relaxed ordering. That one has completed does not say that its data is there, and two to one place are not in order. */
#include "ends.h"

int main(void)
{
	struct ends ends, words;
	open_device(&ends);
	MUST(!ibv_dereg_mr(ends.mr));
	MUST(ends.mr = ibv_reg_mr(ends.pd, memory, sizeof(memory),
				  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
					  IBV_ACCESS_RELAXED_ORDERING));
	make_ends(&ends, 32);
	words = ends;
	words.here = make_qp(&words, IBV_QPT_RC, ends.send_cq);
	words.there = make_qp(&words, IBV_QPT_RC, ends.recv_cq);
	connect_ends(&ends);
	connect_ends(&words);
#ifdef FIXED
	struct ends *told = &ends;
#else
	struct ends *told = &words;
#endif
	for (int turn = 0; turn < 10; turn++) {
		MUST(!post_receive(told, told->there));
		MUST(!post(&ends, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED));
		poll_one(ends.send_cq);
		MUST(!post(told, IBV_WR_SEND, IBV_SEND_SIGNALED));
		poll_one(ends.send_cq);
		poll_one(ends.recv_cq); // BUG: notified-on-other-qp
	}

	MUST(!post(&ends, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED));
#ifdef FIXED
	poll_one(ends.send_cq);
#endif
	struct ibv_sge sge;
	struct ibv_send_wr write = request(&ends, &sge, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED), *bad;
	sge.addr = (uintptr_t)memory + 512;
	MUST(!ibv_post_send(ends.here, &write, &bad)); // BUG: write-passes-write
	poll_one(ends.send_cq);
#ifndef FIXED
	poll_one(ends.send_cq);
#endif
	MUST(!ibv_destroy_qp(words.here) && !ibv_destroy_qp(words.there));
	close_device(&ends);
	return 0;
}
