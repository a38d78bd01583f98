/* The queue pair was drained (SQD), and not brought back to RTS: requests wait in the send queue. */
#include "ends.h"

int main(void)
{
	struct ends ends;
	open_device(&ends);
	make_ends(&ends, 8);
	connect_ends(&ends);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD};
	MUST(!ibv_modify_qp(ends.here, &attr, IBV_QP_STATE));
#ifdef FIXED
	attr.qp_state = IBV_QPS_RTS;
	MUST(!ibv_modify_qp(ends.here, &attr, IBV_QP_STATE));
#endif
	MUST(!post(&ends, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED));
	alarm(120);
	MUST(poll_one(ends.send_cq).status == IBV_WC_SUCCESS); // HERE
	close_device(&ends);
	return 0;
}
