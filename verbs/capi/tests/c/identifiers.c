/* librdmacm's synchronous endpoints, XRC and its shared receive queues among them; addresses as names, as GIDs
 * and as paths; events of the program's own. */
#include "expect.h"
#include <arpa/inet.h>
#include <infiniband/ib.h>
#include <netdb.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <sys/socket.h>

#define REFUSES(call, number) CLAIM((errno = 0, (call) == -1) && errno == (number))

/* Of rdma-core since 56, whose headers may not be here. */
int rdma_resolve_addrinfo(struct rdma_cm_id *id, const char *node, const char *service, const struct rdma_addrinfo *hints);
int rdma_query_addrinfo(struct rdma_cm_id *id, struct rdma_addrinfo **info);
int rdma_write_cm_event(struct rdma_cm_id *id, enum rdma_cm_event_type event, int status, uint64_t arg);
#define SA 0x10
#define DNS 0x20
enum { ADDRINFO_RESOLVED = 16, ADDRINFO_ERROR = 17, USER = 18 };

static const char *own;
static char port[8];

static struct rdma_addrinfo *info(const char *node, int flags, int space, int type)
{
	struct rdma_addrinfo hints = {.ai_flags = flags, .ai_port_space = space, .ai_qp_type = type}, *found = NULL;
	if (flags & RAI_FAMILY)
		hints.ai_family = AF_IB;
	CLAIM(rdma_getaddrinfo(node, flags & RAI_PASSIVE ? "0" : port, &hints, &found) == 0 && found);
	CLAIM(found->ai_port_space == space && found->ai_qp_type == type && !found->ai_next);
	return found;
}

static struct rdma_cm_id *listening(int flags, int space, int type, struct ibv_qp_init_attr *wants)
{
	struct rdma_cm_id *id;
	struct rdma_addrinfo *at = info(own, flags | RAI_PASSIVE, space, type);
	CLAIM(at->ai_flags == RAI_PASSIVE && at->ai_src_addr && !at->ai_dst_addr);
	CLAIM(rdma_create_ep(&id, at, NULL, wants) == 0 && id->qp_type == (unsigned)type && id->verbs);
	rdma_freeaddrinfo(at);
	CLAIM(rdma_listen(id, 1) == 0);
	snprintf(port, sizeof(port), "%d", ntohs(rdma_get_src_port(id)));
	return id;
}

static struct rdma_cm_id *asked;
static uint8_t received[64];
static struct ibv_mr *to;
static volatile int step;
static uint32_t number;

/* The passive side of an XRC connection. */
static void *receives(void *listener)
{
	struct rdma_cm_id *waits = listener;
	CLAIM(rdma_get_request(waits, &asked) == 0);
	CLAIM(asked->qp_type == IBV_QPT_XRC_RECV && asked->qp && asked->qp->qp_type == IBV_QPT_XRC_RECV);
	struct ibv_srq_init_attr wants = {.attr = {.max_wr = 4, .max_sge = 1}, .srq_context = asked};
	CLAIM(rdma_create_srq(asked, NULL, &wants) == 0 && asked->srq && asked->srq->srq_context == asked);
	CLAIM(asked->recv_cq && wants.attr.max_wr >= 4);
	REFUSES(rdma_create_srq(asked, NULL, &wants), EINVAL);
	CLAIM(ibv_get_srq_num(asked->srq, &number) == 0);
	CLAIM((to = rdma_reg_msgs(asked, received, sizeof(received))));
	CLAIM(rdma_post_recv(asked, NULL, received, sizeof(received), to) == 0);
	struct rdma_conn_param says = {.private_data = &number, .private_data_len = 4, .responder_resources = 1};
	CLAIM(rdma_accept(asked, &says) == 0);
	struct ibv_wc wc;
	CLAIM(rdma_get_recv_comp(asked, &wc) == 1 && wc.status == IBV_WC_SUCCESS && wc.byte_len == sizeof(received));
	/* Returns when both have said it. */
	CLAIM(rdma_disconnect(asked) == 0 && asked->event->event == RDMA_CM_EVENT_DISCONNECTED);
	return NULL;
}

