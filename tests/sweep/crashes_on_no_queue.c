/* Wrong: the queue pair is used without a look. */
#include "steps.h"

int main(void)
{
	struct all all = {0};
	if (!(all.context = open_first()))
		return 1;
	all.pd = ibv_alloc_pd(all.context);
	all.cq = all.pd ? ibv_create_cq(all.context, 8, NULL, NULL, 0) : NULL;
	if (!all.cq) {
		give_back(&all);
		return 1;
	}
	all.qp = make_qp(all.pd, all.cq);
	printf("queue pair %s\n", all.qp->qp_num ? "made" : "without a number");
	return give_back(&all);
}
