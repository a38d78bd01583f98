/* Wrong: a program that waits for its receive, and drops every other completion unread, waits for ever once the send has failed. */
#include "steps.h"

int main(void)
{
	struct all all;
	if (make_all(&all)) {
		give_back(&all);
		return 1;
	}
	int failed = complain("ibv_post_recv", post_receive(all.qp, all.mr)) || complain("ibv_post_send", post_send(all.qp, all.mr));
	for (int received = failed; !received;) {
		struct ibv_wc wc;
		int found = ibv_poll_cq(all.cq, 1, &wc);
		if (found < 0) {
			failed = complain("ibv_poll_cq", EIO);
			break;
		}
		received = found && wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV;
	}
	return give_back(&all) || failed;
}
