/* Calls of the data path with objects that are gone: each is told, and returns. */
#include "ends.h"

int main(void)
{
	struct ends ends;
	open_device(&ends);
	make_ends(&ends, 8);
	connect_ends(&ends);
	struct ibv_cq_init_attr_ex wants = {.cqe = 8};
	struct ibv_cq_ex *extended = ibv_create_cq_ex(ends.context, &wants);
	struct ibv_qp_init_attr_ex init_attr = {
		.send_cq = ends.send_cq,
		.recv_cq = ends.send_cq,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
		.pd = ends.pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};
	struct ibv_srq_init_attr shared = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_qp *series = ibv_create_qp_ex(ends.context, &init_attr);
	struct ibv_srq *srq = ibv_create_srq(ends.pd, &shared);
	MUST(extended && series && srq);
	struct ibv_cq *cq = ends.send_cq;
	struct ibv_qp *qp = ends.here;
	struct ibv_qp_ex *qpx = ibv_qp_to_qp_ex(series);
	MUST(!ibv_destroy_qp(series) && !ibv_destroy_srq(srq) && !ibv_destroy_cq(ibv_cq_ex_to_cq(extended)));
	destroy_ends(&ends);
	memset(&ends.channel, 0, sizeof(ends) - offsetof(struct ends, channel));
#ifndef FIXED
	struct ibv_wc wc;
	struct ibv_sge sge;
	struct ibv_send_wr wr = request(&ends, &sge, IBV_WR_RDMA_WRITE, 0), *bad = NULL;
	struct ibv_recv_wr receive = {.sg_list = &sge, .num_sge = 1}, *bad_receive;
	struct ibv_poll_cq_attr poll = {0};
	MUST(ibv_poll_cq(cq, 1, &wc) < 0);		   // BUG: used-after-destroy
	MUST(ibv_req_notify_cq(cq, 0));			   // BUG: used-after-destroy
	MUST(ibv_start_poll(extended, &poll));		   // BUG: used-after-destroy
	MUST(ibv_next_poll(extended));			   // BUG: used-after-destroy
	ibv_end_poll(extended);				   // BUG: used-after-destroy
	MUST(ibv_post_send(qp, &wr, &bad) && bad == &wr);  // BUG: used-after-destroy
	MUST(ibv_post_recv(qp, &receive, &bad_receive));   // BUG: used-after-destroy
	MUST(ibv_post_srq_recv(srq, &receive, &bad_receive)); // BUG: used-after-destroy
	ibv_wr_start(qpx);				   // BUG: used-after-destroy
	ibv_wr_send(qpx);				   // BUG: used-after-destroy
	ibv_wr_set_sge(qpx, 1, 2, 3);			   // BUG: used-after-destroy
	MUST(ibv_wr_complete(qpx));			   // BUG: used-after-destroy
#else
	(void)cq;
	(void)qp;
	(void)qpx;
#endif
	close_device(&ends);
	return 0;
}
