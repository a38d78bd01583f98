/* Protection domains, parent domains, thread domains: what may be used together, and the order of destruction. */
#include "expect.h"

static void *never(struct ibv_pd *domain, void *context, size_t size, size_t alignment, uint64_t type)
{
	(void)domain, (void)context, (void)size, (void)alignment, (void)type;
	return IBV_ALLOCATOR_USE_DEFAULT;
}

static void never_free(struct ibv_pd *domain, void *context, void *at, uint64_t type)
{
	(void)domain, (void)context, (void)at, (void)type;
}

static void parent_domain_rules(void)
{
	struct ibv_td_init_attr td_init = {.comp_mask = 1};
	REFUSED(ibv_alloc_td(ctx, &td_init), EOPNOTSUPP);
	REFUSED(ibv_alloc_td(ctx, NULL), EINVAL);
	td_init.comp_mask = 0;
	struct ibv_td *td = ibv_alloc_td(ctx, &td_init);
	CLAIM(td && td->context == ctx);
	struct ibv_parent_domain_init_attr init = {.td = td};
	REFUSED(ibv_alloc_parent_domain(ctx, NULL), EINVAL);
	REFUSED(ibv_alloc_parent_domain(ctx, &init), EINVAL);
	init.pd = pd;
	/* A bit that is not known, and one that rdma-core 65 has added (unprotected memory in confidential guests is allowed). */
	init.comp_mask = 1 << 3;
	REFUSED(ibv_alloc_parent_domain(ctx, &init), EOPNOTSUPP);
	init.comp_mask = 1 << 2;
	struct ibv_pd *unprotected = ibv_alloc_parent_domain(ctx, &init);
	CLAIM(unprotected);
	FAILS(ibv_dealloc_pd(unprotected), 0);
	init.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
	REFUSED(ibv_alloc_parent_domain(ctx, &init), EINVAL);
	init.alloc = never;
	init.free = never_free;
	struct ibv_pd *parent = ibv_alloc_parent_domain(ctx, &init);
	CLAIM(parent && parent != pd && parent->context == ctx);
	init.pd = parent;
	REFUSED(ibv_alloc_parent_domain(ctx, &init), EINVAL);
	FAILS(ibv_dealloc_td(td), EBUSY);
	FAILS(ibv_dealloc_pd(parent), 0);
	FAILS(ibv_dealloc_td(td), 0);
}

