/* Identifiers, their options and addresses. */
#include "probe.h"
#include <linux/capability.h>
#include <sys/syscall.h>

void probe_identifiers(void)
{
	struct rdma_event_channel *on = channel(), *other = channel();
	struct rdma_cm_id *id;
	struct rdma_cm_event *event;
	PROBE("rdma_create_id, RDMA_PS_TCP", rdma_create_id(on, &id, on, RDMA_PS_TCP));
	say("its fields", "context %d, verbs %d, channel %d, qp %d, type %d, port %d", id->context == on, !!id->verbs,
	    id->channel == on, !!id->qp, id->qp_type, id->port_num);
	say("its ports", "%d and %d", rdma_get_src_port(id), rdma_get_dst_port(id));
	attributes("before it has a device", id);
	PROBE("rdma_reject at first", rdma_reject(id, NULL, 0));
	PROBE("rdma_notify at first", rdma_notify(id, IBV_EVENT_COMM_EST));
	PROBE("rdma_establish at first", rdma_establish(id));
	PROBE("rdma_migrate_id to another channel", rdma_migrate_id(id, other));
	say("its channel", "%d", id->channel == other);
	PROBE("rdma_destroy_id", rdma_destroy_id(id));
	PROBE("rdma_create_id, RDMA_PS_UDP", rdma_create_id(on, &id, NULL, RDMA_PS_UDP));
	say("its type", "%d", id->qp_type);
	rdma_destroy_id(id);
	PROBE("rdma_create_id, RDMA_PS_IPOIB", rdma_create_id(on, &id, NULL, RDMA_PS_IPOIB));
	rdma_destroy_id(id);
	PROBE("rdma_create_id, RDMA_PS_IB", rdma_create_id(on, &id, NULL, RDMA_PS_IB));
	say("its type", "%d", id->qp_type);
	rdma_destroy_id(id);
	PROBE("rdma_create_id, port space 0", rdma_create_id(on, &id, NULL, 0));
	PROBE("rdma_create_id, port space 0x999", rdma_create_id(on, &id, NULL, 0x999));
	MUST(!fcntl(on->fd, F_SETFL, O_NONBLOCK));
	PROBE("rdma_get_cm_event without an event", rdma_get_cm_event(on, &event));
	PROBE("rdma_get_cm_event to nowhere", rdma_get_cm_event(on, NULL));
	PROBE("rdma_ack_cm_event of nothing", rdma_ack_cm_event(NULL));
	for (int kind = -1; kind <= RDMA_CM_EVENT_TIMEWAIT_EXIT + 8; kind += 8)
		say("rdma_event_str", "%d: %s", kind, rdma_event_str(kind));
	int devices = 0;
	struct ibv_context **all;
	PROBE_POINTER("rdma_get_devices", (all = rdma_get_devices(&devices)));
	say("its end", "%d devices, %d", devices > 0, !all[devices]);
	rdma_free_devices(all);
	rdma_destroy_event_channel(on);
	rdma_destroy_event_channel(other);
}

static void option(const char *name, int level, int option, const void *value, size_t length)
{
	struct rdma_event_channel *on = channel();
	struct rdma_cm_id *id = identifier(on, RDMA_PS_TCP);
	PROBE(name, rdma_set_option(id, level, option, (void *)value, length));
	rdma_destroy_id(id);
	rdma_destroy_event_channel(on);
}

static void probe_options(void)
{
	const int one = 1;
	const uint8_t few = 14, many = 32;
	option("option TOS", RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &few, sizeof few);
	option("option TOS of four bytes", RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &one, sizeof one);
	option("option REUSEADDR", RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &one, sizeof one);
	option("option REUSEADDR of a byte", RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &few, sizeof few);
	option("option AFONLY", RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &one, sizeof one);
	option("option AFONLY of no bytes", RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &one, 0);
	option("option ACK_TIMEOUT", RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &few, sizeof few);
	option("option ACK_TIMEOUT 32", RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &many, sizeof many);
	option("option 99", RDMA_OPTION_ID, 99, &one, sizeof one);
	option("option of level 7", 7, RDMA_OPTION_ID_TOS, &few, sizeof few);
	option("option IB_PATH of no path", RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &one, 0);
}

