/* The peer writes to memory that it may not write to, and only an event tells the owner. */
#include "ends.h"

int main(void)
{
	struct ends ends;
	open_device(&ends);
	MUST(ends.send_cq = ibv_create_cq(ends.context, 8, NULL, NULL, 0));
	MUST(ends.recv_cq = ibv_create_cq(ends.context, 8, NULL, NULL, 0));
	ends.here = make_qp(&ends, IBV_QPT_RC, ends.send_cq);
	struct ibv_qp_init_attr wants = {
		.send_cq = ends.recv_cq,
		.recv_cq = ends.recv_cq,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
	ends.there = ibv_create_qp(ends.pd, &wants); // BUG: async-events-never-read
	MUST(ends.there);
	connect_ends(&ends);
	struct ibv_sge sge;
	struct ibv_send_wr wr = request(&ends, &sge, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED), *bad;
	wr.wr.rdma.remote_addr = (uintptr_t)memory + sizeof(memory);
	MUST(!ibv_post_send(ends.here, &wr, &bad));
	MUST(poll_one(ends.send_cq).status == IBV_WC_REM_ACCESS_ERR);
#ifdef FIXED
	struct ibv_async_event event;
	MUST(!ibv_get_async_event(ends.context, &event) && event.event_type == IBV_EVENT_QP_ACCESS_ERR);
	ibv_ack_async_event(&event);
#endif
	close_device(&ends);
	return 0;
}
