/* Calls of which the rules of tests/call_faults.rs know the name in C, although the library serves them beside others: an XRC domain
 * of OFED 1.x, and values of the device's clock. */
#include "expect.h"
#include <pumice/ofed_xrc.h>

int main(void)
{
	open_device();
	struct ibv_xrc_domain *domain = ibv_open_xrc_domain(ctx, -1, O_CREAT);
	CLAIM(domain);
	FAILS(ibv_close_xrc_domain(domain), ENODEV);
	FAILS(ibv_close_xrc_domain(domain), 0);
	/* A rule about a queue pair: the first call on another one is not failed. */
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	struct ibv_qp *first = ibv_create_qp(pd, &wants), *second = ibv_create_qp(pd, &wants);
	struct ibv_ece options = {0};
	FAILS(ibv_query_ece(first, &options), 0);
	FAILS(ibv_query_ece(second, &options), EOPNOTSUPP);
	FAILS(ibv_query_ece(second, &options), 0);
	struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
	FAILS(ibv_query_rt_values_ex(ctx, &values), EIO);
	FAILS(ibv_query_rt_values_ex(ctx, &values), 0);
	return 0;
}