/* Binds a second identifier beside one that has a port. */
static void beside(const char *name, const char *first, int first_shares, const char *second, int second_shares, int one_family)
{
	struct rdma_event_channel *on = channel();
	struct rdma_cm_id *one = identifier(on, RDMA_PS_TCP), *two = identifier(on, RDMA_PS_TCP);
	const int yes = 1;
	if (first_shares)
		MUST(!rdma_set_option(one, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, (void *)&yes, sizeof yes));
	if (second_shares)
		MUST(!rdma_set_option(two, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, (void *)&yes, sizeof yes));
	if (one_family)
		MUST(!rdma_set_option(two, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, (void *)&yes, sizeof yes));
	MUST(!rdma_bind_addr(one, AT(first, 7471)));
	PROBE(name, rdma_bind_addr(two, AT(second, 7471)));
	if (first_shares && second_shares) {
		char line[100];
		snprintf(line, sizeof line, "%s, rdma_listen of the first", name);
		PROBE(line, rdma_listen(one, 1));
		rdma_destroy_id(two);
		snprintf(line, sizeof line, "%s, again without the second", name);
		PROBE(line, rdma_listen(one, 1));
		two = identifier(on, RDMA_PS_TCP);
		MUST(!rdma_set_option(two, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, (void *)&yes, sizeof yes));
		snprintf(line, sizeof line, "%s, a third beside the listener", name);
		PROBE(line, rdma_bind_addr(two, AT(second, 7471)));
	}
	rdma_destroy_id(two);
	rdma_destroy_id(one);
	rdma_destroy_event_channel(on);
}

static void bind_one(const char *name, const char *address, int port)
{
	struct rdma_event_channel *on = channel();
	struct rdma_cm_id *id = identifier(on, RDMA_PS_TCP);
	PROBE(name, rdma_bind_addr(id, AT(address, port)));
	char line[100];
	snprintf(line, sizeof line, "%s, then", name);
	say(line, "verbs %d, port %d", !!id->verbs, port_of(id) > 0);
	rdma_destroy_id(id);
	rdma_destroy_event_channel(on);
}

void probe_binding(void)
{
	struct rdma_event_channel *on = channel();
	struct rdma_cm_id *id = identifier(on, RDMA_PS_TCP), *udp = identifier(on, RDMA_PS_UDP);
	const int yes = 1;
	probe_options();
	bind_one("rdma_bind_addr to the own address", own, 0);
	bind_one("rdma_bind_addr to all addresses", "0.0.0.0", 0);
	bind_one("rdma_bind_addr to loopback", "127.0.0.1", 0);
	bind_one("rdma_bind_addr to a foreign address", "203.0.113.5", 0);
	bind_one("rdma_bind_addr to port 80", own, 80);
	PROBE("rdma_bind_addr to no family", rdma_bind_addr(id, &(struct sockaddr){0}));
	PROBE("rdma_bind_addr to nothing", rdma_bind_addr(id, NULL));
	PROBE("rdma_bind_addr to a port", rdma_bind_addr(id, AT(own, 7471)));
	PROBE("rdma_bind_addr again", rdma_bind_addr(id, AT(own, 7472)));
	PROBE("the same port for datagrams", rdma_bind_addr(udp, AT(own, 7471)));
	PROBE("option REUSEADDR too late", rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, (void *)&yes, sizeof yes));
	PROBE("option AFONLY too late", rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, (void *)&yes, sizeof yes));
	PROBE("option TOS after binding", rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, (void *)&(uint8_t){8}, 1));
	attributes("bound", id);
	PROBE("rdma_create_qp when bound", with_queue_pair(id));
	PROBE("rdma_create_qp again", with_queue_pair(id));
	PROBE("rdma_connect when bound", rdma_connect(id, &(struct rdma_conn_param){0}));
	PROBE("rdma_accept when bound", rdma_accept(id, &(struct rdma_conn_param){0}));
	PROBE("rdma_listen", rdma_listen(id, 0));
	PROBE("rdma_listen again", rdma_listen(id, 1));
	PROBE("rdma_bind_addr when it listens", rdma_bind_addr(id, AT(own, 7472)));
	PROBE("rdma_resolve_addr when it listens", rdma_resolve_addr(id, NULL, AT(own, 7472), 100));
	rdma_destroy_qp(id);
	rdma_destroy_id(udp);
	rdma_destroy_id(id);
	id = identifier(on, RDMA_PS_TCP);
	PROBE("rdma_listen without an address", rdma_listen(id, -1));
	say("its port", "%d", port_of(id) > 0);
	rdma_destroy_id(id);
	rdma_destroy_event_channel(on);
	beside("the same address twice", own, 0, own, 0, 0);
	beside("the same address, the first shares", own, 1, own, 0, 0);
	beside("the same address, the second shares", own, 0, own, 1, 0);
	beside("the same address, both share", own, 1, own, 1, 0);
	beside("all addresses beside one", own, 0, "0.0.0.0", 0, 0);
	beside("one address beside all", "0.0.0.0", 0, own, 0, 0);
	beside("all addresses beside one, both share", own, 1, "0.0.0.0", 1, 0);
	beside("all addresses twice", "0.0.0.0", 0, "0.0.0.0", 0, 0);
	beside("all of IPv6 beside all of IPv4", "0.0.0.0", 0, "::", 0, 0);
	beside("all of IPv6 beside all of IPv4, of one family", "0.0.0.0", 0, "::", 0, 1);
	beside("loopback beside the own address", own, 0, "127.0.0.1", 0, 0);
}

