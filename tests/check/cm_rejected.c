/* The peer rejects the connection, and the program takes the event for ESTABLISHED. */
#include "cm_events.h"

int main(void)
{
	struct asker server, client;
	struct rdma_conn_param parameters = {.retry_count = 3};
	struct rdma_cm_event *asked = meet(&server, &client, &parameters);
	struct rdma_cm_id *came = asked->id;
	MUST(!rdma_reject(came, NULL, 0) && !rdma_ack_cm_event(asked) && !rdma_destroy_id(came));
	struct rdma_cm_event *event = next_event(&client); // BUG: failed-connection-used
	int is_connected = event->event == RDMA_CM_EVENT_ESTABLISHED;
	MUST(!rdma_ack_cm_event(event) && !is_connected);
#ifndef FIXED
	is_connected = 1;
#endif
	struct ibv_send_wr send = {.opcode = IBV_WR_SEND}, *bad;
	if (is_connected)
		ibv_post_send(client.id->qp, &send, &bad); // BUG: failed-connection-used
	rdma_destroy_qp(client.id);
	end_id(&client);
	end_id(&server);
	return 0;
}
