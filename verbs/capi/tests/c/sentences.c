/* Goes wrong in the usual ways. What the library says about it is for the caller to judge; numbers that
   differ from run to run are on standard output, as NAME=number. */
#include "expect.h"

static struct ibv_qp *make(const char *name, enum ibv_qp_type type, struct ibv_cq *of)
{
	struct ibv_qp_init_attr wants = qp_wants(type);
	wants.send_cq = of;
	struct ibv_qp *qp = ibv_create_qp(pd, &wants);
	CLAIM(qp);
	printf("%s=0x%06x\n", name, qp->qp_num);
	return qp;
}

static void to_rtr(struct ibv_qp *qp, uint8_t sgid_index, int left_out, int refusal)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = 0xfe0123, .rq_psn = 100, .ah_attr = own_address()};
	attr.ah_attr.grh.sgid_index = sgid_index;
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	FAILS(ibv_modify_qp(qp, &attr, mask & ~left_out), refusal);
}

static void to_rts(struct ibv_qp *qp, uint8_t rnr_retry)
{
	struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS, .sq_psn = 5, .timeout = 10, .retry_cnt = 1, .rnr_retry = rnr_retry};
	FAILS(ibv_modify_qp(qp, &rts,
			    IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				    IBV_QP_MAX_QP_RD_ATOMIC),
	      0);
}

static void expect_status(enum ibv_wc_status status)
{
	struct ibv_wc wc = completion();
	CLAIM(wc.status == status);
}

static void refusals(void)
{
	union ibv_gid gid;
	CLAIM(ibv_query_gid(ctx, 1, 1024, &gid) == -1 && errno == EINVAL);
	struct ibv_qp *qp = make("REFUSED", IBV_QPT_RC, cq);
	struct ibv_sge sge = piece(0, 8);
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
	struct ibv_send_wr *bad;
	FAILS(ibv_post_send(qp, &wr, &bad), EINVAL);
	struct ibv_recv_wr receive = {.sg_list = &sge, .num_sge = 1}, *bad_receive;
	FAILS(ibv_post_recv(qp, &receive, &bad_receive), EINVAL);
	struct ibv_qp_init_attr driver = qp_wants(IBV_QPT_DRIVER);
	REFUSED(ibv_create_qp(pd, &driver), EOPNOTSUPP);
	init(qp);
	to_rtr(qp, 0, IBV_QP_MIN_RNR_TIMER, EINVAL);
	to_rtr(qp, 5, 0, ENODATA);
}

static void nobody_there(void)
{
	struct ibv_qp *qp = make("LONELY", IBV_QPT_RC, cq);
	init(qp);
	to_rtr(qp, 0, 0, 0);
	to_rts(qp, 7);
	struct ibv_sge sge = piece(0, 8);
	struct ibv_send_wr wr = {.wr_id = 0x77, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
	post(qp, &wr);
	expect_status(IBV_WC_RETRY_EXC_ERR);
}

/* A READ on a queue pair that may have none under way. */
static void no_depth(void)
{
	struct ibv_qp *qp = make("SHALLOW", IBV_QPT_RC, cq);
	init(qp);
	to_rtr(qp, 0, 0, 0);
	to_rts(qp, 7);
	struct ibv_sge sge = piece(0, 8);
	struct ibv_send_wr wr = {.wr_id = 0x78, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ};
	post(qp, &wr);
	expect_status(IBV_WC_RETRY_EXC_ERR);
}

static void connected(const char *one, const char *other, struct ibv_qp **a, struct ibv_qp **b, struct ibv_cq *of)
{
	*a = make(one, IBV_QPT_RC, of);
	*b = make(other, IBV_QPT_RC, cq);
	init(*a);
	init(*b);
	connect_to(*b, (*a)->qp_num);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
				   .path_mtu = IBV_MTU_1024,
				   .dest_qp_num = (*b)->qp_num,
				   .rq_psn = 100,
				   .min_rnr_timer = 1,
				   .ah_attr = own_address()};
	FAILS(ibv_modify_qp(*a, &attr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
	      0);
	struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS, .sq_psn = 100, .timeout = 14, .retry_cnt = 7, .rnr_retry = 1};
	FAILS(ibv_modify_qp(*a, &rts,
			    IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				    IBV_QP_MAX_QP_RD_ATOMIC),
	      0);
}

