/* Each limit that ibv_query_device reports is the number of objects that can be made, and the next one is ENOMEM. */
#include "expect.h"

#define MOST 300
static void *made[MOST];

#define FILLS(limit, make, destroy, type)                                                                    \
	do {                                                                                                 \
		int count = 0;                                                                               \
		while (count < MOST && (errno = 0, made[count] = (make)))                                    \
			count++;                                                                             \
		if (count != (limit) || errno != ENOMEM)                                                     \
			fprintf(stderr, "%s: %d made, errno %d, the limit is %d\n", #make, count, errno, (int)(limit)); \
		CLAIM(count == (limit) && errno == ENOMEM);                                                  \
		while (count--)                                                                              \
			FAILS(destroy((type)made[count]), 0);                                                \
	} while (0)

int main(void)
{
	struct ibv_device_attr limits;
	int count;
	struct ibv_device **list = ibv_get_device_list(&count);
	CLAIM(list && (ctx = ibv_open_device(list[0])));
	ibv_free_device_list(list);
	FAILS(ibv_query_device(ctx, &limits), 0);
	FAILS(ibv_query_gid(ctx, 1, 0, &own_gid), 0);
	struct ibv_ah_attr address = own_address();
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 1, .max_sge = 1}};
	FILLS(limits.max_pd, ibv_alloc_pd(ctx), ibv_dealloc_pd, struct ibv_pd *);
	FILLS(limits.max_cq, ibv_create_cq(ctx, 1, NULL, NULL, 0), ibv_destroy_cq, struct ibv_cq *);
	CLAIM((pd = ibv_alloc_pd(ctx)) && (cq = ibv_create_cq(ctx, 64, NULL, NULL, 0)));
	FILLS(limits.max_mr, (ibv_reg_mr)(pd, memory, 8, RIGHTS), ibv_dereg_mr, struct ibv_mr *);
	FILLS(limits.max_mw, ibv_alloc_mw(pd, IBV_MW_TYPE_1), ibv_dealloc_mw, struct ibv_mw *);
	FILLS(limits.max_ah, ibv_create_ah(pd, &address), ibv_destroy_ah, struct ibv_ah *);
	FILLS(limits.max_srq, ibv_create_srq(pd, &srq), ibv_destroy_srq, struct ibv_srq *);
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	FILLS(limits.max_qp, ibv_create_qp(pd, &wants), ibv_destroy_qp, struct ibv_qp *);

	/* Regions and windows, queue pairs and shared receive queues, have no places of each other. */
	struct ibv_mr *regions[MOST];
	struct ibv_srq *queues[MOST];
	for (int i = 0; i < limits.max_mr; i++)
		CLAIM((regions[i] = (ibv_reg_mr)(pd, memory, 8, RIGHTS)));
	FILLS(limits.max_mw, ibv_alloc_mw(pd, IBV_MW_TYPE_2), ibv_dealloc_mw, struct ibv_mw *);
	for (int i = 0; i < limits.max_srq; i++)
		CLAIM((queues[i] = ibv_create_srq(pd, &srq)));
	FILLS(limits.max_qp, ibv_create_qp(pd, &wants), ibv_destroy_qp, struct ibv_qp *);
	for (int i = 0; i < limits.max_mr; i++)
		FAILS(ibv_dereg_mr(regions[i]), 0);
	for (int i = 0; i < limits.max_srq; i++)
		FAILS(ibv_destroy_srq(queues[i]), 0);

	/* Sizes of a queue. */
	srq.attr.max_wr = limits.max_srq_wr + 1;
	REFUSED(ibv_create_srq(pd, &srq), EINVAL);
	srq.attr.max_wr = limits.max_srq_wr;
	srq.attr.max_sge = limits.max_srq_sge + 1;
	REFUSED(ibv_create_srq(pd, &srq), EINVAL);
	REFUSED(ibv_create_cq(ctx, limits.max_cqe + 1, NULL, NULL, 0), EINVAL);
	wants.cap.max_send_wr = limits.max_qp_wr + 1;
	REFUSED(ibv_create_qp(pd, &wants), EINVAL);
	wants = qp_wants(IBV_QPT_RC);
	wants.cap.max_recv_sge = limits.max_sge + 1;
	REFUSED(ibv_create_qp(pd, &wants), EINVAL);
	FAILS(ibv_destroy_cq(cq), 0);
	FAILS(ibv_dealloc_pd(pd), 0);
	FAILS(ibv_close_device(ctx), 0);
	return 0;
}
