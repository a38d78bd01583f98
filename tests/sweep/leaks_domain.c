/* Wrong: if the registration fails, the protection domain stays. */
#include "steps.h"

int main(void)
{
	struct ibv_context *context = open_first();
	if (!context)
		return 1;
	struct ibv_pd *pd = ibv_alloc_pd(context);
	if (!pd) {
		ibv_close_device(context);
		return 1;
	}
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof(memory), 0);
	if (!mr) {
		perror("ibv_reg_mr");
		ibv_close_device(context);
		return 1;
	}
	int failed = ibv_dereg_mr(mr);
	failed |= ibv_dealloc_pd(pd);
	failed |= ibv_close_device(context);
	return failed != 0;
}