static void no_receive(void)
{
	struct ibv_qp *a, *b;
	connected("EAGER", "UNREADY", &a, &b, cq);
	struct ibv_sge sge = piece(0, 8);
	struct ibv_send_wr wr = {.wr_id = 3, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
	post(a, &wr);
	expect_status(IBV_WC_RNR_RETRY_EXC_ERR);
}

static void no_access(void)
{
	struct ibv_qp *a, *b;
	connected("INTRUDER", "GUARD", &a, &b, cq);
	struct ibv_sge sge = piece(0, 8);
	struct ibv_send_wr wr = {.wr_id = 4, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
	wr.wr.rdma.remote_addr = 0x1000;
	wr.wr.rdma.rkey = mr->rkey;
	printf("RKEY=0x%08x\n", mr->rkey);
	post(a, &wr);
	expect_status(IBV_WC_REM_ACCESS_ERR);
}

static void overrun(void)
{
	struct ibv_cq *small = ibv_create_cq(ctx, 1, NULL, NULL, 0);
	CLAIM(small);
	struct ibv_qp *a, *b;
	connected("CARELESS", "PATIENT", &a, &b, small);
	struct ibv_sge sge = piece(0, 8);
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
	wr.wr.rdma.remote_addr = (uintptr_t)memory;
	wr.wr.rdma.rkey = mr->rkey;
	printf("DEPTH=%d\nSMALL=%u\n", small->cqe, small->handle);
	for (int i = 0; i <= small->cqe; i++)
		post(a, &wr);
	struct ibv_async_event event;
	CLAIM(ibv_get_async_event(ctx, &event) == 0);
	ibv_ack_async_event(&event);
}

static void datagrams(void)
{
	struct ibv_qp *a = make("CALLER", IBV_QPT_UD, cq), *b = make("DEAF", IBV_QPT_UD, cq);
	init(a);
	init(b);
	connect_to(a, 0);
	connect_to(b, 0);
	struct ibv_ah_attr address = own_address();
	struct ibv_ah *ah = ibv_create_ah(pd, &address);
	CLAIM(ah);
	struct ibv_sge sge = piece(0, 8);
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = b->qp_num;
	wr.wr.ud.remote_qkey = 8;
	post(a, &wr);
	completions(1);
	wr.wr.ud.remote_qkey = 7;
	for (int i = 0; i < 50; i++) {
		post(a, &wr);
		completions(1);
	}
	/* What reaches this one is behind all the others. */
	struct ibv_qp *c = make("LAST", IBV_QPT_UD, cq);
	init(c);
	connect_to(c, 0);
	post_receive(c, 9, 0, 100);
	wr.wr.ud.remote_qpn = c->qp_num;
	post(a, &wr);
	completions(2);
}

static void wrong_element(const char *name, const char *other, struct ibv_sge sge)
{
	struct ibv_qp *a, *b;
	connected(name, other, &a, &b, cq);
	struct ibv_send_wr wr = {.wr_id = 0x51, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
	post(a, &wr);
	expect_status(IBV_WC_LOC_PROT_ERR);
}

/* The four causes of LOC_PROT_ERR, and one of them at the receiving side. */
static void wrong_memory(void)
{
	struct ibv_sge sge = piece(0, 8), wrong = sge;
	printf("LKEY=0x%08x\nFIRST=0x%lx\n", sge.lkey, (unsigned long)sge.addr);
	wrong.lkey = 0xdead00;
	wrong_element("NOKEY", "NOKEY2", wrong);
	struct ibv_pd *other_pd = ibv_alloc_pd(ctx);
	struct ibv_mr *foreign = ibv_reg_mr(other_pd, memory, 8, 0);
	CLAIM(other_pd && foreign);
	printf("FOREIGN=0x%08x\n", foreign->lkey);
	wrong = sge;
	wrong.lkey = foreign->lkey;
	wrong_element("FOREIGNER", "FOREIGNER2", wrong);
	wrong = sge;
	wrong.addr = 0x10;
	wrong_element("OUTSIDE", "OUTSIDE2", wrong);

	struct ibv_mr *read_only = ibv_reg_mr(pd, memory, 8, 0);
	CLAIM(read_only);
	printf("READONLY=0x%08x\n", read_only->lkey);
	struct ibv_qp *a, *b;
	connected("READER", "READ", &a, &b, cq);
	wrong = sge;
	wrong.lkey = read_only->lkey;
	struct ibv_recv_wr receive = {.wr_id = 0x52, .sg_list = &wrong, .num_sge = 1}, *bad;
	FAILS(ibv_post_recv(b, &receive, &bad), 0);
	struct ibv_send_wr wr = {.wr_id = 0x53, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
	post(a, &wr);
	completion();
	completion();
	CLAIM(ibv_dereg_mr(read_only) == 0);

	printf("OTHERPD=%u\n", other_pd->handle);
	FAILS(ibv_dealloc_pd(other_pd), EBUSY);
	CLAIM(ibv_dereg_mr(foreign) == 0 && ibv_dealloc_pd(other_pd) == 0);
}

/* Forgets that the header of a datagram takes room too; and takes one of two numbers for the other. */
static void no_room_and_no_queue_pair(void)
{
	struct ibv_qp *a = make("GIVER", IBV_QPT_UD, cq), *b = make("NARROW", IBV_QPT_UD, cq);
	init(a);
	init(b);
	connect_to(a, 0);
	connect_to(b, 0);
	struct ibv_ah_attr address = own_address();
	struct ibv_ah *ah = ibv_create_ah(pd, &address);
	CLAIM(ah);
	post_receive(b, 0x54, 0, 8);
	struct ibv_sge sge = piece(0, 8);
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = b->qp_num;
	wr.wr.ud.remote_qkey = 7;
	post(a, &wr);
	/* The receive waits for a datagram that it can hold. */
	completions(1);
	wr.wr.ud.remote_qpn = b->qp_num ^ 0x8000;
	printf("MISSING=0x%06x\n", wr.wr.ud.remote_qpn);
	post(a, &wr);
	completions(1);
	struct ibv_qp *c = make("BEHIND", IBV_QPT_UD, cq);
	init(c);
	connect_to(c, 0);
	post_receive(c, 9, 0, 100);
	wr.wr.ud.remote_qpn = c->qp_num;
	post(a, &wr);
	completions(2);
}

int main(void)
{
	open_device();
	refusals();
	nobody_there();
	no_depth();
	no_receive();
	no_access();
	overrun();
	wrong_memory();
	no_room_and_no_queue_pair();
	datagrams();
	return 0;
}
