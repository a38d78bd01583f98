/* What the programs about connections share. */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MUST(condition)                                                                                                \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, strerror(errno));           \
			exit(99);                                                                                      \
		}                                                                                                      \
	} while (0)

/* A port of the device's address, which is the argument of the program. */
static struct sockaddr_in at_port(const char *address, int port)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
	MUST(inet_pton(AF_INET, address, &at.sin_addr) == 1);
	return at;
}

static struct rdma_cm_id *listener(struct rdma_event_channel *channel, struct sockaddr_in at)
{
	struct rdma_cm_id *id;
	MUST(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) && !rdma_bind_addr(id, (struct sockaddr *)&at));
	MUST(!rdma_listen(id, 4));
	return id;
}

/* The next event, which has to be this one. */
static struct rdma_cm_event *next(struct rdma_event_channel *channel)
{
	struct rdma_cm_event *event;
	MUST(!rdma_get_cm_event(channel, &event));
	return event;
}

/* An identifier with a queue pair, on its way to an address. */
__attribute__((unused)) static struct rdma_cm_id *asker(struct rdma_event_channel *channel, struct sockaddr_in to)
{
	struct rdma_cm_id *id;
	MUST(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	MUST(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 2000) && !rdma_ack_cm_event(next(channel)));
	MUST(!rdma_resolve_route(id, 2000) && !rdma_ack_cm_event(next(channel)));
	struct ibv_qp_init_attr wants = {.cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	MUST(!rdma_create_qp(id, NULL, &wants));
	struct rdma_conn_param parameters = {.retry_count = 3};
	MUST(!rdma_connect(id, &parameters));
	return id;
}
