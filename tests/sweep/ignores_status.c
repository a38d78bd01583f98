/* Wrong: a program that counts completions and does not look at their status takes a failure for success. */
#include "steps.h"

int main(void)
{
	struct all all;
	if (make_all(&all)) {
		give_back(&all);
		return 1;
	}
	int failed = complain("ibv_post_recv", post_receive(all.qp, all.mr)) || complain("ibv_post_send", post_send(all.qp, all.mr));
	for (int left = failed ? 0 : 2; left;) {
		struct ibv_wc wc;
		int found = ibv_poll_cq(all.cq, 1, &wc);
		if (found < 0) {
			failed = complain("ibv_poll_cq", EIO);
			break;
		}
		left -= found;
	}
	return give_back(&all) || failed;
}
