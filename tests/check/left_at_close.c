#include "ends.h"

int main(void)
{
	struct ends ends;
	open_device(&ends);
	MUST(!ibv_dereg_mr(ends.mr));
#ifdef FIXED
	MUST(!ibv_dealloc_pd(ends.pd));
#endif
	MUST(!ibv_close_device(ends.context)); // BUG: objects-left
	return 0;
}
