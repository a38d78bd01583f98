/* Attributes that mean something else than they look. */
#include "ends.h"

int main(void)
{
	struct ends ends;
	open_device(&ends);
	make_ends(&ends, 8);
	MUST(!to_init(ends.here) && !to_init(ends.there));
	struct ibv_qp_attr rtr = rtr_attributes(ends.here, ends.there->qp_num);
#ifndef FIXED
	rtr.min_rnr_timer = 0;
#endif
	MUST(!ibv_modify_qp(ends.here, &rtr, RTR_MASK)); // BUG: rnr-timer-longest
	rtr = rtr_attributes(ends.there, ends.here->qp_num);
#ifndef FIXED
	rtr.max_dest_rd_atomic = 1;
#endif
	MUST(!ibv_modify_qp(ends.there, &rtr, RTR_MASK));
	struct ibv_qp_attr rts = rts_attributes();
#ifndef FIXED
	rts.timeout = 0;
#endif
	MUST(!ibv_modify_qp(ends.here, &rts, RTS_MASK)); // BUG: timeout-for-ever read-depth-mismatch
	rts = rts_attributes();
#ifndef FIXED
	rts.retry_cnt = 0;
#endif
	MUST(!ibv_modify_qp(ends.there, &rts, RTS_MASK)); // BUG: retries-zero
	close_device(&ends);
	return 0;
}
