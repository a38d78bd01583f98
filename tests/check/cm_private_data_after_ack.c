/* A server reads what its client said after it has acknowledged the request. */
#include "cm_events.h"
#include <pthread.h>
#include <string.h>

static struct rdma_cm_event *next(struct asker *asker, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	MUST(!rdma_get_cm_event(asker->channel, &event));
	MUST(event->event == type);
	return event;
}

static void acknowledged(struct asker *asker, enum rdma_cm_event_type type)
{
	MUST(!rdma_ack_cm_event(next(asker, type)));
}

static struct rdma_cm_id *listener(struct asker *server)
{
	struct rdma_cm_id *id;
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_port = htons(7471) };
	MUST((server->channel = rdma_create_event_channel()));
	MUST(!rdma_create_id(server->channel, &id, NULL, RDMA_PS_TCP));
	MUST(inet_pton(AF_INET, getenv("PUMICE_ADDR"), &own.sin_addr) == 1);
	MUST(!rdma_bind_addr(id, (struct sockaddr *)&own));
	MUST(!rdma_listen(id, 1));
	return id;
}

static void queue_pair_for(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr wants = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	MUST(!rdma_create_qp(id, NULL, &wants));
}

int main(void)
{
	struct asker server, client;
	struct rdma_cm_id *listening = listener(&server);
	char key[16] = "key 0x1234";
	struct rdma_conn_param says = { .private_data = key, .private_data_len = sizeof(key) };
	ask(&client);
	acknowledged(&client, RDMA_CM_EVENT_ADDR_RESOLVED);
	MUST(!rdma_resolve_route(client.id, 1000));
	acknowledged(&client, RDMA_CM_EVENT_ROUTE_RESOLVED);
	queue_pair_for(client.id);
	MUST(!rdma_connect(client.id, &says));

	struct rdma_cm_event *event = next(&server, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *id = event->id;
	const char *said = event->param.conn.private_data;
#ifdef FIXED
	MUST(said[4] == '0');
	MUST(!rdma_ack_cm_event(event));
#else
	MUST(!rdma_ack_cm_event(event));
	MUST(!strncmp(said, key, sizeof(key))); // BUG: private-data-after-ack
	MUST(said[4] == '0');
#endif
	queue_pair_for(id);
	MUST(!rdma_accept(id, &says));
	acknowledged(&client, RDMA_CM_EVENT_ESTABLISHED);
	acknowledged(&server, RDMA_CM_EVENT_ESTABLISHED);
	MUST(!rdma_disconnect(client.id));
	acknowledged(&client, RDMA_CM_EVENT_DISCONNECTED);
	acknowledged(&server, RDMA_CM_EVENT_DISCONNECTED);
	rdma_destroy_qp(client.id);
	rdma_destroy_qp(id);
	MUST(!rdma_destroy_id(client.id));
	MUST(!rdma_destroy_id(id));
	MUST(!rdma_destroy_id(listening));
	rdma_destroy_event_channel(client.channel);
	rdma_destroy_event_channel(server.channel);
	return 0;
}
