/* What is used together is made on one context: each object of a second context of the same device is refused, with
 * EINVAL. Contexts with the same command file share their objects. */
#include "expect.h"

static struct ibv_context *second;
static struct ibv_pd *pd2;

static struct ibv_xrcd *domain_of(struct ibv_context *context)
{
	struct ibv_xrcd_init_attr unnamed = {.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT};
	struct ibv_xrcd *domain = ibv_open_xrcd(context, &unnamed);
	CLAIM(domain);
	return domain;
}

static void queue_pairs(void)
{
	struct ibv_srq_init_attr small = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_cq *cq2 = ibv_create_cq(second, 8, NULL, NULL, 0);
	struct ibv_srq *srq2 = ibv_create_srq(pd2, &small), *srq = ibv_create_srq(pd, &small);
	CLAIM(cq2 && srq2 && srq);
	for (int wrong = 0; wrong <= 3; wrong++) {
		struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
		wants.srq = srq;
		if (wrong == 1)
			wants.send_cq = cq2;
		if (wrong == 2)
			wants.recv_cq = cq2;
		if (wrong == 3)
			wants.srq = srq2;
		struct ibv_qp_init_attr_ex extended = {
			.send_cq = wants.send_cq, .recv_cq = wants.recv_cq, .srq = wants.srq, .cap = wants.cap,
			.qp_type = IBV_QPT_RC, .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd};
		if (wrong) {
			REFUSED(ibv_create_qp(pd, &wants), EINVAL);
			REFUSED(ibv_create_qp_ex(ctx, &extended), EINVAL);
			continue;
		}
		struct ibv_qp *qp = ibv_create_qp(pd, &wants);
		CLAIM(qp);
		FAILS(ibv_destroy_qp(qp), 0);
		extended.pd = pd2;
		REFUSED(ibv_create_qp_ex(ctx, &extended), EINVAL);
	}
	struct ibv_xrcd *xrcd = domain_of(ctx), *xrcd2 = domain_of(second);
	struct ibv_qp_init_attr_ex target = {.qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = xrcd2};
	REFUSED(ibv_create_qp_ex(ctx, &target), EINVAL);
	struct ibv_qp *made = ibv_create_qp_ex(second, &target);
	CLAIM(made);
	struct ibv_qp_open_attr open = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
		.qp_num = made->qp_num,
		.xrcd = xrcd2,
		.qp_type = IBV_QPT_XRC_RECV,
	};
	REFUSED(ibv_open_qp(ctx, &open), EINVAL);
	FAILS(ibv_destroy_qp(made), 0);
	for (int wrong = 0; wrong < 3; wrong++) {
		struct ibv_srq_init_attr_ex shared = {
			.attr = {.max_wr = 4, .max_sge = 1},
			.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
			.srq_type = IBV_SRQT_XRC,
			.pd = wrong == 0 ? pd2 : pd,
			.xrcd = wrong == 1 ? xrcd2 : xrcd,
			.cq = wrong == 2 ? cq2 : cq,
		};
		REFUSED(ibv_create_srq_ex(ctx, &shared), EINVAL);
	}
	FAILS(ibv_close_xrcd(xrcd), 0);
	FAILS(ibv_close_xrcd(xrcd2), 0);
	FAILS(ibv_destroy_srq(srq), 0);
	FAILS(ibv_destroy_srq(srq2), 0);
	FAILS(ibv_destroy_cq(cq2), 0);
}

static void completion_queues(void)
{
	struct ibv_comp_channel *channel2 = ibv_create_comp_channel(second);
	struct ibv_td_init_attr plain = {0};
	struct ibv_td *td2 = ibv_alloc_td(second, &plain);
	CLAIM(channel2 && td2);
	REFUSED(ibv_create_cq(ctx, 8, NULL, channel2, 0), EINVAL);
	struct ibv_cq_init_attr_ex extended = {.cqe = 8, .channel = channel2};
	REFUSED(ibv_create_cq_ex(ctx, &extended), EINVAL);
	struct ibv_parent_domain_init_attr parent = {.pd = pd2, .td = td2};
	struct ibv_pd *parent2 = ibv_alloc_parent_domain(second, &parent);
	CLAIM(parent2);
	extended = (struct ibv_cq_init_attr_ex){.cqe = 8, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD, .parent_domain = parent2};
	REFUSED(ibv_create_cq_ex(ctx, &extended), EINVAL);
	REFUSED(ibv_alloc_parent_domain(ctx, &parent), EINVAL);
	parent.pd = pd;
	REFUSED(ibv_alloc_parent_domain(ctx, &parent), EINVAL);
	FAILS(ibv_dealloc_pd(parent2), 0);
	FAILS(ibv_dealloc_td(td2), 0);
	FAILS(ibv_destroy_comp_channel(channel2), 0);
}

static void regions(void)
{
	struct ibv_alloc_dm_attr wants = {.length = 64};
	struct ibv_dm *dm2 = ibv_alloc_dm(second, &wants);
	CLAIM(dm2);
	REFUSED(ibv_reg_dm_mr(pd, dm2, 0, 64, IBV_ACCESS_ZERO_BASED), EINVAL);
	FAILS(ibv_free_dm(dm2), 0);
	CLAIM(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, pd2, NULL, 0, 0) == -1 && errno == EINVAL);
	CLAIM(mr->pd == pd);
}

/* An imported context is the same file: its objects and the others' are used together. */
static void imported(void)
{
	struct ibv_context *again = ibv_import_device(dup(ctx->cmd_fd));
	CLAIM(again);
	struct ibv_pd *domain = ibv_import_pd(again, pd->handle);
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	CLAIM(domain);
	struct ibv_qp *qp = ibv_create_qp(domain, &wants);
	CLAIM(qp);
	FAILS(ibv_destroy_qp(qp), 0);
	ibv_unimport_pd(domain);
	FAILS(ibv_close_device(again), 0);
}

int main(void)
{
	open_device();
	struct ibv_device **list = ibv_get_device_list(NULL);
	CLAIM((second = ibv_open_device(list[0])) && (pd2 = ibv_alloc_pd(second)));
	ibv_free_device_list(list);
	queue_pairs();
	completion_queues();
	regions();
	imported();
	/* Nothing of this one hangs on the other. */
	FAILS(ibv_dealloc_pd(pd2), 0);
	FAILS(ibv_close_device(second), 0);
	FAILS(ibv_close_device(ctx), 0);
	return 0;
}