static void xrc_connects_through_identifiers(int flags)
{
	struct ibv_qp_init_attr wants = {.cap = {.max_recv_wr = 1, .max_recv_sge = 1}};
	struct rdma_cm_id *waits = listening(flags, RDMA_PS_IB, IBV_QPT_XRC_RECV, &wants), *asks;
	pthread_t passive;
	CLAIM(pthread_create(&passive, NULL, receives, waits) == 0);
	struct rdma_addrinfo *peer = info(own, flags, RDMA_PS_IB, IBV_QPT_XRC_SEND);
	struct ibv_qp_init_attr sends = {.cap = {.max_send_wr = 1, .max_send_sge = 1}, .sq_sig_all = 1};
	CLAIM(rdma_create_ep(&asks, peer, NULL, &sends) == 0 && asks->qp->qp_type == IBV_QPT_XRC_SEND);
	rdma_freeaddrinfo(peer);
	int family = flags & RAI_FAMILY ? AF_IB : AF_INET;
	CLAIM(rdma_get_peer_addr(asks)->sa_family == family && rdma_get_local_addr(asks)->sa_family == family);
	CLAIM(rdma_get_dst_port(asks) == htons(atoi(port)) && rdma_get_src_port(asks) != 0);
	CLAIM(rdma_connect(asks, NULL) == 0 && asks->event->event == RDMA_CM_EVENT_ESTABLISHED);
	uint32_t srq;
	memcpy(&srq, asks->event->param.conn.private_data, 4);
	static uint8_t sent[64];
	memset(sent, 0x5a + flags, sizeof(sent));
	struct ibv_mr *from = rdma_reg_msgs(asks, sent, sizeof(sent));
	struct ibv_sge sge = {.addr = (uintptr_t)sent, .length = sizeof(sent), .lkey = from->lkey};
	struct ibv_send_wr send = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .qp_type.xrc.remote_srqn = srq}, *bad;
	CLAIM(ibv_post_send(asks->qp, &send, &bad) == 0);
	struct ibv_wc wc;
	CLAIM(rdma_get_send_comp(asks, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	CLAIM(rdma_disconnect(asks) == 0);
	CLAIM(pthread_join(passive, NULL) == 0 && srq == number && !memcmp(sent, received, sizeof(sent)));
	CLAIM(rdma_get_peer_addr(asked)->sa_family == family);
	rdma_dereg_mr(from);
	rdma_dereg_mr(to);
	rdma_destroy_ep(asks);
	rdma_destroy_ep(asked);
	rdma_destroy_ep(waits);
}

static void shared_receive_queues_have_what_they_name(void)
{
	struct rdma_cm_id *id;
	struct sockaddr_in at = {.sin_family = AF_INET};
	CLAIM(inet_pton(AF_INET, own, &at.sin_addr) == 1);
	CLAIM(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == 0);
	struct ibv_srq_init_attr wants = {.attr = {.max_wr = 4, .max_sge = 1}};
	REFUSES(rdma_create_srq(id, NULL, &wants), EINVAL);
	CLAIM(rdma_bind_addr(id, (struct sockaddr *)&at) == 0);
	REFUSES(rdma_create_srq(id, NULL, NULL), EINVAL);
	struct ibv_srq_init_attr_ex more = {.attr = wants.attr};
	REFUSES(rdma_create_srq_ex(id, &more), EINVAL);
	/* A basic one, which the queue pair then has. */
	CLAIM(rdma_create_srq(id, NULL, &wants) == 0 && id->srq && !id->recv_cq);
	struct ibv_qp_init_attr pair = {.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1}, .qp_type = IBV_QPT_RC};
	CLAIM(rdma_create_qp(id, NULL, &pair) == 0 && id->qp->srq == id->srq);
	rdma_destroy_qp(id);
	rdma_destroy_srq(id);
	CLAIM(!id->srq && !id->qp);
	/* An XRC one, whose domain and completion queue the caller does not name. */
	more.comp_mask = IBV_SRQ_INIT_ATTR_TYPE;
	more.srq_type = IBV_SRQT_XRC;
	CLAIM(rdma_create_srq_ex(id, &more) == 0 && id->srq && id->recv_cq && more.xrcd && more.cq == id->recv_cq);
	rdma_destroy_srq(id);
	CLAIM(!id->srq && !id->recv_cq && rdma_destroy_id(id) == 0);
}

