/* IBV_EVENT_QP_LAST_WQE_REACHED comes of queue pairs with a shared receive queue only. */
#include "srq.h"

int main(void)
{
	struct ends ends;
	struct ibv_async_event event;
	open_device(&ends);
	struct ibv_srq *srq = make_shared_ends(&ends);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
#ifdef FIXED
	struct ibv_qp *ended = ends.there;
#else
	struct ibv_qp *ended = ends.here;
#endif
	MUST(!ibv_modify_qp(ended, &attr, IBV_QP_STATE));
	alarm(120);
	MUST(!ibv_get_async_event(ends.context, &event));
	MUST(event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED);
	ibv_ack_async_event(&event);
	close_shared(&ends, srq);
	return 0;
}
