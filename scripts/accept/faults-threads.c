/* Requests and answers as a store of keys has them, in threads that have a connection each.
 *
 *   faults-threads serve ADDRESS PORT THREADS ROUNDS &
 *   faults-threads ask ADDRESS PORT THREADS ROUNDS
 *
 * A request is a SEND that names memory of the asking side. For "get" the serving side writes a value there, for "set" it
 * reads one from there; then it answers by a SEND. Connections begin and end one after the other, and each thread has its own
 * queue pair and completion queues, so every run sends the same messages. Both sides compare every value. */
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_THREADS 16
#define RECEIVES 4
/* Longest value, of several packets. */
#define VALUE 6000

struct request {
	uint64_t address;
	uint32_t key, bytes, round, is_set;
};

struct side {
	struct rdma_cm_id *id;
	struct request *received, *sent;
	uint8_t *value;
	struct ibv_mr *received_mr, *sent_mr, *value_mr;
	pthread_t thread;
	int number;
};

static struct side sides[MAX_THREADS];
static int threads, rounds;

static void must(int so, const char *what)
{
	if (so)
		return;
	perror(what);
	exit(1);
}

static uint8_t content(int number, int round, int at)
{
	return (uint8_t)(number * 101 + round * 7 + at * 13);
}

static void fill(struct side *side, int round, uint32_t bytes)
{
	for (uint32_t at = 0; at < bytes; at++)
		side->value[at] = content(side->number, round, (int)at);
}

static void check(struct side *side, int round, uint32_t bytes)
{
	for (uint32_t at = 0; at < bytes; at++)
		if (side->value[at] != content(side->number, round, (int)at)) {
			fprintf(stderr, "thread %d, round %d: byte %u is wrong\n", side->number, round, at);
			exit(1);
		}
}

static void sent(struct side *side, const char *what)
{
	struct ibv_wc wc;
	must(rdma_get_send_comp(side->id, &wc) == 1, what);
	if (wc.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "%s: %s\n", what, ibv_wc_status_str(wc.status));
		exit(1);
	}
}

static void receive(struct side *side, int slot)
{
	struct request *at = &side->received[slot];
	must(!rdma_post_recv(side->id, (void *)(uintptr_t)slot, at, sizeof *at, side->received_mr), "rdma_post_recv");
}

static struct request received(struct side *side)
{
	struct ibv_wc wc;
	must(rdma_get_recv_comp(side->id, &wc) == 1, "rdma_get_recv_comp");
	if (wc.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "receive: %s\n", ibv_wc_status_str(wc.status));
		exit(1);
	}
	struct request request = side->received[wc.wr_id];
	receive(side, (int)wc.wr_id);
	return request;
}

static void tell(struct side *side, struct request request)
{
	*side->sent = request;
	must(!rdma_post_send(side->id, NULL, side->sent, sizeof request, side->sent_mr, IBV_SEND_SIGNALED), "rdma_post_send");
	sent(side, "send");
}

static void *serve(void *argument)
{
	struct side *side = argument;
	for (int round = 0; round < rounds; round++) {
		struct request request = received(side);
		void *value = side->value;
		if (request.is_set) {
			must(!rdma_post_read(side->id, NULL, value, request.bytes, side->value_mr, IBV_SEND_SIGNALED, request.address,
					     request.key),
			     "rdma_post_read");
			sent(side, "read");
			check(side, round, request.bytes);
		} else {
			fill(side, round, request.bytes);
			must(!rdma_post_write(side->id, NULL, value, request.bytes, side->value_mr, IBV_SEND_SIGNALED,
					      request.address, request.key),
			     "rdma_post_write");
			sent(side, "write");
		}
		tell(side, request);
	}
	return NULL;
}

static void *ask(void *argument)
{
	struct side *side = argument;
	for (int round = 0; round < rounds; round++) {
		uint32_t bytes = 1 + (uint32_t)(side->number * 977 + round * 613) % VALUE;
		struct request request = {(uintptr_t)side->value, side->value_mr->rkey, bytes, (uint32_t)round, round % 3 == 0};
		if (request.is_set)
			fill(side, round, bytes);
		tell(side, request);
		received(side);
		if (!request.is_set)
			check(side, round, bytes);
	}
	return NULL;
}