/* A parent domain stands for its protection domain wherever one is asked for. */
static void parent_domain_use(void)
{
	struct ibv_pd *base = ibv_alloc_pd(ctx);
	struct ibv_parent_domain_init_attr wanted = {.pd = base};
	struct ibv_pd *parent = ibv_alloc_parent_domain(ctx, &wanted);
	CLAIM(base && parent);
	FAILS(ibv_dealloc_pd(base), EBUSY);

	struct ibv_mr *region = ibv_reg_mr(parent, memory, sizeof(memory), RIGHTS);
	CLAIM(region && region->pd == parent);
	FAILS(ibv_dealloc_pd(parent), EBUSY);
	struct ibv_mw *mw = ibv_alloc_mw(parent, IBV_MW_TYPE_1);
	CLAIM(mw && mw->pd == parent);
	struct ibv_ah_attr address = own_address();
	struct ibv_ah *ah = ibv_create_ah(parent, &address);
	CLAIM(ah && ah->pd == parent);
	struct ibv_srq_init_attr srq_init = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(parent, &srq_init);
	CLAIM(srq && srq->pd == parent);
	struct ibv_qp_init_attr qp_init = qp_wants(IBV_QPT_UD);
	struct ibv_qp *qp = ibv_create_qp(base, &qp_init);
	CLAIM(qp && qp->pd == base);
	struct ibv_cq_init_attr_ex cq_init = {.cqe = 4, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD, .parent_domain = base};
	REFUSED(ibv_create_cq_ex(ctx, &cq_init), EINVAL);
	cq_init.parent_domain = NULL;
	REFUSED(ibv_create_cq_ex(ctx, &cq_init), EINVAL);
	cq_init.parent_domain = parent;
	struct ibv_cq_ex *own_cq = ibv_create_cq_ex(ctx, &cq_init);
	CLAIM(own_cq);

	/* A queue pair of the one takes memory and addresses of the other: they are the same domain. */
	struct ibv_sge sge = {.addr = (uintptr_t)memory, .length = 8, .lkey = region->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
	init(qp);
	connect_to(qp, qp->qp_num);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = qp->qp_num;
	wr.wr.ud.remote_qkey = 7;
	post(qp, &wr);
	completions(1);


	/* Every object keeps the parent domain. */
	FAILS(ibv_dereg_mr(region), 0);
	FAILS(ibv_dealloc_pd(parent), EBUSY);
	FAILS(ibv_dealloc_mw(mw), 0);
	FAILS(ibv_dealloc_pd(parent), EBUSY);
	FAILS(ibv_destroy_ah(ah), 0);
	FAILS(ibv_dealloc_pd(parent), EBUSY);
	FAILS(ibv_destroy_srq(srq), 0);
	FAILS(ibv_dealloc_pd(parent), EBUSY);
	FAILS(ibv_destroy_cq(ibv_cq_ex_to_cq(own_cq)), 0);
	/* The queue pair is of the base. */
	FAILS(ibv_dealloc_pd(parent), 0);
	FAILS(ibv_dealloc_pd(base), EBUSY);
	FAILS(ibv_destroy_qp(qp), 0);
	FAILS(ibv_dealloc_pd(base), 0);
}

static void other_domains_are_refused(void)
{
	struct ibv_pd *other = ibv_alloc_pd(ctx);
	struct ibv_mr *foreign = ibv_reg_mr(other, memory, sizeof(memory), RIGHTS | IBV_ACCESS_MW_BIND);
	struct ibv_qp *b, *a = pair(IBV_QPT_RC, &b);
	CLAIM(other && foreign);
	struct ibv_sge theirs = {.addr = (uintptr_t)memory, .length = 8, .lkey = foreign->lkey};
	/* Local and remote keys. */
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, theirs, (uintptr_t)memory, mr->rkey), IBV_WC_LOC_PROT_ERR);
	reconnect(a, b);
	FAILS(outcome(a, IBV_WR_RDMA_READ, theirs, (uintptr_t)memory, mr->rkey), IBV_WC_LOC_PROT_ERR);
	reconnect(a, b);
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, piece(0, 8), (uintptr_t)memory, foreign->rkey), IBV_WC_REM_ACCESS_ERR);
	reconnect(a, b);
	FAILS(outcome(a, IBV_WR_RDMA_READ, piece(0, 8), (uintptr_t)memory, foreign->rkey), IBV_WC_REM_ACCESS_ERR);
	reconnect(a, b);
	FAILS(outcome(a, IBV_WR_ATOMIC_FETCH_AND_ADD, piece(0, 8), (uintptr_t)memory, foreign->rkey), IBV_WC_REM_ACCESS_ERR);
	reconnect(a, b);
	/* A receive. */
	struct ibv_recv_wr receive = {.wr_id = 1, .sg_list = &theirs, .num_sge = 1}, *bad_receive;
	struct ibv_sge mine = piece(0, 8);
	struct ibv_send_wr send = {.wr_id = 2, .sg_list = &mine, .num_sge = 1, .opcode = IBV_WR_SEND};
	FAILS(ibv_post_recv(b, &receive, &bad_receive), 0);
	post(a, &send);
	for (int i = 0; i < 2; i++) {
		struct ibv_wc wc = completion();
		CLAIM(wc.status == (wc.wr_id == 1 ? IBV_WC_LOC_PROT_ERR : IBV_WC_REM_OP_ERR));
	}
	reconnect(a, b);
	/* A shared receive queue scatters into memory of its own domain, not of the queue pair's. */
	struct ibv_srq_init_attr srq_init = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(other, &srq_init);
	struct ibv_qp_init_attr qp_init = qp_wants(IBV_QPT_RC);
	qp_init.srq = srq;
	struct ibv_qp *sharing = ibv_create_qp(pd, &qp_init);
	CLAIM(srq && sharing);
	init(sharing);
	connect_to(sharing, sharing->qp_num);
	theirs.addr += 64;
	FAILS(ibv_post_srq_recv(srq, &receive, &bad_receive), 0);
	memory[0] = 77;
	memory[8] = 0;
	send.send_flags = IBV_SEND_SIGNALED;
	post(sharing, &send);
	completions(2);
	CLAIM(memory[8] == 77);
	receive.sg_list = &mine;
	FAILS(ibv_post_srq_recv(srq, &receive, &bad_receive), 0);
	post(sharing, &send);
	CLAIM(completion().status != IBV_WC_SUCCESS && completion().status != IBV_WC_SUCCESS);
	/* Windows. */
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1), *foreign_mw = ibv_alloc_mw(other, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = {
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = {.mr = foreign, .addr = (uintptr_t)memory, .length = 64, .mw_access_flags = IBV_ACCESS_REMOTE_WRITE},
	};
	CLAIM(mw && foreign_mw);
	FAILS(ibv_bind_mw(b, mw, &bind), EPERM);
	bind.bind_info.mr = mr;
	FAILS(ibv_bind_mw(b, foreign_mw, &bind), EPERM);
	/* Window and region agree, and the queue pair is of another domain: the completion says so. */
	bind.bind_info.mr = foreign;
	uint32_t unbound = foreign_mw->rkey;
	FAILS(ibv_bind_mw(b, foreign_mw, &bind), 0);
	FAILS(completion().status, IBV_WC_MW_BIND_ERR);
	CLAIM(foreign_mw->rkey == unbound);
	reconnect(a, b);
	bind.bind_info.mr = mr;
	struct ibv_mw *second = ibv_alloc_mw(other, IBV_MW_TYPE_2);
	struct ibv_send_wr bind_wr = {.opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED};
	bind_wr.bind_mw.mw = second;
	bind_wr.bind_mw.rkey = ibv_inc_rkey(second->rkey);
	bind_wr.bind_mw.bind_info = bind.bind_info;
	unbound = second->rkey;
	post(b, &bind_wr);
	FAILS(completion().status, IBV_WC_MW_BIND_ERR);
	CLAIM(second->rkey == unbound);
	reconnect(a, b);
	/* Destruction, in an order that is not the one of creation. */
	FAILS(ibv_dealloc_pd(other), EBUSY);
	FAILS(ibv_destroy_srq(srq), EBUSY);
	FAILS(ibv_destroy_qp(sharing), 0);
	FAILS(ibv_destroy_srq(srq), 0);
	FAILS(ibv_dealloc_pd(other), EBUSY);
	FAILS(ibv_dereg_mr(foreign), 0);
	FAILS(ibv_dealloc_pd(other), EBUSY);
	FAILS(ibv_dealloc_mw(second), 0);
	FAILS(ibv_dealloc_mw(foreign_mw), 0);
	FAILS(ibv_dealloc_pd(other), 0);
	FAILS(ibv_dealloc_mw(mw), 0);
	FAILS(ibv_destroy_cq(cq), EBUSY);
	FAILS(ibv_destroy_qp(a), 0);
	FAILS(ibv_destroy_cq(cq), EBUSY);
	FAILS(ibv_destroy_qp(b), 0);
	FAILS(ibv_destroy_comp_channel(channel), EBUSY);
	FAILS(ibv_destroy_cq(cq), 0);
	FAILS(ibv_destroy_comp_channel(channel), 0);
	FAILS(ibv_dealloc_pd(pd), EBUSY);
	FAILS(ibv_dereg_mr(mr), 0);
	FAILS(ibv_dealloc_pd(pd), 0);
}

int main(void)
{
	open_device();
	parent_domain_rules();
	parent_domain_use();
	other_domains_are_refused();
	FAILS(ibv_close_device(ctx), 0);
	return 0;
}
