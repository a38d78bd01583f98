/* Arguments that cannot be, through the data path as well: each gets its errno, nothing crashes, and in the end everything
 * can be destroyed, so that nothing was left behind. */
#include "expect.h"

static struct ibv_qp *connected(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr wants = qp_wants(type);
	struct ibv_qp *qp = ibv_create_qp(pd, &wants);
	CLAIM(qp);
	init(qp);
	connect_to(qp, qp->qp_num);
	return qp;
}

static void null_handles(void)
{
	struct ibv_send_wr send = {0}, *bad_send;
	struct ibv_recv_wr receive = {0}, *bad_receive;
	struct ibv_mw_bind bind = {0};
	struct ibv_wc wc;
	struct ibv_srq_init_attr_ex srq = {0};
	struct ibv_qp_init_attr_ex qp = {0};
	struct ibv_xrcd_init_attr xrcd = {0};
	FAILS(ctx->ops.post_send(NULL, &send, &bad_send), EINVAL);
	FAILS(ctx->ops.post_recv(NULL, &receive, &bad_receive), EINVAL);
	FAILS(ctx->ops.post_srq_recv(NULL, &receive, &bad_receive), EINVAL);
	FAILS(ctx->ops.req_notify_cq(NULL, 0), EINVAL);
	CLAIM(ctx->ops.poll_cq(NULL, 1, &wc) == -EINVAL);
	FAILS(ctx->ops.bind_mw(NULL, NULL, &bind), EINVAL);
	FAILS(ctx->ops.dealloc_mw(NULL), EINVAL);
	CLAIM((errno = 0, ctx->ops.alloc_mw(NULL, IBV_MW_TYPE_1)) == NULL && errno == EINVAL);
	FAILS(ibv_detach_mcast(NULL, &own_gid, 0), EINVAL);
	FAILS(ibv_query_srq(NULL, NULL), EINVAL);
	REFUSED(ibv_create_srq_ex(ctx, &srq), EINVAL);
	REFUSED(ibv_create_qp_ex(ctx, &qp), EINVAL);
	REFUSED(ibv_open_xrcd(ctx, &xrcd), EINVAL);
	REFUSED((ibv_reg_mr)(pd, NULL, 8, IBV_ACCESS_LOCAL_WRITE), EFAULT);
}

/* Ranges that wrap, that are not there, and rights that contradict each other or have no meaning. */
static void regions(void)
{
	void *end = (void *)(UINTPTR_MAX - 4);
	REFUSED((ibv_reg_mr)(pd, end, 16, RIGHTS), EINVAL);
	REFUSED((ibv_reg_mr)(pd, memory, SIZE_MAX, RIGHTS), EINVAL);
	REFUSED((ibv_reg_mr)(pd, memory, SIZE_MAX - 4096, RIGHTS), EINVAL);
	REFUSED(ibv_reg_mr_iova2(pd, memory, 4096, UINT64_MAX - 100, RIGHTS), EINVAL);
	REFUSED((ibv_reg_mr)(pd, (void *)64, 8, RIGHTS), EFAULT);
	REFUSED((ibv_reg_mr)(pd, memory, 8, IBV_ACCESS_REMOTE_ATOMIC), EINVAL);
	REFUSED((ibv_reg_mr)(pd, memory, 8, 1 << 18), EINVAL);
	/* Remote addresses elsewhere in a page than the memory, and persistence that no device has. */
	REFUSED(ibv_reg_mr_iova(pd, memory, 8, (uintptr_t)memory + 8, RIGHTS), EINVAL);
	REFUSED(ibv_reg_mr_iova2(pd, memory, 8, (uintptr_t)memory ^ 16, RIGHTS), EINVAL);
	REFUSED((ibv_reg_mr)(pd, memory, 8, IBV_ACCESS_LOCAL_WRITE | 1 << 9), EINVAL);
	CLAIM(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE | 1 << 9) != 0);
	static const char constant[8192] = {1};
	REFUSED((ibv_reg_mr)(pd, (void *)constant, sizeof(constant), RIGHTS), EFAULT);
	struct ibv_mr *read_only = (ibv_reg_mr)(pd, (void *)constant, sizeof(constant), IBV_ACCESS_REMOTE_READ);
	CLAIM(read_only);
	FAILS(ibv_dereg_mr(read_only), 0);
}

