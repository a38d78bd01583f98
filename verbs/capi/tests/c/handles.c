/* Handles and contexts in structures are looked at, and what was destroyed is known to be gone. */
#include "expect.h"

#define GARBLED 0xdeadbeef
/* A call with another handle in the structure, which is put back. */
#define WITH_HANDLE(object, call)                                                                            \
	do {                                                                                                 \
		uint32_t kept = (object)->handle;                                                            \
		(object)->handle ^= GARBLED;                                                                 \
		errno = 0;                                                                                   \
		FAILS(call, ENOENT);                                                                         \
		CLAIM(errno == ENOENT);                                                                      \
		(object)->handle = kept;                                                                     \
	} while (0)
#define MAKES_NOTHING(object, call)                                                                          \
	do {                                                                                                 \
		uint32_t kept = (object)->handle;                                                            \
		(object)->handle ^= GARBLED;                                                                 \
		REFUSED(call, ENOENT);                                                                       \
		(object)->handle = kept;                                                                     \
	} while (0)
/* Destroys an object with another handle, with another context, as it is, and again. */
#define DESTROYED_ONCE(object, destroy)                                                                      \
	do {                                                                                                 \
		WITH_HANDLE(object, destroy(object));                                                        \
		(object)->context = another;                                                                 \
		FAILS(destroy(object), ENOENT);                                                              \
		(object)->context = ctx;                                                                     \
		FAILS(destroy(object), 0);                                                                   \
		FAILS(destroy(object), ENOENT);                                                              \
		FAILS(destroy(object), ENOENT);                                                              \
	} while (0)

static struct ibv_context *another;

static void garbled_makers(struct ibv_srq *srq, struct ibv_cq *other_cq)
{
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	struct ibv_srq_init_attr srq_wants = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_ah_attr address = own_address();
	MAKES_NOTHING(pd, ibv_create_qp(pd, &wants));
	MAKES_NOTHING(pd, (ibv_reg_mr)(pd, memory, 8, RIGHTS));
	MAKES_NOTHING(pd, ibv_alloc_mw(pd, IBV_MW_TYPE_1));
	MAKES_NOTHING(pd, ibv_create_srq(pd, &srq_wants));
	MAKES_NOTHING(pd, ibv_create_ah(pd, &address));
	wants.send_cq = other_cq;
	MAKES_NOTHING(other_cq, ibv_create_qp(pd, &wants));
	wants.send_cq = cq;
	wants.recv_cq = other_cq;
	MAKES_NOTHING(other_cq, ibv_create_qp(pd, &wants));
	wants.recv_cq = cq;
	wants.srq = srq;
	MAKES_NOTHING(srq, ibv_create_qp(pd, &wants));
}

static void garbled_uses(struct ibv_qp *qp, struct ibv_srq *srq)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	struct ibv_qp_init_attr got;
	struct ibv_srq_attr srq_attr = {0};
	WITH_HANDLE(qp, ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	WITH_HANDLE(qp, ibv_query_qp(qp, &attr, IBV_QP_STATE, &got));
	WITH_HANDLE(cq, ibv_req_notify_cq(cq, 0));
	WITH_HANDLE(cq, ibv_resize_cq(cq, 100));
	WITH_HANDLE(srq, ibv_query_srq(srq, &srq_attr));
	WITH_HANDLE(srq, ibv_modify_srq(srq, &srq_attr, IBV_SRQ_LIMIT));
	FAILS(ibv_query_qp(qp, &attr, IBV_QP_STATE, &got), 0);
	CLAIM(attr.qp_state == IBV_QPS_RESET);
}

int main(void)
{
	open_device();
	another = ibv_open_device(ctx->device);
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	struct ibv_srq_init_attr srq_wants = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_ah_attr address = own_address();
	struct ibv_cq_init_attr_ex ex = {.cqe = 4};
	struct ibv_qp *qp = ibv_create_qp(pd, &wants);
	struct ibv_srq *srq = ibv_create_srq(pd, &srq_wants);
	struct ibv_ah *ah = ibv_create_ah(pd, &address);
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	struct ibv_cq *plain = ibv_create_cq(ctx, 4, NULL, NULL, 0);
	struct ibv_cq_ex *extended = ibv_create_cq_ex(ctx, &ex);
	CLAIM(another && qp && srq && ah && mw && plain && extended);
	garbled_makers(srq, plain);
	garbled_uses(qp, srq);
	/* An object of another kind is none of the wanted one. */
	FAILS(ibv_destroy_cq((struct ibv_cq *)qp), ENOENT);
	FAILS(ibv_dereg_mr((struct ibv_mr *)pd), ENOENT);
	/* Nor is memory that was never an object. */
	FAILS(ibv_destroy_qp((struct ibv_qp *)memory), ENOENT);

	DESTROYED_ONCE(qp, ibv_destroy_qp);
	DESTROYED_ONCE(srq, ibv_destroy_srq);
	DESTROYED_ONCE(ah, ibv_destroy_ah);
	DESTROYED_ONCE(mw, ibv_dealloc_mw);
	DESTROYED_ONCE(plain, ibv_destroy_cq);
	DESTROYED_ONCE(ibv_cq_ex_to_cq(extended), ibv_destroy_cq);
	DESTROYED_ONCE(mr, ibv_dereg_mr);
	FAILS(ibv_destroy_cq(cq), 0);
	FAILS(ibv_destroy_comp_channel(channel), 0);
	FAILS(ibv_destroy_comp_channel(channel), ENOENT);
	DESTROYED_ONCE(pd, ibv_dealloc_pd);

	/* What a closed context had is gone with it, and so is it. */
	struct ibv_pd *left = ibv_alloc_pd(another);
	CLAIM(left);
	FAILS(ibv_close_device(another), 0);
	FAILS(ibv_dealloc_pd(left), ENOENT);
	FAILS(ibv_close_device(another), ENOENT);
	REFUSED(ibv_alloc_pd(another), ENOENT);
	FAILS(ibv_close_device(ctx), 0);
	return 0;
}
