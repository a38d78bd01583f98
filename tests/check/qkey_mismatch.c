#include "ends.h"

static struct ibv_qp *make_datagrams(struct ends *ends, struct ibv_cq *cq, uint32_t qkey)
{
	struct ibv_qp *qp = make_qp(ends, IBV_QPT_UD, cq);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = qkey};
	MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	attr.qp_state = IBV_QPS_RTR;
	MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
	return qp;
}

int main(void)
{
	struct ends ends;
	open_device(&ends);
	MUST(ends.send_cq = ibv_create_cq(ends.context, 8, NULL, NULL, 0));
	MUST(ends.recv_cq = ibv_create_cq(ends.context, 8, NULL, NULL, 0));
	ends.here = make_datagrams(&ends, ends.send_cq, 0x1111);
#ifdef FIXED
	ends.there = make_datagrams(&ends, ends.recv_cq, 0x1111);
#else
	ends.there = make_datagrams(&ends, ends.recv_cq, 0x2222); // BUG: qkey-mismatch
#endif
	struct ibv_qp_attr rtr = rtr_attributes(ends.here, 0);
	struct ibv_ah *ah = ibv_create_ah(ends.pd, &rtr.ah_attr);
	MUST(ah);
	/* The first 40 bytes are for the header. */
	struct ibv_sge into = {.addr = (uintptr_t)memory + 128, .length = 48, .lkey = ends.mr->lkey};
	struct ibv_recv_wr receive = {.sg_list = &into, .num_sge = 1}, *bad_receive;
	MUST(!ibv_post_recv(ends.there, &receive, &bad_receive));
	struct ibv_sge sge;
	struct ibv_send_wr wr = request(&ends, &sge, IBV_WR_SEND, IBV_SEND_SIGNALED), *bad;
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = ends.there->qp_num;
	wr.wr.ud.remote_qkey = 0x1111;
	MUST(!ibv_post_send(ends.here, &wr, &bad));
	poll_one(ends.send_cq);
#ifdef FIXED
	poll_one(ends.recv_cq);
#else
	drive(ends.recv_cq);
#endif
	MUST(!ibv_destroy_ah(ah));
	close_device(&ends);
	return 0;
}
