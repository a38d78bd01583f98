#include "ends.h"

int main(void)
{
	struct ends ends;
	open_device(&ends);
	ends.recv_cq = ibv_create_cq(ends.context, 8, NULL, NULL, 0); // BUG: objects-left
#ifdef FIXED
	close_device(&ends);
#else
	MUST(!ibv_dereg_mr(ends.mr) && !ibv_dealloc_pd(ends.pd));
#endif
	return 0;
}
