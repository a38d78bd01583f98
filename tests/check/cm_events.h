/* Identifiers of rdma_cm and their events: one that resolves an address of the process's own, one that listens there. */
#include "ends.h"
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>

struct asker {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
};

/* An identifier on a channel of its own; the address is the process's. */
static struct sockaddr_in make_id(struct asker *asker)
{
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_port = htons(7471) };
	MUST((asker->channel = rdma_create_event_channel()));
	MUST(!rdma_create_id(asker->channel, &asker->id, NULL, RDMA_PS_TCP));
	MUST(inet_pton(AF_INET, getenv("PUMICE_ADDR"), &own.sin_addr) == 1);
	return own;
}

static void ask(struct asker *asker)
{
	struct sockaddr_in to = make_id(asker);
	MUST(!rdma_resolve_addr(asker->id, NULL, (struct sockaddr *)&to, 1000));
}

UNUSED static void end_id(struct asker *asker)
{
	MUST(!rdma_destroy_id(asker->id));
	rdma_destroy_event_channel(asker->channel);
}

UNUSED static struct rdma_cm_event *next_event(struct asker *asker)
{
	struct rdma_cm_event *event;
	MUST(!rdma_get_cm_event(asker->channel, &event));
	return event;
}

/* The next event is of this type, and is acknowledged. */
UNUSED static void pass_event(struct asker *asker, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event = next_event(asker);
	MUST(event->event == type);
	MUST(!rdma_ack_cm_event(event));
}

UNUSED static void ask_and_hear(struct asker *asker)
{
	ask(asker);
	pass_event(asker, RDMA_CM_EVENT_ADDR_RESOLVED);
}

UNUSED static void make_queue_pair(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr wants = {.cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	MUST(!rdma_create_qp(id, NULL, &wants));
}

/* The client, which has a queue pair, asks the server for a connection: the event that tells the server. */
UNUSED static struct rdma_cm_event *meet(struct asker *server, struct asker *client, struct rdma_conn_param *says)
{
	struct sockaddr_in own = make_id(server);
	MUST(!rdma_bind_addr(server->id, (struct sockaddr *)&own) && !rdma_listen(server->id, 4));
	ask_and_hear(client);
	MUST(!rdma_resolve_route(client->id, 1000));
	pass_event(client, RDMA_CM_EVENT_ROUTE_RESOLVED);
	make_queue_pair(client->id);
	MUST(!rdma_connect(client->id, says));
	struct rdma_cm_event *event = next_event(server);
	MUST(event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
	return event;
}
