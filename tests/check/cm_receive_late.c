/* A connection of librdmacm, whose queue pairs have the longest RNR timer: the receive is posted when the message is
 * there already. */
#include "cm_events.h"
#include <time.h>

UNUSED static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec * 1e-9;
}

int main(void)
{
	struct asker server, client;
	struct rdma_conn_param says = {.rnr_retry_count = 6, .retry_count = 7};
	struct ibv_recv_wr receive = {.wr_id = 1}, *bad_receive;
	struct ibv_send_wr send = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
	struct rdma_cm_event *event = meet(&server, &client, &says);
	struct rdma_cm_id *accepted = event->id;
	MUST(!rdma_ack_cm_event(event));
	make_queue_pair(accepted);
#ifdef FIXED
	MUST(!ibv_post_recv(accepted->qp, &receive, &bad_receive));
#endif
	MUST(!rdma_accept(accepted, &says));
	pass_event(&client, RDMA_CM_EVENT_ESTABLISHED);
	pass_event(&server, RDMA_CM_EVENT_ESTABLISHED);
	MUST(!ibv_post_send(client.id->qp, &send, &bad));
#ifndef FIXED
	for (double end = now() + 0.5; now() < end;)
		drive(accepted->recv_cq);
	MUST(!ibv_post_recv(accepted->qp, &receive, &bad_receive)); // BUG: receive-too-late
#endif
	MUST(poll_one(accepted->recv_cq).status == IBV_WC_SUCCESS);
	MUST(poll_one(client.id->send_cq).status == IBV_WC_SUCCESS);
	MUST(!rdma_disconnect(client.id));
	pass_event(&server, RDMA_CM_EVENT_DISCONNECTED);
	MUST(!rdma_disconnect(accepted));
	pass_event(&client, RDMA_CM_EVENT_DISCONNECTED);
	rdma_destroy_qp(client.id);
	rdma_destroy_qp(accepted);
	MUST(!rdma_destroy_id(accepted));
	end_id(&client);
	end_id(&server);
	return 0;
}
