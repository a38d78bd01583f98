/* XRC: the receive request is in a shared receive queue that the message does not name. */
#include "ends.h"
#include <fcntl.h>
#ifdef FIXED
#define NAMED 1
#else
#define NAMED 0
#endif

static struct ibv_qp *make_xrc(struct ends *ends, struct ibv_xrcd *domain, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr_ex wants = {.qp_type = type, .pd = ends->pd, .xrcd = domain};
	wants.comp_mask = type == IBV_QPT_XRC_RECV ? IBV_QP_INIT_ATTR_XRCD : IBV_QP_INIT_ATTR_PD;
	if (type == IBV_QPT_XRC_SEND) {
		wants.send_cq = ends->send_cq;
		wants.cap = (struct ibv_qp_cap){.max_send_wr = 8, .max_send_sge = 1};
	}
	struct ibv_qp *qp = ibv_create_qp_ex(ends->context, &wants);
	MUST(qp);
	return qp;
}

int main(void)
{
	struct ends ends;
	open_device(&ends);
	MUST(ends.send_cq = ibv_create_cq(ends.context, 8, NULL, NULL, 0));
	MUST(ends.recv_cq = ibv_create_cq(ends.context, 8, NULL, NULL, 0));
	struct ibv_xrcd_init_attr opens = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT};
	struct ibv_xrcd *domain = ibv_open_xrcd(ends.context, &opens);
	MUST(domain);
	struct ibv_srq *srqs[2];
	uint32_t numbers[2];
	for (int i = 0; i < 2; i++) {
		struct ibv_srq_init_attr_ex wants = {
			.attr = {.max_wr = 8, .max_sge = 1},
			.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
				     IBV_SRQ_INIT_ATTR_CQ,
			.srq_type = IBV_SRQT_XRC,
			.pd = ends.pd,
			.xrcd = domain,
			.cq = ends.recv_cq,
		};
		MUST(srqs[i] = ibv_create_srq_ex(ends.context, &wants));
		MUST(!ibv_get_srq_num(srqs[i], &numbers[i]));
	}
	ends.here = make_xrc(&ends, domain, IBV_QPT_XRC_SEND);
	ends.there = make_xrc(&ends, domain, IBV_QPT_XRC_RECV);
	connect_ends(&ends);
	struct ibv_sge sge, into = {.addr = (uintptr_t)memory + 128, .length = 8, .lkey = ends.mr->lkey};
	struct ibv_recv_wr receive = {.sg_list = &into, .num_sge = 1}, *bad_receive;
	MUST(!ibv_post_srq_recv(srqs[1], &receive, &bad_receive));
	struct ibv_send_wr wr = request(&ends, &sge, IBV_WR_SEND, IBV_SEND_SIGNALED), *bad;
	wr.qp_type.xrc.remote_srqn = numbers[NAMED];
	MUST(!ibv_post_send(ends.here, &wr, &bad));
	alarm(120);
	MUST(poll_one(ends.recv_cq).status == IBV_WC_SUCCESS); // HERE
	MUST(poll_one(ends.send_cq).status == IBV_WC_SUCCESS);
	MUST(!ibv_destroy_qp(ends.here) && !ibv_destroy_qp(ends.there));
	ends.here = ends.there = NULL;
	MUST(!ibv_destroy_srq(srqs[0]) && !ibv_destroy_srq(srqs[1]) && !ibv_close_xrcd(domain));
	close_device(&ends);
	return 0;
}
