/* librdmacm: synchronous identifiers and endpoints, options of identifiers and of vendors, and what comes in another
 * order than usual. */
#include "cm_kit.h"
#include <pthread.h>
#include <rdma/rdma_verbs.h>
#include <stddef.h>

static struct rdma_addrinfo *info(uint16_t port, int flags)
{
	struct rdma_addrinfo hints = {.ai_flags = flags, .ai_port_space = RDMA_PS_TCP}, *found;
	char node[INET_ADDRSTRLEN], service[8];
	CLAIM(inet_ntop(AF_INET, &own.sin_addr, node, sizeof(node)));
	snprintf(service, sizeof(service), "%u", port);
	CLAIM(rdma_getaddrinfo(node, service, &hints, &found) == 0);
	return found;
}

static struct ibv_qp_init_attr four(void)
{
	struct ibv_qp_init_attr wants = {
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 16},
		.sq_sig_all = 1,
	};
	return wants;
}

static uint16_t served_port;

/* Answers one message with itself, and rejects the second request. */
static void *serve(void *listener)
{
	struct rdma_cm_id *waits = listener, *asked;
	struct ibv_wc wc;
	static char got[16];
	CLAIM(rdma_get_request(waits, &asked) == 0);
	CLAIM(asked->qp && asked->event && asked->event->event == RDMA_CM_EVENT_CONNECT_REQUEST && asked->channel != waits->channel);
	CLAIM(!strcmp(asked->event->param.conn.private_data, "hello"));
	struct ibv_mr *region = rdma_reg_msgs(asked, got, sizeof(got));
	CLAIM(region && rdma_post_recv(asked, NULL, got, sizeof(got), region) == 0);
	CLAIM(rdma_accept(asked, NULL) == 0);
	CLAIM(asked->event->event == RDMA_CM_EVENT_ESTABLISHED);
	CLAIM(rdma_get_recv_comp(asked, &wc) == 1 && wc.status == IBV_WC_SUCCESS && wc.byte_len == sizeof(got));
	CLAIM(rdma_post_send(asked, NULL, got, sizeof(got), NULL, IBV_SEND_INLINE) == 0);
	CLAIM(rdma_get_send_comp(asked, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	/* The peer disconnects first or second: it is the same. */
	CLAIM(rdma_disconnect(asked) == 0 && asked->event->event == RDMA_CM_EVENT_DISCONNECTED);
	CLAIM(rdma_dereg_mr(region) == 0);
	rdma_destroy_ep(asked);
	CLAIM(rdma_get_request(waits, &asked) == 0);
	CLAIM(rdma_reject(asked, "no", 3) == 0);
	rdma_destroy_ep(asked);
	return NULL;
}

static void endpoints_wait_by_themselves(void)
{
	struct rdma_addrinfo *at = info(0, RAI_PASSIVE | RAI_NUMERICHOST), *to;
	struct ibv_qp_init_attr wants = four();
	struct rdma_cm_id *waits, *asks;
	pthread_t server;
	struct ibv_wc wc;
	static char said[16] = "0123456789abcde", back[16];
	CLAIM(rdma_create_ep(&waits, at, NULL, &wants) == 0);
	CLAIM(waits->verbs && waits->channel && (served_port = ntohs(rdma_get_src_port(waits))) != 0);
	CLAIM(rdma_listen(waits, 4) == 0);
	CLAIM(pthread_create(&server, NULL, serve, waits) == 0);
	to = info(served_port, RAI_NUMERICHOST);
	wants = four();
	CLAIM(rdma_create_ep(&asks, to, NULL, &wants) == 0);
	CLAIM(asks->qp && asks->verbs == waits->verbs && asks->event->event == RDMA_CM_EVENT_ROUTE_RESOLVED);
	struct ibv_mr *region = rdma_reg_msgs(asks, back, sizeof(back));
	CLAIM(region && rdma_post_recv(asks, NULL, back, sizeof(back), region) == 0);
	struct rdma_conn_param says = {.private_data = "hello", .private_data_len = 6, .rnr_retry_count = 7, .retry_count = 7};
	CLAIM(rdma_connect(asks, &says) == 0 && asks->event->event == RDMA_CM_EVENT_ESTABLISHED);
	CLAIM(rdma_post_send(asks, NULL, said, sizeof(said), NULL, IBV_SEND_INLINE) == 0);
	CLAIM(rdma_get_send_comp(asks, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	CLAIM(rdma_get_recv_comp(asks, &wc) == 1 && wc.status == IBV_WC_SUCCESS && !strcmp(said, back));
	CLAIM(rdma_disconnect(asks) == 0 && asks->event->event == RDMA_CM_EVENT_DISCONNECTED);
	CLAIM(rdma_dereg_mr(region) == 0);
	rdma_destroy_ep(asks);
	/* Refused, and then no listener is there. */
	for (int times = 0; times < 2; times++) {
		wants = four();
		CLAIM(rdma_create_ep(&asks, to, NULL, &wants) == 0);
		REFUSES(rdma_connect(asks, NULL), ECONNREFUSED);
		CLAIM(asks->event->event == RDMA_CM_EVENT_REJECTED && asks->event->status == (times ? 8 : 28));
		rdma_destroy_ep(asks);
		if (!times) {
			CLAIM(pthread_join(server, NULL) == 0);
			rdma_destroy_ep(waits);
		}
	}
	rdma_freeaddrinfo(at);
	rdma_freeaddrinfo(to);
}

/* An identifier without a channel is synchronous, and becomes asynchronous on one, and the other way round. */
static void identifiers_change_their_manners(void)
{
	struct sockaddr_in at;
	struct rdma_cm_id *waits = listener(RDMA_PS_TCP, &at), *asks;
	CLAIM(rdma_create_id(NULL, &asks, NULL, RDMA_PS_TCP) == 0 && asks->channel);
	CLAIM(rdma_resolve_addr(asks, NULL, (struct sockaddr *)&at, 500) == 0);
	CLAIM(asks->event->event == RDMA_CM_EVENT_ADDR_RESOLVED && asks->verbs);
	CLAIM(rdma_migrate_id(asks, active) == 0 && asks->channel == active);
	CLAIM(rdma_resolve_route(asks, 500) == 0);
	/* The event comes along. */
	struct rdma_event_channel *other = rdma_create_event_channel();
	CLAIM(other && rdma_migrate_id(asks, other) == 0 && is_quiet(active));
	see(other, asks, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	give_queue_pair(asks);
	CLAIM(rdma_connect(asks, NULL) == 0);
	struct rdma_cm_event *event = next(passive, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	CLAIM(rdma_reject(event->id, NULL, 0) == 0);
	CLAIM(rdma_destroy_id(event->id) == 0 && rdma_ack_cm_event(event) == 0);
	struct pollfd wait = {.fd = other->fd, .events = POLLIN};
	CLAIM(poll(&wait, 1, 60000) == 1);
	CLAIM(rdma_migrate_id(asks, active) == 0 && is_quiet(other));
	see(active, asks, RDMA_CM_EVENT_REJECTED, 28);
	gone(asks);
	rdma_destroy_event_channel(other);
	CLAIM(rdma_destroy_id(waits) == 0);
}

/* A listener takes the requests along that wait, and what has become of them. */
static void listeners_move_with_their_requests(void)
{
	struct sockaddr_in at;
	struct rdma_cm_id *waits = listener(RDMA_PS_TCP, &at), *asks[3];
	struct rdma_event_channel *other = rdma_create_event_channel();
	struct pollfd wait = {.fd = passive->fd, .events = POLLIN};
	for (int number = 0; number < 3; number++) {
		asks[number] = resolved(RDMA_PS_TCP, &at);
		give_queue_pair(asks[number]);
	}
	CLAIM(rdma_connect(asks[0], NULL) == 0 && poll(&wait, 1, 60000) == 1);
	CLAIM(rdma_connect(asks[1], NULL) == 0);
	CLAIM(rdma_migrate_id(waits, other) == 0 && waits->channel == other);
	CLAIM(is_quiet(passive) && rdma_connect(asks[2], NULL) == 0);
	struct rdma_cm_event *event[3];
	for (int number = 0; number < 3; number++) {
		event[number] = next(other, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
		CLAIM(event[number]->listen_id == waits && event[number]->id->channel == other);
	}
	for (int number = 0; number < 3; number++) {
		struct rdma_cm_id *asked = event[number]->id;
		give_queue_pair(asked);
		CLAIM(rdma_accept(asked, NULL) == 0 && rdma_ack_cm_event(event[number]) == 0);
		see(active, asks[number], RDMA_CM_EVENT_ESTABLISHED, 0);
		see(other, asked, RDMA_CM_EVENT_ESTABLISHED, 0);
		gone(asks[number]);
		see(other, asked, RDMA_CM_EVENT_DISCONNECTED, 0);
		gone(asked);
	}
	/* To none: it becomes synchronous. */
	struct rdma_cm_id *asked;
	asks[0] = resolved(RDMA_PS_TCP, &at);
	give_queue_pair(asks[0]);
	CLAIM(rdma_migrate_id(waits, NULL) == 0 && rdma_connect(asks[0], NULL) == 0);
	CLAIM(rdma_get_request(waits, &asked) == 0 && rdma_reject(asked, NULL, 0) == 0);
	rdma_destroy_ep(asked);
	see(active, asks[0], RDMA_CM_EVENT_REJECTED, 28);
	gone(asks[0]);
	CLAIM(rdma_destroy_id(waits) == 0);
	rdma_destroy_event_channel(other);
}

/* Synchronous identifiers that have no connection to end do not wait for its end. */
static void what_is_no_connection_ends_at_once(void)
{
	struct sockaddr_in at;
	struct rdma_cm_id *datagrams = listener(RDMA_PS_UDP, &at), *asks = resolved(RDMA_PS_UDP, &at);
	give_queue_pair(asks);
	CLAIM(rdma_connect(asks, NULL) == 0);
	struct rdma_cm_event *event = next(passive, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	struct rdma_cm_id *asked = event->id;
	give_queue_pair(asked);
	CLAIM(rdma_accept(asked, NULL) == 0 && rdma_ack_cm_event(event) == 0);
	see(active, asks, RDMA_CM_EVENT_ESTABLISHED, 0);
	CLAIM(rdma_migrate_id(asks, NULL) == 0 && rdma_migrate_id(asked, NULL) == 0);
	CLAIM(rdma_disconnect(asks) == 0 && rdma_disconnect(asked) == 0);
	CLAIM(asks->qp->state == IBV_QPS_ERR);
	gone(asks);
	gone(asked);
	CLAIM(rdma_destroy_id(datagrams) == 0);
	/* A request that was not answered. */
	struct rdma_cm_id *waits = listener(RDMA_PS_TCP, &at);
	asks = resolved(RDMA_PS_TCP, &at);
	give_queue_pair(asks);
	CLAIM(rdma_connect(asks, NULL) == 0);
	event = next(passive, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	asked = event->id;
	CLAIM(rdma_ack_cm_event(event) == 0 && rdma_migrate_id(asked, NULL) == 0);
	CLAIM(rdma_disconnect(asked) == 0 && rdma_destroy_id(asked) == 0);
	see(active, asks, RDMA_CM_EVENT_REJECTED, 28);
	gone(asks);
	CLAIM(rdma_destroy_id(waits) == 0);
}

static void options_do_what_they_say(void)
{
	struct rdma_cm_id *first, *second, *third;
	struct sockaddr_in at = own;
	int on = 1;
	uint8_t byte = 200;
	/* Two may have a port that both are ready to share; one listens that has it alone. */
	CLAIM(rdma_create_id(passive, &first, NULL, RDMA_PS_TCP) == 0 && rdma_create_id(passive, &second, NULL, RDMA_PS_TCP) == 0);
	REFUSES(rdma_set_option(first, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, 1), EINVAL);
	CLAIM(rdma_bind_addr(first, (struct sockaddr *)&at) == 0 && (at.sin_port = rdma_get_src_port(first)));
	CLAIM(rdma_destroy_id(first) == 0 && rdma_create_id(passive, &first, NULL, RDMA_PS_TCP) == 0);
	CLAIM(rdma_set_option(first, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)) == 0);
	CLAIM(rdma_set_option(second, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)) == 0);
	CLAIM(rdma_bind_addr(first, (struct sockaddr *)&at) == 0 && rdma_bind_addr(second, (struct sockaddr *)&at) == 0);
	CLAIM(rdma_set_option(first, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)) == 0);
	REFUSES(rdma_listen(first, 1), EADDRINUSE);
	CLAIM(rdma_destroy_id(second) == 0 && rdma_listen(first, 1) == 0);
	REFUSES(rdma_set_option(first, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)), EINVAL);
	REFUSES(rdma_set_option(first, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof(on)), EINVAL);
	/* Another port space is another port. */
	CLAIM(rdma_create_id(passive, &third, NULL, RDMA_PS_UDP) == 0);
	CLAIM(rdma_bind_addr(third, (struct sockaddr *)&at) == 0 && rdma_destroy_id(third) == 0);
	/* The time-out and the traffic class of the queue pair; more than fits is refused. */
	struct rdma_cm_id *asks = resolved(RDMA_PS_TCP, &at);
	REFUSES(rdma_set_option(asks, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &byte, 1), EINVAL);
	byte = 17;
	CLAIM(rdma_set_option(asks, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &byte, 1) == 0);
	byte = 0x68;
	CLAIM(rdma_set_option(asks, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, 1) == 0);
	/* What vendors say to each other passes in both directions. */
	struct ibv_ece says = {.vendor_id = 0x15b3, .options = 0x12345678}, hears = {0};
	CLAIM(rdma_set_local_ece(asks, &says) == 0);
	give_queue_pair(asks);
	CLAIM(rdma_connect(asks, NULL) == 0);
	struct rdma_cm_event *event = next(passive, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	struct rdma_cm_id *asked = event->id;
	CLAIM(rdma_get_remote_ece(asked, &hears) == 0 && hears.vendor_id == says.vendor_id && hears.options == says.options);
	says.options = 7;
	CLAIM(rdma_set_local_ece(asked, &says) == 0);
	give_queue_pair(asked);
	CLAIM(rdma_accept(asked, NULL) == 0 && rdma_ack_cm_event(event) == 0);
	see(active, asks, RDMA_CM_EVENT_ESTABLISHED, 0);
	see(passive, asked, RDMA_CM_EVENT_ESTABLISHED, 0);
	CLAIM(rdma_get_remote_ece(asks, &hears) == 0 && hears.vendor_id == 0x15b3 && hears.options == 7);
	struct ibv_qp_attr has;
	struct ibv_qp_init_attr had;
	CLAIM(ibv_query_qp(asks->qp, &has, IBV_QP_TIMEOUT | IBV_QP_AV, &had) == 0);
	CLAIM(has.timeout == 17 && has.ah_attr.grh.traffic_class == 0x68);
	gone(asks);
	see(passive, asked, RDMA_CM_EVENT_DISCONNECTED, 0);
	gone(asked);
	CLAIM(rdma_destroy_id(first) == 0);
}

/* The reply is confirmed late: what the first message says of it is as good, and comes once. */
/* An identifier for all addresses of a family, at a port (0: any); `one_family`: -1 if it is not said. */
static struct rdma_cm_id *at_all(int family, uint16_t port, int one_family)
{
	struct rdma_cm_id *id;
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = port};
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = port};
	CLAIM(rdma_create_id(passive, &id, NULL, RDMA_PS_TCP) == 0);
	if (one_family >= 0)
		CLAIM(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &one_family, sizeof(one_family)) == 0);
	if (rdma_bind_addr(id, family == AF_INET ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6)) {
		CLAIM(errno == EADDRNOTAVAIL && rdma_destroy_id(id) == 0);
		return NULL;
	}
	return id;
}

/* Asks at a port of this address, and is rejected by the program, or because it does not listen. */
static void asks_at(uint16_t port, int reason)
{
	struct sockaddr_in at = own;
	at.sin_port = port;
	struct rdma_cm_id *asks = resolved(RDMA_PS_TCP, &at);
	give_queue_pair(asks);
	CLAIM(rdma_connect(asks, NULL) == 0);
	if (reason == 28) {
		struct rdma_cm_event *event = next(passive, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
		struct rdma_cm_id *asked = event->id;
		CLAIM(rdma_reject(asked, NULL, 0) == 0 && rdma_ack_cm_event(event) == 0 && rdma_destroy_id(asked) == 0);
	}
	see(active, asks, RDMA_CM_EVENT_REJECTED, reason);
	gone(asks);
}

/* IPv6's "all addresses" are IPv4's too unless the program wants otherwise; IPv4's are its own only. */
static void all_addresses_are_of_one_family_or_of_both(void)
{
	struct rdma_cm_id *v4 = at_all(AF_INET, 0, -1), *v6;
	CLAIM(v4);
	uint16_t port = rdma_get_src_port(v4);
	CLAIM(!at_all(AF_INET6, port, -1) && !at_all(AF_INET6, port, 0));
	CLAIM((v6 = at_all(AF_INET6, port, 1)) && rdma_listen(v6, 1) == 0);
	asks_at(port, 8);
	CLAIM(rdma_listen(v4, 1) == 0);
	asks_at(port, 28);
	CLAIM(rdma_destroy_id(v4) == 0);
	CLAIM(!at_all(AF_INET, port, 0));
	CLAIM(rdma_destroy_id(v6) == 0);
	CLAIM((v6 = at_all(AF_INET6, port, -1)) && rdma_listen(v6, 1) == 0);
	asks_at(port, 28);
	CLAIM(rdma_destroy_id(v6) == 0);
}

static void the_first_message_establishes(void)
{
	struct sockaddr_in at;
	struct rdma_cm_id *waits = listener(RDMA_PS_TCP, &at), *asks = resolved(RDMA_PS_TCP, &at);
	give_queue_pair(asks);
	REFUSES(rdma_establish(asks), EINVAL);
	CLAIM(rdma_connect(asks, NULL) == 0);
	struct rdma_cm_event *event = next(passive, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	struct rdma_cm_id *asked = event->id;
	give_queue_pair(asked);
	CLAIM(rdma_accept(asked, NULL) == 0 && rdma_ack_cm_event(event) == 0);
	/* The peer has not fetched its event, so nothing was confirmed. */
	CLAIM(is_quiet(passive));
	CLAIM(rdma_notify(asked, IBV_EVENT_COMM_EST) == 0);
	see(passive, asked, RDMA_CM_EVENT_ESTABLISHED, 0);
	REFUSES(rdma_notify(asked, IBV_EVENT_COMM_EST), EISCONN);
	REFUSES(rdma_notify(asked, IBV_EVENT_SQ_DRAINED), EINVAL);
	see(active, asks, RDMA_CM_EVENT_ESTABLISHED, 0);
	CLAIM(is_quiet(passive));
	gone(asks);
	see(passive, asked, RDMA_CM_EVENT_DISCONNECTED, 0);
	gone(asked);
	CLAIM(rdma_destroy_id(waits) == 0);
}

/* Sources that are not the device's, and peers that it does not reach. */
static void addresses_are_looked_at(void)
{
	struct rdma_cm_id *id;
	struct sockaddr_in far = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr("192.0.2.77"), .sin_port = htons(7174)};
	struct sockaddr_in6 other = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT, .sin6_port = htons(7174)};
	CLAIM(rdma_create_id(active, &id, NULL, RDMA_PS_TCP) == 0);
	REFUSES(rdma_resolve_addr(id, (struct sockaddr *)&far, (struct sockaddr *)&own, 100), EADDRNOTAVAIL);
	/* Where there is IPv6 at all, the route leads to an address that is none of the device's. */
	if (rdma_resolve_addr(id, NULL, (struct sockaddr *)&other, 100) == 0)
		see(active, id, RDMA_CM_EVENT_ADDR_ERROR, -ENODEV);
	/* Of that version it may be tried again, and of the other by another identifier. */
	CLAIM(rdma_destroy_id(id) == 0 && rdma_create_id(active, &id, NULL, RDMA_PS_TCP) == 0);
	far.sin_addr = own.sin_addr;
	CLAIM(rdma_resolve_addr(id, NULL, (struct sockaddr *)&far, 100) == 0);
	see(active, id, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	CLAIM(rdma_destroy_id(id) == 0);
	/* A synchronous one says it by errno. */
	CLAIM(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == 0);
	errno = 0;
	CLAIM(rdma_resolve_addr(id, NULL, (struct sockaddr *)&other, 100) == -1 && errno != 0);
	CLAIM(rdma_destroy_id(id) == 0);
}

/* A client that is told to connect before the server listens: a moment is forgiven. */
static void a_request_waits_a_moment_for_its_listener(void)
{
	struct rdma_cm_id *waits, *asks;
	struct sockaddr_in at = own;
	CLAIM(rdma_create_id(passive, &waits, NULL, RDMA_PS_TCP) == 0);
	CLAIM(rdma_bind_addr(waits, (struct sockaddr *)&at) == 0 && (at.sin_port = rdma_get_src_port(waits)));
	asks = resolved(RDMA_PS_TCP, &at);
	give_queue_pair(asks);
	CLAIM(rdma_connect(asks, NULL) == 0);
	CLAIM(rdma_listen(waits, 1) == 0);
	struct rdma_cm_event *event = next(passive, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	CLAIM(rdma_destroy_id(event->id) == 0 && rdma_ack_cm_event(event) == 0);
	see(active, asks, RDMA_CM_EVENT_REJECTED, 28);
	gone(asks);
	CLAIM(rdma_destroy_id(waits) == 0);
}

/* More requests than the backlog wait at their sender, not here. */
static void requests_beyond_the_backlog_are_not_rejected(void)
{
	struct sockaddr_in at = own;
	struct rdma_cm_id *waits, *asks[3];
	CLAIM(rdma_create_id(passive, &waits, NULL, RDMA_PS_TCP) == 0);
	CLAIM(rdma_bind_addr(waits, (struct sockaddr *)&at) == 0 && rdma_listen(waits, 2) == 0);
	at.sin_port = rdma_get_src_port(waits);
	for (int number = 0; number < 3; number++) {
		asks[number] = resolved(RDMA_PS_TCP, &at);
		give_queue_pair(asks[number]);
		CLAIM(rdma_connect(asks[number], NULL) == 0);
	}
	for (int number = 0; number < 2; number++) {
		struct rdma_cm_event *event = next(passive, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
		CLAIM(rdma_destroy_id(event->id) == 0 && rdma_ack_cm_event(event) == 0);
	}
	for (int number = 0; number < 2; number++) {
		struct rdma_cm_event *event = next(active, RDMA_CM_EVENT_REJECTED, 28);
		CLAIM(event->id != asks[2] && rdma_ack_cm_event(event) == 0);
	}
	/* It is asked again, as often as it takes; the first time after four seconds. */
	struct rdma_cm_event *event = next(passive, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	CLAIM(is_quiet(active));
	CLAIM(rdma_destroy_id(event->id) == 0 && rdma_ack_cm_event(event) == 0);
	see(active, asks[2], RDMA_CM_EVENT_REJECTED, 28);
	for (int number = 0; number < 3; number++)
		gone(asks[number]);
	CLAIM(rdma_destroy_id(waits) == 0);
}

int main(void)
{
	begin();
	endpoints_wait_by_themselves();
	identifiers_change_their_manners();
	listeners_move_with_their_requests();
	what_is_no_connection_ends_at_once();
	options_do_what_they_say();
	all_addresses_are_of_one_family_or_of_both();
	the_first_message_establishes();
	addresses_are_looked_at();
	a_request_waits_a_moment_for_its_listener();
	requests_beyond_the_backlog_are_not_rejected();
	rdma_destroy_event_channel(passive);
	rdma_destroy_event_channel(active);
	return 0;
}
