#include "ends.h"

int main(void)
{
	struct ends ends;
	open_device(&ends);
	struct ibv_cq *cq = ibv_create_cq(ends.context, 8, NULL, NULL, 0);
	MUST(cq && !ibv_destroy_cq(cq));
#ifndef FIXED
	ibv_destroy_cq(cq); // BUG: used-after-destroy
	struct ibv_qp_init_attr wants = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *qp = ibv_create_qp(ends.pd, &wants); // BUG: used-after-destroy
	MUST(!qp);
#endif
	close_device(&ends);
	return 0;
}
