/* A protection domain is to go before the region that is in it. */
#include "ends.h"

int main(void)
{
	struct ends ends;
	open_device(&ends);
#ifndef FIXED
	MUST(ibv_dealloc_pd(ends.pd) == EBUSY); // BUG: call-refused
#endif
	close_device(&ends);
	return 0;
}
