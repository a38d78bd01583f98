/* What the probes are made of. */
#include "probe.h"
#include <stdarg.h>

const char *own, *dead;

void must(int holds, const char *what, int line)
{
	if (!holds) {
		fflush(stdout);
		fprintf(stderr, "line %d: %s: %s\n", line, what, strerror(errno));
		exit(2);
	}
}

void outcome(const char *name, int result)
{
	int failed = errno;
	if (result == 0)
		say(name, "0");
	else
		say(name, "%d %s", result, failed ? strerrorname_np(failed) : "");
}

void say(const char *name, const char *format, ...)
{
	va_list words;
	va_start(words, format);
	printf("%s: ", name);
	vprintf(format, words);
	putchar('\n');
	fflush(stdout);
	va_end(words);
}

union endpoint at(const char *address, int port)
{
	union endpoint endpoint = {0};
	if (strchr(address, ':')) {
		endpoint.v6.sin6_family = AF_INET6;
		endpoint.v6.sin6_port = htons(port);
		MUST(inet_pton(AF_INET6, address, &endpoint.v6.sin6_addr) == 1);
	} else {
		endpoint.v4.sin_family = AF_INET;
		endpoint.v4.sin_port = htons(port);
		MUST(inet_pton(AF_INET, address, &endpoint.v4.sin_addr) == 1);
	}
	return endpoint;
}

struct rdma_event_channel *channel(void)
{
	struct rdma_event_channel *made = rdma_create_event_channel();
	MUST(made);
	return made;
}

struct rdma_cm_id *identifier(struct rdma_event_channel *on, enum rdma_port_space space)
{
	struct rdma_cm_id *id;
	MUST(!rdma_create_id(on, &id, NULL, space));
	return id;
}

static int waits(struct rdma_event_channel *on, int ms)
{
	struct pollfd entry = {.fd = on->fd, .events = POLLIN};
	return poll(&entry, 1, ms) == 1;
}

enum rdma_cm_event_type next_event(struct rdma_event_channel *on, struct rdma_cm_event *said)
{
	struct rdma_cm_event *event;
	MUST(waits(on, 20000));
	MUST(!rdma_get_cm_event(on, &event));
	*said = *event;
	MUST(!rdma_ack_cm_event(event));
	return said->event;
}

struct rdma_cm_id *told(const char *name, struct rdma_event_channel *on, int ms)
{
	struct rdma_cm_event said;
	if (!waits(on, ms)) {
		say(name, "nothing");
		return NULL;
	}
	next_event(on, &said);
	int is_connection = said.event >= RDMA_CM_EVENT_CONNECT_REQUEST && said.event <= RDMA_CM_EVENT_DISCONNECTED;
	if (is_connection)
		say(name, "%s status %d, %d bytes", rdma_event_str(said.event), said.status, said.param.conn.private_data_len);
	else
		say(name, "%s status %d", rdma_event_str(said.event), said.status);
	return said.id;
}

struct rdma_cm_id *expect(struct rdma_event_channel *on, enum rdma_cm_event_type wanted)
{
	struct rdma_cm_event said;
	enum rdma_cm_event_type came = next_event(on, &said);
	if (came != wanted) {
		fprintf(stderr, "%s came instead of %s\n", rdma_event_str(came), rdma_event_str(wanted));
		exit(2);
	}
	return said.id;
}

int port_of(struct rdma_cm_id *id)
{
	return ntohs(rdma_get_src_port(id));
}

struct rdma_cm_id *listening(struct rdma_event_channel *on, enum rdma_port_space space)
{
	struct rdma_cm_id *id = identifier(on, space);
	MUST(!rdma_bind_addr(id, AT(own, 0)));
	MUST(!rdma_listen(id, 8));
	return id;
}

struct rdma_cm_id *resolved(struct rdma_event_channel *on, enum rdma_port_space space, int port)
{
	struct rdma_cm_id *id = identifier(on, space);
	MUST(!rdma_resolve_addr(id, NULL, AT(own, port), 2000));
	expect(on, RDMA_CM_EVENT_ADDR_RESOLVED);
	MUST(!rdma_resolve_route(id, 2000));
	expect(on, RDMA_CM_EVENT_ROUTE_RESOLVED);
	return id;
}

int with_queue_pair(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr wanted = {
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = id->qp_type,
	};
	return rdma_create_qp(id, NULL, &wanted);
}

struct pair requested(enum rdma_port_space space)
{
	struct pair pair = {.there = channel(), .here = channel()};
	struct rdma_conn_param with = {.initiator_depth = 3, .responder_resources = 5, .retry_count = 6, .rnr_retry_count = 4};
	pair.listener = listening(pair.there, space);
	pair.client = resolved(pair.here, space, port_of(pair.listener));
	MUST(!with_queue_pair(pair.client));
	MUST(!rdma_connect(pair.client, &with));
	pair.server = expect(pair.there, RDMA_CM_EVENT_CONNECT_REQUEST);
	return pair;
}

struct pair connected(void)
{
	struct pair pair = requested(RDMA_PS_TCP);
	MUST(!with_queue_pair(pair.server));
	MUST(!rdma_accept(pair.server, NULL));
	expect(pair.here, RDMA_CM_EVENT_ESTABLISHED);
	expect(pair.there, RDMA_CM_EVENT_ESTABLISHED);
	return pair;
}

static void drained(struct rdma_event_channel *on)
{
	struct rdma_cm_event said;
	while (waits(on, 0))
		next_event(on, &said);
}

void gone(struct pair *pair)
{
	struct rdma_cm_id *all[] = {pair->client, pair->server, pair->listener};
	for (int k = 0; k < 3; k++) {
		if (!all[k])
			continue;
		if (all[k]->qp)
			rdma_destroy_qp(all[k]);
		MUST(!rdma_destroy_id(all[k]));
	}
	drained(pair->here);
	drained(pair->there);
	rdma_destroy_event_channel(pair->here);
	rdma_destroy_event_channel(pair->there);
}

void attributes(const char *name, struct rdma_cm_id *id)
{
	static const struct {
		enum ibv_qp_state state;
		const char *name;
	} states[] = {{IBV_QPS_INIT, "INIT"}, {IBV_QPS_RTR, "RTR"}, {IBV_QPS_RTS, "RTS"}};
	for (int k = 0; k < 3; k++) {
		struct ibv_qp_attr attr = {.qp_state = states[k].state};
		char line[100];
		int mask = 0;
		errno = 0;
		int result = rdma_init_qp_attr(id, &attr, &mask);
		snprintf(line, sizeof line, "%s, rdma_init_qp_attr for %s", name, states[k].name);
		if (result)
			outcome(line, result);
		else
			say(line, "mask %#x, access %#x, retries %d and %d, depths %d and %d", mask,
			    mask & IBV_QP_ACCESS_FLAGS ? attr.qp_access_flags : 0, mask & IBV_QP_RETRY_CNT ? attr.retry_cnt : 0,
			    mask & IBV_QP_RNR_RETRY ? attr.rnr_retry : 0, mask & IBV_QP_MAX_QP_RD_ATOMIC ? attr.max_rd_atomic : 0,
			    mask & IBV_QP_MAX_DEST_RD_ATOMIC ? attr.max_dest_rd_atomic : 0);
	}
}