static void names_become_addresses(void)
{
	struct rdma_addrinfo hints = {0}, *found;
	REFUSES(rdma_getaddrinfo(NULL, NULL, NULL, &found), EINVAL);
	REFUSES(rdma_getaddrinfo(own, "7", NULL, NULL), EINVAL);
	CLAIM(rdma_getaddrinfo(own, "7", NULL, &found) == 0);
	CLAIM(found->ai_port_space == RDMA_PS_TCP && found->ai_qp_type == IBV_QPT_RC && found->ai_family == AF_INET);
	CLAIM(found->ai_dst_len == sizeof(struct sockaddr_in) && ((struct sockaddr_in *)found->ai_dst_addr)->sin_port == htons(7));
	CLAIM(!found->ai_src_addr && !found->ai_src_len && !found->ai_flags);
	rdma_freeaddrinfo(found);
	hints.ai_flags = RAI_NUMERICHOST;
	CLAIM(rdma_getaddrinfo("no.such.name.", "7", &hints, &found) == EAI_NONAME);
	hints.ai_family = AF_INET6;
	CLAIM(rdma_getaddrinfo("::1", "7", &hints, &found) == 0 && found->ai_family == AF_INET6);
	CLAIM(found->ai_dst_len == sizeof(struct sockaddr_in6));
	rdma_freeaddrinfo(found);
	/* Without a name: the wildcard, for who listens; the hint's addresses. */
	struct sockaddr_in source = {.sin_family = AF_INET, .sin_port = htons(9)};
	hints = (struct rdma_addrinfo){.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_UDP, .ai_family = AF_INET};
	CLAIM(rdma_getaddrinfo(NULL, "7", &hints, &found) == 0 && found->ai_qp_type == IBV_QPT_UD);
	CLAIM(((struct sockaddr_in *)found->ai_src_addr)->sin_addr.s_addr == 0 && !found->ai_dst_addr);
	rdma_freeaddrinfo(found);
	hints = (struct rdma_addrinfo){.ai_src_addr = (struct sockaddr *)&source, .ai_src_len = sizeof(source)};
	CLAIM(rdma_getaddrinfo(own, "7", &hints, &found) == 0 && found->ai_src_len == sizeof(source));
	CLAIM(found->ai_src_addr != hints.ai_src_addr && ((struct sockaddr_in *)found->ai_src_addr)->sin_port == htons(9));
	rdma_freeaddrinfo(found);
	hints = (struct rdma_addrinfo){.ai_dst_addr = (struct sockaddr *)&source, .ai_dst_len = sizeof(source), .ai_port_space = RDMA_PS_IB};
	CLAIM(rdma_getaddrinfo(NULL, NULL, &hints, &found) == 0 && found->ai_dst_len == sizeof(source));
	rdma_freeaddrinfo(found);
	hints = (struct rdma_addrinfo){.ai_flags = SA};
	REFUSES(rdma_getaddrinfo(NULL, "7", &hints, &found), EOPNOTSUPP);
	/* As a GID, with the service. */
	hints = (struct rdma_addrinfo){
		.ai_flags = RAI_NUMERICHOST | RAI_FAMILY, .ai_family = AF_IB, .ai_port_space = RDMA_PS_TCP, .ai_qp_type = IBV_QPT_RC};
	CLAIM(rdma_getaddrinfo(own, "4660", &hints, &found) == 0 && found->ai_family == AF_IB);
	struct sockaddr_ib *gid = (struct sockaddr_ib *)found->ai_dst_addr;
	CLAIM(found->ai_dst_len == sizeof(*gid) && gid->sib_family == AF_IB && gid->sib_sid == htobe64(0x1061234));
	CLAIM(gid->sib_addr.sib_addr16[5] == 0xffff && gid->sib_pkey == 0xffff && gid->sib_sid_mask == ~0ull);
	rdma_freeaddrinfo(found);
}