/* Send requests that are refused at once, each of them alone and behind a good one. */
static void send_requests(void)
{
	struct ibv_qp *qp = connected(IBV_QPT_RC);
	struct ibv_sge sge = piece(0, 8), many[8] = {sge, sge, sge, sge, sge, sge, sge, sge};
	struct ibv_sge huge[2] = {{.addr = sge.addr, .length = 1u << 31, .lkey = sge.lkey}, {.addr = sge.addr, .length = 1, .lkey = sge.lkey}};
	struct ibv_send_wr good = {.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
	good.wr.rdma.remote_addr = (uintptr_t)&memory[100];
	good.wr.rdma.rkey = mr->rkey;
	for (int i = 0; i < 13; i++) {
		struct ibv_send_wr wrong = good, *bad = NULL;
		switch (i) {
		case 0: wrong.opcode = 99; break;
		case 1: wrong.opcode = (enum ibv_wr_opcode)-1; break;
		case 2: wrong.num_sge = -1; break;
		case 3: wrong.num_sge = INT32_MIN; break;
		case 4: wrong.sg_list = many; wrong.num_sge = 8; break;
		case 5: wrong.num_sge = INT32_MAX; break;
		case 6: wrong.sg_list = NULL; break;
		case 7: wrong.sg_list = huge; wrong.num_sge = 2; break;
		case 8: wrong.opcode = IBV_WR_BIND_MW; wrong.bind_mw.mw = NULL; break;
		case 9: wrong.opcode = IBV_WR_RDMA_READ; wrong.send_flags |= IBV_SEND_INLINE; break;
		case 10: wrong.sg_list = huge; wrong.send_flags |= IBV_SEND_INLINE; break;
		case 11: wrong.opcode = IBV_WR_TSO; break;
		case 12: wrong.opcode = IBV_WR_DRIVER1; break;
		}
		struct ibv_send_wr first = good;
		first.next = &wrong;
		FAILS(ibv_post_send(qp, &wrong, &bad), EINVAL);
		CLAIM(bad == &wrong);
		FAILS(ibv_post_send(qp, &first, &bad), EINVAL);
		CLAIM(bad == &wrong);
		FAILS(ibv_post_send(qp, &wrong, NULL), EINVAL);
		completions(1);
	}
	/* Flags without meaning are overlooked, and so is a fence where there is nothing to wait for. */
	struct ibv_send_wr *bad;
	good.send_flags |= 1 << 20 | IBV_SEND_FENCE;
	FAILS(ibv_post_send(qp, &good, &bad), 0);
	completions(1);
	CLAIM(qp->state == IBV_QPS_RTS);
	FAILS(ibv_destroy_qp(qp), 0);

	/* A datagram to nowhere, and operations that UD does not have. */
	qp = connected(IBV_QPT_UD);
	good.send_flags = IBV_SEND_SIGNALED;
	good.wr.ud.ah = NULL;
	good.opcode = IBV_WR_SEND;
	FAILS(ibv_post_send(qp, &good, &bad), EINVAL);
	FAILS(ibv_destroy_qp(qp), 0);
}

/* Lists that do not end: a call stops at the first request that cannot be, reads nothing that "next" of it names, and goes round
 * a ring until the queue is full. */
static void lists_without_an_end(void)
{
	struct ibv_qp *qp = connected(IBV_QPT_RC);
	_Alignas(8) unsigned char garbage[256];
	struct ibv_sge sge = piece(0, 8);
	struct ibv_send_wr sends[12], *bad_send = NULL;
	memset(garbage, 0x5a, sizeof(garbage));
	for (int i = 0; i < 12; i++) {
		sends[i] = (struct ibv_send_wr){.wr_id = i, .next = &sends[i + 1], .sg_list = &sge, .num_sge = 1,
						.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
		sends[i].wr.rdma.remote_addr = (uintptr_t)&memory[100];
		sends[i].wr.rdma.rkey = mr->rkey;
	}
	for (int good = 1; good < 12; good += 5) {
		struct ibv_send_wr *last = &sends[good - 1];
		last->next = (struct ibv_send_wr *)garbage;
		FAILS(ibv_post_send(qp, sends, &bad_send), EINVAL);
		CLAIM((void *)bad_send == garbage);
		completions(good);
		/* The same behind one that is inline, and of a number of elements that no list has. */
		last->send_flags |= IBV_SEND_INLINE;
		FAILS(ibv_post_send(qp, sends, &bad_send), EINVAL);
		completions(good);
		last->send_flags = IBV_SEND_SIGNALED;
		last->next = &sends[good];
		sends[good].num_sge = 1000;
		for (int is_inline = 0; is_inline < 2; is_inline++) {
			sends[good].send_flags = IBV_SEND_SIGNALED | (is_inline ? IBV_SEND_INLINE : 0);
			FAILS(ibv_post_send(qp, sends, &bad_send), EINVAL);
			CLAIM(bad_send == &sends[good]);
			completions(good);
		}
		sends[good].num_sge = 1;
		sends[good].send_flags = IBV_SEND_SIGNALED;
	}
	/* From the third one on a ring; the queue has room for 20. */
	sends[6].next = &sends[2];
	FAILS(ibv_post_send(qp, sends, &bad_send), ENOMEM);
	CLAIM(bad_send == &sends[2 + (20 - 2) % 5]);
	completions(20);
	FAILS(ibv_destroy_qp(qp), 0);

	struct ibv_recv_wr receives[3], *bad = NULL;
	for (int i = 0; i < 3; i++)
		receives[i] = (struct ibv_recv_wr){.wr_id = i, .next = &receives[(i + 1) % 3], .sg_list = &sge, .num_sge = 1};
	struct ibv_srq_init_attr few = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(pd, &few);
	CLAIM(srq);
	struct ibv_srq_attr has;
	FAILS(ibv_query_srq(srq, &has), 0);
	FAILS(ibv_post_srq_recv(srq, receives, &bad), ENOMEM);
	CLAIM(bad == &receives[has.max_wr % 3]);
	FAILS(ibv_destroy_srq(srq), 0);
	struct ibv_cq *own = ibv_create_cq(ctx, 32, NULL, NULL, 0);
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	wants.send_cq = wants.recv_cq = own;
	qp = ibv_create_qp(pd, &wants);
	CLAIM(own && qp);
	init(qp);
	FAILS(ibv_post_recv(qp, receives, &bad), ENOMEM);
	CLAIM(bad == &receives[20 % 3]);
	/* Those of a queue pair in ERR are flushed at once, and leave room. */
	struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
	FAILS(ibv_modify_qp(qp, &error, IBV_QP_STATE), 0);
	FAILS(ibv_post_recv(qp, receives, &bad), ENOMEM);
	FAILS(ibv_destroy_qp(qp), 0);
	FAILS(ibv_destroy_cq(own), 0);
}

/* Send requests with faults that adapters find when they execute them: each ends as its completion, in its turn. */
static void faulty_send_requests(void)
{
	struct {
		enum ibv_qp_type type;
		enum ibv_wr_opcode opcode;
		uint32_t length;
		unsigned offset;
		enum ibv_wc_status status;
	} cases[] = {
		{IBV_QPT_RC, IBV_WR_ATOMIC_FETCH_AND_ADD, 4, 0, IBV_WC_LOC_LEN_ERR},
		{IBV_QPT_RC, IBV_WR_ATOMIC_FETCH_AND_ADD, 9, 0, IBV_WC_LOC_LEN_ERR},
		{IBV_QPT_RC, IBV_WR_ATOMIC_CMP_AND_SWP, 16, 0, IBV_WC_LOC_LEN_ERR},
		{IBV_QPT_RC, IBV_WR_ATOMIC_CMP_AND_SWP, 8, 4, IBV_WC_REM_INV_REQ_ERR},
		{IBV_QPT_RC, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 1, IBV_WC_REM_INV_REQ_ERR},
		{IBV_QPT_UC, IBV_WR_RDMA_READ, 8, 0, IBV_WC_LOC_QP_OP_ERR},
		{IBV_QPT_UC, IBV_WR_SEND_WITH_INV, 8, 0, IBV_WC_LOC_QP_OP_ERR},
		{IBV_QPT_UD, IBV_WR_RDMA_READ, 8, 0, IBV_WC_LOC_QP_OP_ERR},
		{IBV_QPT_UD, IBV_WR_RDMA_WRITE, 8, 0, IBV_WC_LOC_QP_OP_ERR},
		{IBV_QPT_UD, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 0, IBV_WC_LOC_QP_OP_ERR},
		{IBV_QPT_UD, IBV_WR_LOCAL_INV, 8, 0, IBV_WC_LOC_QP_OP_ERR},
	};
	memory[0] = 1;
	memory[100] = 2;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct ibv_qp *peer, *qp = pair(cases[i].type, &peer);
		struct ibv_sge sge = piece(0, cases[i].length);
		struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = cases[i].opcode}, *bad;
		if (wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
			wr.wr.atomic.remote_addr = (uintptr_t)&memory[100] + cases[i].offset;
			wr.wr.atomic.rkey = mr->rkey;
		} else {
			/* In a UD request these bytes are no address handle, and must not be taken for one. */
			wr.wr.rdma.remote_addr = (uintptr_t)&memory[100];
			wr.wr.rdma.rkey = mr->rkey;
		}
		FAILS(ibv_post_send(qp, &wr, &bad), 0);
		struct ibv_wc wc = completion();
		CLAIM(wc.wr_id == 1 && wc.qp_num == qp->qp_num);
		FAILS(wc.status, cases[i].status);
		CLAIM(memory[0] == 1 && memory[100] == 2);
		FAILS(ibv_post_send(qp, &wr, &bad), 0);
		FAILS(completion().status, IBV_WC_WR_FLUSH_ERR);
		FAILS(ibv_destroy_qp(qp), 0);
		FAILS(ibv_destroy_qp(peer), 0);
	}
}

