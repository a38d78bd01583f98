/* A call that waits for longer than one of its attempts, by the rules of tests/call_faults.rs: it is one call. */
#include "expect.h"

static long milliseconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int main(void)
{
	open_device();
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	struct ibv_qp *qp = ibv_create_qp(pd, &wants);
	CLAIM(qp);
	init(qp);
	connect_to(qp, qp->qp_num);
	struct ibv_sge sge = piece(0, 8);
	struct ibv_send_wr write = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = (uintptr_t)memory + 64, .rkey = mr->rkey},
	};
	struct ibv_send_wr *bad;
	for (int round = 0; round < 2; round++) {
		struct ibv_cq *fired;
		void *context;
		FAILS(ibv_req_notify_cq(cq, 0), 0);
		FAILS(ibv_post_send(qp, &write, &bad), 0);
		long begin = milliseconds();
		/* It is delayed once by 150 ms; its event comes 450 ms after the completion. */
		FAILS(ibv_get_cq_event(channel, &fired, &context), 0);
		long took = milliseconds() - begin;
		CLAIM(took >= 150);
		ibv_ack_cq_events(fired, 1);
		CLAIM(completion().status == IBV_WC_SUCCESS);
		/* What waits for the second return of the call begins after it. */
		struct ibv_pd *more = ibv_alloc_pd(ctx);
		if (round == 0) {
			CLAIM(more && ibv_dealloc_pd(more) == 0);
		} else {
			CLAIM(!more && errno == ENOMEM);
		}
	}
	return 0;
}