static void names_are_resolved_by_events(void)
{
	struct rdma_event_channel *events = rdma_create_event_channel();
	struct rdma_cm_id *id;
	struct rdma_cm_event *event;
	struct rdma_addrinfo hints = {.ai_flags = SA}, *found = NULL;
	CLAIM(events && rdma_create_id(events, &id, NULL, RDMA_PS_TCP) == 0);
	REFUSES(rdma_query_addrinfo(id, &found), ENOENT);
	REFUSES(rdma_resolve_addrinfo(id, NULL, "7", &hints), ENOTSUP);
	hints.ai_flags = DNS | RAI_NUMERICHOST;
	CLAIM(rdma_resolve_addrinfo(id, own, "7", &hints) == 0);
	REFUSES(rdma_resolve_addrinfo(id, own, "7", &hints), EBUSY);
	CLAIM(rdma_get_cm_event(events, &event) == 0 && event->id == id && (int)event->event == ADDRINFO_RESOLVED && !event->status);
	CLAIM(!strcmp(rdma_event_str(event->event), "RDMA_CM_EVENT_ADDRINFO_RESOLVED") && rdma_ack_cm_event(event) == 0);
	REFUSES(rdma_query_addrinfo(id, NULL), EINVAL);
	CLAIM(rdma_query_addrinfo(id, &found) == 0 && ((struct sockaddr_in *)found->ai_dst_addr)->sin_port == htons(7));
	rdma_freeaddrinfo(found);
	REFUSES(rdma_query_addrinfo(id, &found), ENOENT);
	CLAIM(rdma_resolve_addrinfo(id, "no.such.name.", "7", &hints) == 0);
	CLAIM(rdma_get_cm_event(events, &event) == 0 && (int)event->event == ADDRINFO_ERROR && event->status == EAI_NONAME);
	CLAIM(rdma_ack_cm_event(event) == 0);
	/* An answer that the program does not ask for goes with the identifier. */
	CLAIM(rdma_resolve_addrinfo(id, own, "7", &hints) == 0);
	/* The program's own event comes after it. */
	REFUSES(rdma_write_cm_event(id, RDMA_CM_EVENT_ESTABLISHED, 0, 0), EINVAL);
	REFUSES(rdma_write_cm_event(NULL, USER, 0, 0), EINVAL);
	CLAIM(rdma_write_cm_event(id, USER, -5, 0x1122334455667788) == 0);
	CLAIM(rdma_get_cm_event(events, &event) == 0 && rdma_ack_cm_event(event) == 0);
	CLAIM(rdma_get_cm_event(events, &event) == 0 && (int)event->event == USER && event->status == -5);
	uint64_t arg;
	memcpy(&arg, &event->param, sizeof(arg));
	CLAIM(arg == 0x1122334455667788 && rdma_ack_cm_event(event) == 0);
	CLAIM(!strcmp(rdma_event_str(USER), "RDMA_CM_EVENT_USER") && !strcmp(rdma_event_str(99), "UNKNOWN EVENT"));
	CLAIM(rdma_destroy_id(id) == 0);
	rdma_destroy_event_channel(events);
}

/* Instead of resolving a route. */
static void a_path_is_set(void)
{
	struct rdma_event_channel *events = rdma_create_event_channel();
	struct rdma_cm_id *id;
	struct rdma_cm_event *event;
	struct sockaddr_in peer = {.sin_family = AF_INET, .sin_port = htons(7)};
	CLAIM(events && inet_pton(AF_INET, own, &peer.sin_addr) == 1);
	CLAIM(rdma_create_id(events, &id, NULL, RDMA_PS_TCP) == 0);
	struct ibv_path_data path = {
		.flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL,
		.path = {.flowlabel_hoplimit = htonl(0x12345 << 8 | 7), .tclass = 0x20, .mtu = 2 << 6 | IBV_MTU_512},
	};
	REFUSES(rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &path, sizeof(path)), EINVAL);
	CLAIM(rdma_resolve_addr(id, NULL, (struct sockaddr *)&peer, 100) == 0);
	CLAIM(rdma_get_cm_event(events, &event) == 0 && rdma_ack_cm_event(event) == 0);
	REFUSES(rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &path, sizeof(path)), EINVAL);
	path.path.sgid = id->route.addr.addr.ibaddr.sgid;
	path.path.dgid = id->route.addr.addr.ibaddr.dgid;
	REFUSES(rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &path, sizeof(path) - 1), EINVAL);
	REFUSES(rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, NULL, sizeof(path)), EINVAL);
	REFUSES(rdma_set_option(id, RDMA_OPTION_IB, 7, &path, sizeof(path)), ENOSYS);
	struct ibv_path_data paths[2] = {path, path};
	paths[0].flags = IBV_PATH_FLAG_ALTERNATE;
	CLAIM(rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, paths, sizeof(paths)) == 0);
	CLAIM(rdma_get_cm_event(events, &event) == 0 && event->event == RDMA_CM_EVENT_ROUTE_RESOLVED);
	CLAIM(rdma_ack_cm_event(event) == 0 && id->route.num_paths == 1);
	struct ibv_sa_path_rec *shown = id->route.path_rec;
	CLAIM(shown->mtu == IBV_MTU_512 && shown->hop_limit == 7 && shown->traffic_class == 0x20);
	CLAIM(shown->flow_label == htonl(0x12345));
	CLAIM(rdma_destroy_id(id) == 0);
	rdma_destroy_event_channel(events);
}

static struct rdma_cm_event *next_of(struct rdma_event_channel *events, enum rdma_cm_event_type want)
{
	struct rdma_cm_event *event;
	CLAIM(rdma_get_cm_event(events, &event) == 0 && event->event == want);
	return event;
}

