/* Wrong: the program sleeps for an event that it did not ask for. */
#include "steps.h"

int main(void)
{
	struct all all;
	if (make_all(&all)) {
		give_back(&all);
		return 1;
	}
	ibv_req_notify_cq(all.cq, 0);
	int failed = complain("posting", post_receive(all.qp, all.mr) || post_send(all.qp, all.mr));
	struct ibv_cq *fired;
	void *cookie;
	if (!failed && ibv_get_cq_event(all.channel, &fired, &cookie) == 0)
		ibv_ack_cq_events(fired, 1);
	return give_back(&all) || failed;
}
