/* Wrong: the region's key is used without a look. */
#include "steps.h"

int main(void)
{
	struct all all = {0};
	if (!(all.context = open_first()))
		return 1;
	if (!(all.pd = ibv_alloc_pd(all.context))) {
		give_back(&all);
		return 1;
	}
	all.mr = ibv_reg_mr(all.pd, memory, sizeof(memory), 0);
	printf("keys %s\n", all.mr->lkey == all.mr->rkey ? "equal" : "different");
	return give_back(&all);
}
