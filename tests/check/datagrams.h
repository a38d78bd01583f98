/* Two queue pairs for datagrams, of which "here" sends and "there" receives, and an address handle to a group or to the
 * device's own address. */
#include "ends.h"

#define QKEY 0x1111

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

/* All but "there". */
static void open_datagrams(struct ends *ends)
{
	open_device(ends);
	MUST(ends->send_cq = ibv_create_cq(ends->context, 8, NULL, NULL, 0));
	MUST(ends->recv_cq = ibv_create_cq(ends->context, 8, NULL, NULL, 0));
	ends->here = make_datagrams(ends, ends->send_cq, QKEY);
}

static struct ibv_ah *handle_to(struct ends *ends, const union ibv_gid *group)
{
	struct ibv_qp_attr rtr = rtr_attributes(ends->here, 0);
	if (group)
		rtr.ah_attr.grh.dgid = *group;
	struct ibv_ah *ah = ibv_create_ah(ends->pd, &rtr.ah_attr);
	MUST(ah);
	return ah;
}

UNUSED static struct ibv_ah *datagram_ends(struct ends *ends, const union ibv_gid *group)
{
	open_datagrams(ends);
	ends->there = make_datagrams(ends, ends->recv_cq, QKEY);
	return handle_to(ends, group);
}

UNUSED static int receive_datagram(struct ends *ends, int bytes)
{
	struct ibv_sge into = {.addr = (uintptr_t)memory + 128, .length = bytes, .lkey = ends->mr->lkey};
	struct ibv_recv_wr receive = {.sg_list = &into, .num_sge = 1}, *bad;
	return ibv_post_recv(ends->there, &receive, &bad);
}

/* Sends 8 bytes, and waits until they have left. */
UNUSED static int send_datagram(struct ends *ends, struct ibv_ah *ah, uint32_t number)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = request(ends, &sge, IBV_WR_SEND, IBV_SEND_SIGNALED), *bad;
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = number;
	wr.wr.ud.remote_qkey = QKEY;
	return ibv_post_send(ends->here, &wr, &bad);
}

/* The datagram is received, or lost. */
UNUSED static void await_datagram(struct ends *ends)
{
	poll_one(ends->send_cq);
#ifdef FIXED
	poll_one(ends->recv_cq);
#else
	drive(ends->recv_cq);
#endif
}

UNUSED static void end_datagrams(struct ends *ends, struct ibv_ah *ah)
{
	MUST(!ibv_destroy_ah(ah));
	close_device(ends);
}
