/* The peer rejects the connection, and the program takes the event for ESTABLISHED. */
#include "cm_events.h"

static struct rdma_cm_event *next(struct rdma_event_channel *channel)
{
	struct rdma_cm_event *event;
	MUST(!rdma_get_cm_event(channel, &event));
	return event;
}

int main(void)
{
	struct asker asker;
	struct rdma_cm_id *listens;
	struct rdma_event_channel *own = rdma_create_event_channel();
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(7471) };
	MUST(own && inet_pton(AF_INET, getenv("PUMICE_ADDR"), &at.sin_addr) == 1);
	MUST(!rdma_create_id(own, &listens, NULL, RDMA_PS_TCP) && !rdma_bind_addr(listens, (struct sockaddr *)&at));
	MUST(!rdma_listen(listens, 4));
	ask(&asker);
	MUST(!rdma_ack_cm_event(next(asker.channel)) && !rdma_resolve_route(asker.id, 1000));
	MUST(!rdma_ack_cm_event(next(asker.channel)));
	struct ibv_qp_init_attr wants = {.cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	MUST(!rdma_create_qp(asker.id, NULL, &wants));
	struct rdma_conn_param parameters = {.retry_count = 3};
	MUST(!rdma_connect(asker.id, &parameters));
	struct rdma_cm_event *asked = next(own);
	struct rdma_cm_id *came = asked->id;
	MUST(!rdma_reject(came, NULL, 0) && !rdma_ack_cm_event(asked) && !rdma_destroy_id(came));
	struct rdma_cm_event *event = next(asker.channel); // BUG: failed-connection-used
	int is_connected = event->event == RDMA_CM_EVENT_ESTABLISHED;
	MUST(!rdma_ack_cm_event(event) && !is_connected);
#ifndef FIXED
	is_connected = 1;
#endif
	struct ibv_send_wr send = {.opcode = IBV_WR_SEND}, *bad;
	if (is_connected)
		ibv_post_send(asker.id->qp, &send, &bad); // BUG: failed-connection-used
	rdma_destroy_qp(asker.id);
	MUST(!rdma_destroy_id(asker.id) && !rdma_destroy_id(listens));
	rdma_destroy_event_channel(asker.channel);
	rdma_destroy_event_channel(own);
	return 0;
}
