/* A message that is longer than its receive: both ends fail, and the program is told once, where it posted. */
#include "ends.h"

int main(void)
{
	struct ends ends;
	open_device(&ends);
	make_ends(&ends, 8);
	connect_ends(&ends);
	MUST(!post_receive(&ends, ends.there));
	struct ibv_sge sge;
	struct ibv_send_wr wr = request(&ends, &sge, IBV_WR_SEND, IBV_SEND_SIGNALED), *bad;
#ifndef FIXED
	sge.length = 16;
#endif
	MUST(!ibv_post_send(ends.here, &wr, &bad)); // BUG: queue-pair-failed
	poll_one(ends.send_cq);
	poll_one(ends.recv_cq);
	/* A program that ends a connection itself has not failed: nothing is said of requests that are flushed. */
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	MUST(!post_receive(&ends, ends.there));
	MUST(!ibv_modify_qp(ends.there, &attr, IBV_QP_STATE));
	MUST(poll_one(ends.recv_cq).status == IBV_WC_WR_FLUSH_ERR);
	close_device(&ends);
	return 0;
}
