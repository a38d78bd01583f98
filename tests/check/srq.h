/* "there" takes its receives from a shared queue. */
#include "ends.h"

UNUSED static struct ibv_srq *make_shared_ends(struct ends *ends)
{
	struct ibv_srq_init_attr wants = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(ends->pd, &wants);
	MUST(srq);
	MUST(ends->send_cq = ibv_create_cq(ends->context, 8, NULL, NULL, 0));
	MUST(ends->recv_cq = ibv_create_cq(ends->context, 64, NULL, NULL, 0));
	ends->here = make_qp(ends, IBV_QPT_RC, ends->send_cq);
	struct ibv_qp_init_attr attr = {
		.send_cq = ends->recv_cq,
		.recv_cq = ends->recv_cq,
		.srq = srq,
		.cap = {.max_send_wr = 1, .max_send_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
	MUST(ends->there = ibv_create_qp(ends->pd, &attr));
	connect_ends(ends);
	return srq;
}

/* The buffer of receive `k` is the eight bytes from 128 + 8 * k on. */
UNUSED static int post_shared(struct ends *ends, struct ibv_srq *srq, int k)
{
	struct ibv_sge sge = {.addr = (uintptr_t)memory + 128 + 8 * k, .length = 8, .lkey = ends->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = k, .sg_list = &sge, .num_sge = 1}, *bad;
	return ibv_post_srq_recv(srq, &wr, &bad);
}

UNUSED static void close_shared(struct ends *ends, struct ibv_srq *srq)
{
	destroy_ends(ends);
	ends->here = ends->there = NULL;
	ends->send_cq = ends->recv_cq = NULL;
	MUST(!ibv_destroy_srq(srq));
	close_device(ends);
}
