/* Data goes on one queue pair, and the word that it is there on another. */
#include "ends.h"

int main(void)
{
	struct ends ends, words;
	open_device(&ends);
	make_ends(&ends, 32);
	words = ends;
	words.here = make_qp(&words, IBV_QPT_RC, ends.send_cq);
	words.there = make_qp(&words, IBV_QPT_RC, ends.recv_cq);
	connect_ends(&ends);
	connect_ends(&words);
	for (int turn = 0; turn < 10; turn++) {
		MUST(!post_receive(&words, words.there));
		MUST(!post(&ends, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED));
#ifdef FIXED
		poll_one(ends.send_cq);
#endif
		MUST(!post(&words, IBV_WR_SEND, IBV_SEND_SIGNALED)); // BUG: notified-on-other-qp
		poll_one(ends.send_cq);
#ifndef FIXED
		poll_one(ends.send_cq);
#endif
		poll_one(ends.recv_cq);
	}
	MUST(!ibv_destroy_qp(words.here) && !ibv_destroy_qp(words.there));
	close_device(&ends);
	return 0;
}