/* The addresses of both ends are in the path: no header takes room from the program's data, at neither end. */
static void requests_by_gid_have_all_of_the_room(int space, int room)
{
	struct rdma_event_channel *to = rdma_create_event_channel(), *from = rdma_create_event_channel();
	struct rdma_cm_id *waits, *asks;
	struct rdma_cm_event *event;
	struct rdma_addrinfo *at = info(own, RAI_NUMERICHOST | RAI_FAMILY | RAI_PASSIVE, space, space == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC);
	CLAIM(to && from && rdma_create_id(to, &waits, NULL, space) == 0 && rdma_create_id(from, &asks, NULL, space) == 0);
	CLAIM(at->ai_src_addr->sa_family == AF_IB && rdma_bind_addr(waits, at->ai_src_addr) == 0 && rdma_listen(waits, 1) == 0);
	struct sockaddr_ib peer = *(struct sockaddr_ib *)at->ai_src_addr;
	rdma_freeaddrinfo(at);
	peer.sib_sid = htobe64((uint64_t)space << 16 | ntohs(rdma_get_src_port(waits)));
	CLAIM(rdma_resolve_addr(asks, NULL, (struct sockaddr *)&peer, 1000) == 0);
	rdma_ack_cm_event(next_of(from, RDMA_CM_EVENT_ADDR_RESOLVED));
	CLAIM(rdma_resolve_route(asks, 1000) == 0);
	rdma_ack_cm_event(next_of(from, RDMA_CM_EVENT_ROUTE_RESOLVED));
	uint8_t said[256];
	for (int i = 0; i < 256; i++)
		said[i] = i;
	struct rdma_conn_param given = {.private_data = said, .private_data_len = room + 1, .qp_num = 7, .retry_count = 7};
	REFUSES(rdma_connect(asks, &given), EINVAL);
	given.private_data_len = room;
	CLAIM(rdma_connect(asks, &given) == 0);
	event = next_of(to, RDMA_CM_EVENT_CONNECT_REQUEST);
	const struct sockaddr_ib *whose = (struct sockaddr_ib *)&event->id->route.addr.dst_storage;
	CLAIM(whose->sib_family == AF_IB && !memcmp(&whose->sib_addr, &peer.sib_addr, 16));
	const void *heard = space == RDMA_PS_UDP ? event->param.ud.private_data : event->param.conn.private_data;
	CLAIM(event->param.conn.private_data_len == room && !memcmp(heard, said, room));
	CLAIM(rdma_reject(event->id, said, space == RDMA_PS_UDP ? 136 : 148) == 0);
	struct rdma_cm_id *request = event->id;
	rdma_ack_cm_event(event);
	event = next_of(from, space == RDMA_PS_UDP ? RDMA_CM_EVENT_UNREACHABLE : RDMA_CM_EVENT_REJECTED);
	rdma_ack_cm_event(event);
	CLAIM(rdma_destroy_id(request) == 0 && rdma_destroy_id(asks) == 0 && rdma_destroy_id(waits) == 0);
	rdma_destroy_event_channel(from);
	rdma_destroy_event_channel(to);
}

/* As Linux, which compares the credentials of each command with those of the channel's opener. */
static void a_channel_is_its_openers(void)
{
	struct rdma_event_channel *events = rdma_create_event_channel();
	struct rdma_cm_id *id, *other;
	struct sockaddr_in at = {.sin_family = AF_INET};
	CLAIM(events && rdma_create_id(events, &id, NULL, RDMA_PS_TCP) == 0);
	if (geteuid() == 0 && seteuid(65534) == 0) {
		REFUSES(rdma_create_id(events, &other, NULL, RDMA_PS_TCP), EACCES);
		REFUSES(rdma_bind_addr(id, (struct sockaddr *)&at), EACCES);
		REFUSES(rdma_destroy_id(id), EACCES);
		CLAIM(rdma_get_src_port(id) == 0 && seteuid(0) == 0);
	}
	CLAIM(rdma_destroy_id(id) == 0);
	rdma_destroy_event_channel(events);
}

int main(void)
{
	own = getenv("PUMICE_ADDR");
	xrc_connects_through_identifiers(0);
	xrc_connects_through_identifiers(RAI_NUMERICHOST | RAI_FAMILY);
	shared_receive_queues_have_what_they_name();
	names_become_addresses();
	names_are_resolved_by_events();
	a_path_is_set();
	a_channel_is_its_openers();
	requests_by_gid_have_all_of_the_room(RDMA_PS_TCP, 92);
	requests_by_gid_have_all_of_the_room(RDMA_PS_IB, 92);
	requests_by_gid_have_all_of_the_room(RDMA_PS_UDP, 216);
	return 0;
}
