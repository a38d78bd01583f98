/* Wrong: a program that believes that polling cannot fail ends with abort(3). */
#include "steps.h"

int main(void)
{
	struct all all;
	if (make_all(&all)) {
		give_back(&all);
		return 1;
	}
	int failed = post_receive(all.qp, all.mr) || post_send(all.qp, all.mr);
	for (int left = failed ? 0 : 2; left;) {
		struct ibv_wc wc;
		int found = ibv_poll_cq(all.cq, 1, &wc);
		if (found < 0)
			abort();
		left -= found;
	}
	return give_back(&all) || failed;
}