/* A queue pair, memory and receive requests. */
static void equip(int number, struct rdma_cm_id *id)
{
	struct side *side = &sides[number];
	struct ibv_qp_init_attr attributes = {.qp_type = IBV_QPT_RC, .cap = {8, RECEIVES, 1, 1, 0}};
	side->number = number;
	side->id = id;
	id->context = side;
	must(!rdma_create_qp(id, NULL, &attributes), "rdma_create_qp");
	side->received = calloc(RECEIVES, sizeof *side->received);
	side->sent = calloc(1, sizeof *side->sent);
	side->value = calloc(1, VALUE);
	must(side->received && side->sent && side->value, "calloc");
	int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	side->received_mr = ibv_reg_mr(id->pd, side->received, RECEIVES * sizeof *side->received, rights);
	side->sent_mr = ibv_reg_mr(id->pd, side->sent, sizeof *side->sent, rights);
	side->value_mr = ibv_reg_mr(id->pd, side->value, VALUE, rights);
	must(side->received_mr && side->sent_mr && side->value_mr, "ibv_reg_mr");
	for (int slot = 0; slot < RECEIVES; slot++)
		receive(side, slot);
}

/* The next event; `id` is of whom it tells. */
static enum rdma_cm_event_type next(struct rdma_event_channel *channel, struct rdma_cm_id **id)
{
	struct rdma_cm_event *event;
	must(!rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
	enum rdma_cm_event_type type = event->event;
	*id = event->id;
	rdma_ack_cm_event(event);
	return type;
}

static void await(struct rdma_event_channel *channel, enum rdma_cm_event_type wanted)
{
	struct rdma_cm_id *id;
	enum rdma_cm_event_type type;
	/* TIMEWAIT of an earlier connection may come at any time. */
	while ((type = next(channel, &id)) == RDMA_CM_EVENT_TIMEWAIT_EXIT)
		;
	if (type != wanted) {
		fprintf(stderr, "%s came, not %s\n", rdma_event_str(type), rdma_event_str(wanted));
		exit(1);
	}
}

static struct rdma_conn_param ways = {.responder_resources = 4, .initiator_depth = 4, .retry_count = 7, .rnr_retry_count = 7};

static void serve_all(struct rdma_event_channel *channel, struct rdma_addrinfo *where)
{
	struct rdma_cm_id *listener, *id;
	int made = 0, ended = 0;
	must(!rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP), "rdma_create_id");
	must(!rdma_bind_addr(listener, where->ai_src_addr) && !rdma_listen(listener, MAX_THREADS), "rdma_listen");
	while (ended < threads) {
		switch (next(channel, &id)) {
		case RDMA_CM_EVENT_CONNECT_REQUEST:
			equip(made++, id);
			must(!rdma_accept(id, &ways), "rdma_accept");
			break;
		case RDMA_CM_EVENT_ESTABLISHED:
			must(!pthread_create(&((struct side *)id->context)->thread, NULL, serve, id->context), "pthread_create");
			break;
		case RDMA_CM_EVENT_DISCONNECTED:
			must(!pthread_join(((struct side *)id->context)->thread, NULL), "pthread_join");
			rdma_disconnect(id);
			ended++;
			break;
		default:
			break;
		}
	}
}

static void ask_all(struct rdma_event_channel *channel, struct rdma_addrinfo *where)
{
	for (int number = 0; number < threads; number++) {
		struct rdma_cm_id *id;
		must(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
		must(!rdma_resolve_addr(id, NULL, where->ai_dst_addr, 5000), "rdma_resolve_addr");
		await(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
		must(!rdma_resolve_route(id, 5000), "rdma_resolve_route");
		await(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
		equip(number, id);
		must(!rdma_connect(id, &ways), "rdma_connect");
		await(channel, RDMA_CM_EVENT_ESTABLISHED);
	}
	for (int number = 0; number < threads; number++)
		must(!pthread_create(&sides[number].thread, NULL, ask, &sides[number]), "pthread_create");
	for (int number = 0; number < threads; number++)
		pthread_join(sides[number].thread, NULL);
	for (int number = 0; number < threads; number++) {
		must(!rdma_disconnect(sides[number].id), "rdma_disconnect");
		await(channel, RDMA_CM_EVENT_DISCONNECTED);
	}
	printf("verified %d threads, %d rounds each\n", threads, rounds);
}

int main(int argc, char **argv)
{
	if (argc != 6) {
		fprintf(stderr, "faults-threads serve|ask ADDRESS PORT THREADS ROUNDS\n");
		return 2;
	}
	int is_server = !strcmp(argv[1], "serve");
	threads = atoi(argv[4]);
	rounds = atoi(argv[5]);
	must(threads > 0 && threads <= MAX_THREADS && rounds > 0, "THREADS or ROUNDS");
	struct rdma_addrinfo hints = {.ai_flags = is_server ? RAI_PASSIVE : 0, .ai_port_space = RDMA_PS_TCP}, *where;
	must(!rdma_getaddrinfo(argv[2], argv[3], &hints, &where), "rdma_getaddrinfo");
	struct rdma_event_channel *channel = rdma_create_event_channel();
	must(channel != NULL, "rdma_create_event_channel");
	(is_server ? serve_all : ask_all)(channel, where);
	return 0;
}
