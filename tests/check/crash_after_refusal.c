/* A registration is refused, and the program uses the NULL that it got. */
#include "ends.h"

int main(void)
{
	struct ends ends;
	open_device(&ends);
	int access = IBV_ACCESS_REMOTE_WRITE;
#ifdef FIXED
	access |= IBV_ACCESS_LOCAL_WRITE;
#endif
	struct ibv_mr *volatile mr = ibv_reg_mr(ends.pd, memory, sizeof(memory), access); // BUG: call-refused
	printf("%u\n", mr->lkey);
	MUST(!ibv_dereg_mr(mr));
	close_device(&ends);
	return 0;
}
