#include "srq.h"

int main(void)
{
	struct ends ends;
	open_device(&ends);
	struct ibv_srq *srq = make_shared_ends(&ends);
	MUST(!post_shared(&ends, srq, 0));
#ifdef FIXED
	struct ibv_srq_attr limit = {.srq_limit = 1};
	MUST(!ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT));
#endif
	for (int k = 1; k < 3; k++) {
		MUST(!post(&ends, IBV_WR_SEND, IBV_SEND_SIGNALED));
		poll_one(ends.recv_cq);
		poll_one(ends.send_cq);
		if (k == 2)
			break;
#ifdef FIXED
		struct ibv_async_event event;
		MUST(!ibv_get_async_event(ends.context, &event) && event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED);
		ibv_ack_async_event(&event);
		MUST(!post_shared(&ends, srq, k));
#else
		MUST(!post(&ends, IBV_WR_SEND, IBV_SEND_SIGNALED));
		drive(ends.recv_cq);
		MUST(!post_shared(&ends, srq, k)); // BUG: srq-limit-never-armed
		poll_one(ends.recv_cq);
		poll_one(ends.send_cq);
		break;
#endif
	}
	close_shared(&ends, srq);
	return 0;
}
