/* rdma_destroy_qp waits for an event of a completion queue that rdma_create_qp has made, which the program never acknowledges. */
#include "cm_events.h"

int main(void)
{
	struct asker asker;
	struct ibv_recv_wr receive = {.wr_id = 1}, *bad;
	struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
	struct ibv_cq *fired;
	void *cookie;
	ask_and_hear(&asker);
	make_queue_pair(asker.id);
	MUST(!ibv_post_recv(asker.id->qp, &receive, &bad));
	MUST(!ibv_req_notify_cq(asker.id->recv_cq, 0));
	MUST(!ibv_modify_qp(asker.id->qp, &error, IBV_QP_STATE));
	MUST(!ibv_get_cq_event(asker.id->recv_cq_channel, &fired, &cookie));
	poll_one(asker.id->recv_cq);
#ifdef FIXED
	ibv_ack_cq_events(fired, 1);
#else
	alarm(5);
#endif
	rdma_destroy_qp(asker.id); // BUG: events-not-acknowledged
	end_id(&asker);
	return 0;
}
