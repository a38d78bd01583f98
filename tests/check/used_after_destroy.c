#include "ends.h"

int main(void)
{
	struct ends ends;
	open_device(&ends);
	make_ends(&ends, 8);
	struct ibv_qp *gone = ends.here;
	MUST(!ibv_destroy_qp(gone));
	ends.here = NULL;
#ifndef FIXED
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	ibv_modify_qp(gone, &attr, IBV_QP_STATE); // BUG: used-after-destroy
#endif
	close_device(&ends);
	return 0;
}
