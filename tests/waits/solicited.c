/* A queue is armed for solicited completions, and the sender does not ask for one. */
#include "ends.h"

int main(void)
{
	struct ends ends;
	struct ibv_cq *cq;
	void *context;
	open_device(&ends);
	make_ends(&ends, 8);
	connect_ends(&ends);
	MUST(!post_receive(&ends, ends.here));
	MUST(!ibv_req_notify_cq(ends.send_cq, 1));
	struct ibv_sge sge;
	int flags = IBV_SEND_SIGNALED;
#ifdef FIXED
	flags |= IBV_SEND_SOLICITED;
#endif
	struct ibv_send_wr wr = request(&ends, &sge, IBV_WR_SEND, flags), *bad;
	MUST(!ibv_post_send(ends.there, &wr, &bad));
	alarm(120);
	MUST(!ibv_get_cq_event(ends.channel, &cq, &context)); // HERE
	ibv_ack_cq_events(cq, 1);
	MUST(poll_one(ends.send_cq).status == IBV_WC_SUCCESS);
	MUST(poll_one(ends.recv_cq).status == IBV_WC_SUCCESS);
	close_device(&ends);
	return 0;
}
