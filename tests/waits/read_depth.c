/* A READ on a queue pair that may have none under way. */
#include "ends.h"

int main(void)
{
	struct ends ends;
	open_device(&ends);
	make_ends(&ends, 8);
	MUST(!to_init(ends.here) && !to_init(ends.there));
	MUST(!to_rtr(ends.here, ends.there->qp_num) && !to_rtr(ends.there, ends.here->qp_num));
	struct ibv_qp_attr attr = rts_attributes();
#ifndef FIXED
	attr.max_rd_atomic = 0;
#endif
	MUST(!ibv_modify_qp(ends.here, &attr, RTS_MASK) && !to_rts(ends.there));
	alarm(120);
	MUST(!post(&ends, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED)); // HERE
	MUST(poll_one(ends.send_cq).status == IBV_WC_SUCCESS);
	close_device(&ends);
	return 0;
}