/* Address vectors that lead nowhere. */
static void addresses(void)
{
	union ibv_gid nothing = {{0}}, ipv6 = {.raw = {0x20, 1, 0xd, 0xb8}};
	for (int i = 0; i < 7; i++) {
		struct ibv_ah_attr wrong = own_address();
		switch (i) {
		case 0: wrong.is_global = 0; break;
		case 1: wrong.port_num = 0; break;
		case 2: wrong.port_num = 2; break;
		case 3: wrong.grh.sgid_index = 200; break;
		case 4: wrong.grh.dgid = nothing; break;
		case 5: wrong.grh.dgid = ipv6; break;
		case 6: wrong.grh.sgid_index = 255; break;
		}
		errno = 0;
		int is_empty = i == 3 || i == 6;
		CLAIM(ibv_create_ah(pd, &wrong) == NULL);
		CLAIM(is_empty ? errno == ENODATA : errno == EINVAL || errno == EHOSTUNREACH);
	}
}

/* Masks and states without meaning. */
static void masks(void)
{
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	struct ibv_qp *qp = ibv_create_qp(pd, &wants);
	struct ibv_qp_attr attr = {.qp_state = 77};
	CLAIM(qp);
	FAILS(ibv_modify_qp(qp, NULL, IBV_QP_STATE), EINVAL);
	FAILS(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
	FAILS(ibv_modify_qp(qp, &attr, 0), 0);
	FAILS(ibv_modify_qp(qp, &attr, -1), EOPNOTSUPP);
	FAILS(ibv_modify_qp(qp, &attr, 1 << 22), EOPNOTSUPP);
	FAILS(ibv_query_qp(qp, NULL, 0, &wants), EINVAL);
	FAILS(ibv_query_qp(qp, &attr, 0, NULL), EINVAL);
	FAILS(ibv_query_qp(qp, &attr, -1 & ~IBV_QP_RATE_LIMIT, &wants), 0);
	CLAIM(attr.qp_state == IBV_QPS_RESET);
	FAILS(ibv_destroy_qp(qp), 0);
	struct ibv_qp_init_attr_ex extended = {.qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq, .pd = pd};
	extended.comp_mask = IBV_QP_INIT_ATTR_PD | 1 << 30;
	REFUSED(ibv_create_qp_ex(ctx, &extended), EOPNOTSUPP);
	FAILS(ibv_resize_cq(cq, 0), EINVAL);
	FAILS(ibv_resize_cq(cq, -5), EINVAL);
	FAILS(ibv_resize_cq(cq, INT32_MAX), EINVAL);
	REFUSED(ibv_create_cq(ctx, INT32_MAX, NULL, NULL, 0), EINVAL);
	REFUSED(ibv_create_cq(ctx, 8, NULL, NULL, -1), EINVAL);
}

/* Objects of one domain are not for another. */
static void foreign_domains(void)
{
	struct ibv_pd *other = ibv_alloc_pd(ctx);
	struct ibv_mr *foreign = (ibv_reg_mr)(other, memory, sizeof(memory), RIGHTS | IBV_ACCESS_MW_BIND);
	struct ibv_qp *qp = connected(IBV_QPT_RC);
	struct ibv_sge sge = {.addr = (uintptr_t)memory, .length = 8, .lkey = foreign->lkey};
	struct ibv_send_wr *bad, wr = {.wr_id = 4, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
	CLAIM(other && foreign);
	/* A local key is looked at when the request is executed. */
	FAILS(ibv_post_send(qp, &wr, &bad), 0);
	struct ibv_wc wc = completion();
	CLAIM(wc.wr_id == 4 && wc.status == IBV_WC_LOC_PROT_ERR);
	FAILS(ibv_destroy_qp(qp), 0);
	/* A remote key of another domain than the responder's. */
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	struct ibv_qp *responder = ibv_create_qp(pd, &wants);
	CLAIM(responder && (qp = ibv_create_qp(pd, &wants)));
	init(qp);
	init(responder);
	connect_to(qp, responder->qp_num);
	connect_to(responder, qp->qp_num);
	sge.lkey = mr->lkey;
	wr.opcode = IBV_WR_RDMA_WRITE;
	wr.wr.rdma.remote_addr = (uintptr_t)&memory[100];
	wr.wr.rdma.rkey = foreign->rkey;
	FAILS(ibv_post_send(qp, &wr, &bad), 0);
	CLAIM(completion().status == IBV_WC_REM_ACCESS_ERR);
	FAILS(ibv_destroy_qp(qp), 0);
	FAILS(ibv_destroy_qp(responder), 0);
	FAILS(ibv_dealloc_pd(other), EBUSY);
	FAILS(ibv_dereg_mr(foreign), 0);
	FAILS(ibv_dealloc_pd(other), 0);
}

int main(void)
{
	open_device();
	null_handles();
	regions();
	send_requests();
	lists_without_an_end();
	faulty_send_requests();
	addresses();
	masks();
	foreign_domains();
	/* Each of these would be EBUSY if anything had been left behind. */
	FAILS(ibv_dereg_mr(mr), 0);
	FAILS(ibv_destroy_cq(cq), 0);
	FAILS(ibv_destroy_comp_channel(channel), 0);
	FAILS(ibv_dealloc_pd(pd), 0);
	FAILS(ibv_close_device(ctx), 0);
	return 0;
}
