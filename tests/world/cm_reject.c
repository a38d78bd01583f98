/*
 * A client notes that it waits for a connection after it has asked for it. The server refuses it, and the refusal may
 * come before. With FIXED the client notes it before.
 */
#include <arpa/inet.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define MUST(condition) do { if (!(condition)) { perror(#condition); exit(9); } } while (0)

static struct sockaddr_in address;
static struct rdma_event_channel *of_server, *of_client;
static struct rdma_cm_id *client;
static atomic_int is_waiting, is_early;

static struct rdma_cm_id *take(struct rdma_event_channel *channel, enum rdma_cm_event_type wanted)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	MUST(!rdma_get_cm_event(channel, &event));
	MUST(event->event == wanted);
	id = event->id;
	MUST(!rdma_ack_cm_event(event));
	return id;
}

static void *refuse(void *argument)
{
	struct rdma_cm_id *request = take(of_server, RDMA_CM_EVENT_CONNECT_REQUEST);

	MUST(!rdma_reject(request, NULL, 0));
	MUST(!rdma_destroy_id(request));
	return argument;
}

static void *take_refusal(void *argument)
{
	take(of_client, RDMA_CM_EVENT_REJECTED);
	is_early = !is_waiting;
	return argument;
}

int main(void)
{
	struct rdma_conn_param parameters = {.retry_count = 7};
	struct ibv_qp_init_attr attributes = {.qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}};
	struct rdma_cm_id *listener;
	pthread_t server, events;

	address.sin_family = AF_INET;
	address.sin_port = htons(20078);
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	MUST((of_server = rdma_create_event_channel()) && (of_client = rdma_create_event_channel()));
	MUST(!rdma_create_id(of_server, &listener, NULL, RDMA_PS_TCP));
	MUST(!rdma_bind_addr(listener, (struct sockaddr *)&address) && !rdma_listen(listener, 1));
	MUST(!rdma_create_id(of_client, &client, NULL, RDMA_PS_TCP));
	MUST(!rdma_resolve_addr(client, NULL, (struct sockaddr *)&address, 2000));
	take(of_client, RDMA_CM_EVENT_ADDR_RESOLVED);
	MUST(!rdma_resolve_route(client, 2000));
	take(of_client, RDMA_CM_EVENT_ROUTE_RESOLVED);
	MUST(!rdma_create_qp(client, NULL, &attributes));
	MUST(!pthread_create(&server, NULL, refuse, NULL) && !pthread_create(&events, NULL, take_refusal, NULL));
#ifdef FIXED
	is_waiting = 1;
#endif
	MUST(!rdma_connect(client, &parameters));
	is_waiting = 1;
	pthread_join(events, NULL);
	pthread_join(server, NULL);
	if (is_early)
		puts("a refusal came before the client waited for it");
	return is_early;
}