static void resolve_one(const char *name, const char *from, const char *to, int port, int limit_ms)
{
	struct rdma_event_channel *on = channel();
	struct rdma_cm_id *id = identifier(on, RDMA_PS_TCP);
	int result;
	errno = 0;
	outcome(name, result = rdma_resolve_addr(id, from ? AT(from, 0) : NULL, AT(to, port), limit_ms));
	char line[100];
	snprintf(line, sizeof line, "%s, its event", name);
	if (!result)
		told(line, on, 10000);
	rdma_destroy_id(id);
	rdma_destroy_event_channel(on);
}

void probe_resolving(void)
{
	struct rdma_event_channel *on = channel();
	struct rdma_cm_id *id = identifier(on, RDMA_PS_TCP);
	resolve_one("rdma_resolve_addr of the own address", NULL, own, 7471, 2000);
	resolve_one("rdma_resolve_addr from the own address", own, own, 7471, 2000);
	resolve_one("rdma_resolve_addr of loopback", NULL, "127.0.0.1", 7471, 2000);
	resolve_one("rdma_resolve_addr of all addresses", NULL, "0.0.0.0", 7471, 2000);
	resolve_one("rdma_resolve_addr of port 0", NULL, own, 0, 2000);
	resolve_one("rdma_resolve_addr from a foreign address", "203.0.113.5", own, 7471, 2000);
	resolve_one("rdma_resolve_addr between families", own, "::1", 7471, 2000);
	resolve_one("rdma_resolve_addr without a route", NULL, "198.51.100.1", 7471, 2000);
	resolve_one("rdma_resolve_addr of a host that is down", NULL, dead, 7471, 700);
	resolve_one("rdma_resolve_addr of a host that is down, without time", NULL, dead, 7471, 0);
	PROBE("rdma_resolve_addr of no family", rdma_resolve_addr(id, NULL, &(struct sockaddr){0}, 100));
	PROBE("rdma_resolve_addr of the dead", rdma_resolve_addr(id, NULL, AT(dead, 7471), 500));
	PROBE("rdma_resolve_addr meanwhile", rdma_resolve_addr(id, NULL, AT(own, 7471), 500));
	PROBE("rdma_bind_addr meanwhile", rdma_bind_addr(id, AT(own, 0)));
	say("verbs meanwhile", "%d", !!id->verbs);
	told("the event", on, 10000);
	say("verbs afterwards", "%d", !!id->verbs);
	PROBE("rdma_bind_addr afterwards", rdma_bind_addr(id, AT(own, 0)));
	PROBE("rdma_resolve_addr once more", rdma_resolve_addr(id, NULL, AT(own, 7471), 500));
	told("the event", on, 10000);
	say("its addresses", "verbs %d, paths %d, source port %d, destination port %d", !!id->verbs, id->route.num_paths,
	    port_of(id) > 0, ntohs(rdma_get_dst_port(id)));
	PROBE("rdma_resolve_addr twice", rdma_resolve_addr(id, NULL, AT(own, 7471), 500));
	PROBE("rdma_bind_addr after resolving", rdma_bind_addr(id, AT(own, 0)));
	PROBE("rdma_listen after resolving", rdma_listen(id, 1));
	PROBE("rdma_connect without a route", rdma_connect(id, &(struct rdma_conn_param){0}));
	attributes("address resolved", id);
	PROBE("rdma_resolve_route", rdma_resolve_route(id, 500));
	told("the event", on, 10000);
	say("its paths", "%d", id->route.num_paths);
	PROBE("rdma_resolve_route twice", rdma_resolve_route(id, 500));
	PROBE("rdma_accept of a client", rdma_accept(id, &(struct rdma_conn_param){0}));
	PROBE("rdma_reject of a client", rdma_reject(id, NULL, 0));
	attributes("route resolved", id);
	PROBE("rdma_create_qp", with_queue_pair(id));
	PROBE("rdma_establish with a queue pair", rdma_establish(id));
	rdma_destroy_qp(id);
	rdma_destroy_id(id);
	id = identifier(on, RDMA_PS_TCP);
	MUST(!rdma_resolve_addr(id, NULL, AT(dead, 7471), 10000));
	PROBE("rdma_destroy_id while it resolves", rdma_destroy_id(id));
	told("then", on, 300);
	rdma_destroy_event_channel(on);
}

