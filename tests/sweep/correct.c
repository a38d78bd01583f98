/* Nothing is wrong with this program: it says of every call that it failed, and gives back all that it has. */
#include "steps.h"

static int exchange(struct all *all)
{
	int failed = complain("ibv_req_notify_cq", ibv_req_notify_cq(all->cq, 0));
	if (failed || (failed = complain("ibv_post_recv", post_receive(all->qp, all->mr))) ||
	    (failed = complain("ibv_post_send", post_send(all->qp, all->mr))))
		return failed;
	struct ibv_cq *fired;
	void *cookie;
	if (ibv_get_cq_event(all->channel, &fired, &cookie))
		return complain("ibv_get_cq_event", errno);
	ibv_ack_cq_events(fired, 1);
	for (int left = 2; left;) {
		struct ibv_wc wc;
		int found = ibv_poll_cq(all->cq, 1, &wc);
		if (found < 0)
			return complain("ibv_poll_cq", EIO);
		if (found && wc.status)
			return complain(ibv_wc_status_str(wc.status), EIO);
		left -= found;
	}
	return 0;
}

int main(void)
{
	struct all all;
	int failed = make_all(&all) || exchange(&all);
	return give_back(&all) || failed;
}
