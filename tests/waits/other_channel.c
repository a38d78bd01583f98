/* The completion is in a queue without a channel, and the program sleeps on the channel of another one. */
#include "ends.h"

int main(void)
{
	struct ends ends;
	struct ibv_cq *cq;
	void *context;
	open_device(&ends);
	make_ends(&ends, 8);
	connect_ends(&ends);
	MUST(!ibv_req_notify_cq(ends.send_cq, 0));
	MUST(!post_receive(&ends, ends.here));
	struct ibv_sge sge;
	struct ibv_send_wr wr = request(&ends, &sge, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED), *bad;
#ifdef FIXED
	wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
#endif
	MUST(!ibv_post_send(ends.there, &wr, &bad));
	alarm(120);
#ifdef FIXED
	MUST(!ibv_get_cq_event(ends.channel, &cq, &context));
	ibv_ack_cq_events(cq, 1);
	MUST(poll_one(ends.send_cq).status == IBV_WC_SUCCESS);
#else
	struct ibv_comp_channel *channel = ibv_create_comp_channel(ends.context);
	struct ibv_cq *other = ibv_create_cq(ends.context, 8, NULL, channel, 0);
	MUST(channel && other && !ibv_req_notify_cq(other, 0));
	MUST(!ibv_get_cq_event(channel, &cq, &context)); // HERE
#endif
	MUST(poll_one(ends.recv_cq).status == IBV_WC_SUCCESS);
	close_device(&ends);
	return 0;
}