static void look_up(const char *name, const char *node, const char *service, struct rdma_addrinfo hints)
{
	struct rdma_addrinfo *found = NULL;
	errno = 0;
	int result = rdma_getaddrinfo(node, service, &hints, &found);
	if (result) {
		/* What is returned for a name is of getaddrinfo. */
		say(name, "%d", result);
		return;
	}
	say(name, "flags %#x, family %d, type %d, space %#x, source %zu, destination %zu, route %zu, data %zu", found->ai_flags,
	    found->ai_family, found->ai_qp_type, found->ai_port_space, (size_t)found->ai_src_len, (size_t)found->ai_dst_len,
	    (size_t)found->ai_route_len, (size_t)found->ai_connect_len);
	rdma_freeaddrinfo(found);
}

void probe_names(void)
{
	look_up("rdma_getaddrinfo", own, "7471", (struct rdma_addrinfo){.ai_port_space = RDMA_PS_TCP});
	look_up("rdma_getaddrinfo, passive", own, "7471", (struct rdma_addrinfo){.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP});
	look_up("rdma_getaddrinfo, passive, all addresses", NULL, "7471", (struct rdma_addrinfo){.ai_flags = RAI_PASSIVE});
	look_up("rdma_getaddrinfo, datagrams", own, "7471", (struct rdma_addrinfo){.ai_port_space = RDMA_PS_UDP});
	look_up("rdma_getaddrinfo, no space", own, "7471", (struct rdma_addrinfo){0});
	look_up("rdma_getaddrinfo, numeric", own, NULL, (struct rdma_addrinfo){.ai_flags = RAI_NUMERICHOST});
	look_up("rdma_getaddrinfo, not numeric", "no.such.host.invalid", "7471", (struct rdma_addrinfo){.ai_flags = RAI_NUMERICHOST});
	look_up("rdma_getaddrinfo, no such service", own, "no such service", (struct rdma_addrinfo){0});
	look_up("rdma_getaddrinfo, other family", own, "7471", (struct rdma_addrinfo){.ai_flags = RAI_FAMILY, .ai_family = AF_INET6});
	look_up("rdma_getaddrinfo, of nothing", NULL, NULL, (struct rdma_addrinfo){0});
}

void probe_privileges(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[2] = {0};
	MUST(!syscall(SYS_capset, &header, none));
	struct rdma_event_channel *on = channel();
	struct rdma_cm_id *id = identifier(on, RDMA_PS_TCP);
	PROBE("rdma_bind_addr to port 1023 without privileges", rdma_bind_addr(id, AT(own, 1023)));
	PROBE("rdma_bind_addr to port 1024 without privileges", rdma_bind_addr(id, AT(own, 1024)));
	rdma_destroy_id(id);
	rdma_destroy_event_channel(on);
}
