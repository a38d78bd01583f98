/* librdmacm's multicast groups: what joining says, who hears whom, and what is refused. */
#include "expect.h"
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <sys/socket.h>

#define REFUSES(call, number) CLAIM((errno = 0, (call) == -1) && errno == (number))
#define ROOM 4096

static struct rdma_event_channel *events;
static struct sockaddr_in own = {.sin_family = AF_INET};

struct node {
	struct rdma_cm_id *id;
	struct ibv_mr *region;
	uint8_t buffer[ROOM];
};

static struct rdma_cm_event *next(enum rdma_cm_event_type wanted)
{
	struct rdma_cm_event *event;
	struct pollfd wait = {.fd = events->fd, .events = POLLIN};
	CLAIM(poll(&wait, 1, 60000) == 1 && rdma_get_cm_event(events, &event) == 0);
	if (event->event != wanted)
		fprintf(stderr, "%s, and not %s\n", rdma_event_str(event->event), rdma_event_str(wanted));
	CLAIM(event->event == wanted);
	return event;
}

static int is_quiet(void)
{
	struct pollfd wait = {.fd = events->fd, .events = POLLIN};
	return poll(&wait, 1, 0) == 0;
}

static struct sockaddr_in group(const char *text)
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	CLAIM(inet_pton(AF_INET, text, &address.sin_addr) == 1);
	return address;
}

static void member(struct node *node, uint32_t create_flags)
{
	struct sockaddr_in at = own;
	CLAIM(rdma_create_id(events, &node->id, node, RDMA_PS_UDP) == 0);
	CLAIM(rdma_bind_addr(node->id, (struct sockaddr *)&at) == 0 && node->id->verbs);
	struct ibv_qp_init_attr_ex wants = {
		.cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_UD,
		.sq_sig_all = 1,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS,
		.pd = node->id->pd,
		.create_flags = create_flags,
	};
	CLAIM(rdma_create_qp_ex(node->id, &wants) == 0);
	CLAIM((node->region = ibv_reg_mr(node->id->pd, node->buffer, ROOM, IBV_ACCESS_LOCAL_WRITE)));
	for (int turn = 0; turn < 8; turn++) {
		struct ibv_sge to = {.addr = (uintptr_t)node->buffer + 1024, .length = 1024, .lkey = node->region->lkey};
		struct ibv_recv_wr receive = {.sg_list = &to, .num_sge = 1}, *bad;
		CLAIM(ibv_post_recv(node->id->qp, &receive, &bad) == 0);
	}
}

/* Joins; the address handle of the group. */
static struct ibv_ah *join(struct node *node, struct sockaddr_in *to, int send_only)
{
	struct rdma_cm_join_mc_attr_ex how = {
		.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
		.join_flags = RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER,
		.addr = (struct sockaddr *)to,
	};
	CLAIM((send_only ? rdma_join_multicast_ex(node->id, &how, &how) : rdma_join_multicast(node->id, (struct sockaddr *)to, to)) == 0);
	struct rdma_cm_event *event = next(RDMA_CM_EVENT_MULTICAST_JOIN);
	CLAIM(event->id == node->id && event->status == 0);
	struct rdma_ud_param *ud = &event->param.ud;
	CLAIM(ud->private_data == (send_only ? (void *)&how : (void *)to) && ud->private_data_len == 0);
	CLAIM(ud->qp_num == 0xffffff && ud->qkey == RDMA_UDP_QKEY);
	/* An IPv4 group is mapped into an IPv6 address, as Linux does for RoCEv2. */
	uint8_t mapped[16] = {[10] = 0xff, [11] = 0xff};
	memcpy(mapped + 12, &to->sin_addr, 4);
	CLAIM(ud->ah_attr.is_global && !memcmp(ud->ah_attr.grh.dgid.raw, mapped, 16) && ud->ah_attr.grh.hop_limit == 64);
	struct ibv_ah *handle = ibv_create_ah(node->id->pd, &ud->ah_attr);
	CLAIM(handle && rdma_ack_cm_event(event) == 0);
	return handle;
}

static void leave(struct node *node, struct sockaddr_in *from, struct ibv_ah *handle)
{
	CLAIM(rdma_leave_multicast(node->id, (struct sockaddr *)from) == 0);
	REFUSES(rdma_leave_multicast(node->id, (struct sockaddr *)from), EADDRNOTAVAIL);
	CLAIM(ibv_destroy_ah(handle) == 0);
}

static void gone(struct node *node)
{
	rdma_destroy_qp(node->id);
	CLAIM(!node->id->qp && ibv_dereg_mr(node->region) == 0 && rdma_destroy_id(node->id) == 0);
}

static struct ibv_wc completed(struct ibv_cq *of)
{
	struct ibv_wc wc;
	time_t end = time(NULL) + 60;
	int count;
	while ((count = ibv_poll_cq(of, 1, &wc)) == 0)
		CLAIM(time(NULL) <= end);
	CLAIM(count == 1 && wc.status == IBV_WC_SUCCESS);
	return wc;
}

static void send_to(struct node *node, struct ibv_ah *to, uint32_t number)
{
	memset(node->buffer, (int)number, 64);
	struct ibv_sge from = {.addr = (uintptr_t)node->buffer, .length = 64, .lkey = node->region->lkey};
	struct ibv_send_wr send = {
		.sg_list = &from,
		.num_sge = 1,
		.opcode = IBV_WR_SEND_WITH_IMM,
		.imm_data = htonl(number),
		.wr.ud = {.ah = to, .remote_qpn = 0xffffff, .remote_qkey = RDMA_UDP_QKEY},
	}, *bad;
	CLAIM(ibv_post_send(node->id->qp, &send, &bad) == 0);
	completed(node->id->send_cq);
}

static void hears(struct node *node, uint32_t number)
{
	struct ibv_wc wc = completed(node->id->recv_cq);
	CLAIM(ntohl(wc.imm_data) == number && wc.byte_len == 40 + 64);
	CLAIM(node->buffer[1024 + 40] == (uint8_t)number && node->buffer[1024 + 40 + 63] == (uint8_t)number);
}

static int hears_nothing(struct node *node)
{
	struct ibv_wc wc;
	return ibv_poll_cq(node->id->recv_cq, 1, &wc) == 0;
}

static struct node one, other, mute;

static void members_hear_each_other_and_themselves(void)
{
	struct sockaddr_in first = group("239.104.1.1"), second = group("239.104.1.2");
	member(&one, 0);
	member(&other, 0);
	member(&mute, IBV_QP_CREATE_BLOCK_SELF_MCAST_LB);
	struct ibv_ah *of_one = join(&one, &first, 0), *of_other = join(&other, &first, 0), *of_mute = join(&mute, &first, 0);
	send_to(&one, of_one, 1);
	hears(&one, 1);
	hears(&other, 1);
	hears(&mute, 1);
	/* Who has asked not to hear himself does not; the others do. */
	send_to(&mute, of_mute, 2);
	hears(&one, 2);
	hears(&other, 2);
	send_to(&one, of_one, 3);
	hears(&one, 3);
	hears(&mute, 3);
	hears(&other, 3);
	/* Who sends only hears nothing; who has left neither. */
	leave(&other, &first, of_other);
	of_other = join(&other, &second, 1);
	struct ibv_ah *in_second = join(&one, &second, 0);
	send_to(&other, of_other, 4);
	hears(&one, 4);
	send_to(&mute, of_mute, 5);
	hears(&one, 5);
	CLAIM(hears_nothing(&other) && hears_nothing(&mute));
	leave(&other, &second, of_other);
	leave(&one, &second, in_second);
	leave(&mute, &first, of_mute);
	CLAIM(ibv_destroy_ah(of_one) == 0);
	/* One still is a member: its queue pair goes all the same. */
	gone(&one);
	gone(&other);
	gone(&mute);
	CLAIM(is_quiet());
}

static void leaving_takes_back_what_was_not_fetched(void)
{
	struct sockaddr_in to = group("239.104.1.3");
	member(&one, 0);
	CLAIM(rdma_join_multicast(one.id, (struct sockaddr *)&to, NULL) == 0 && !is_quiet());
	CLAIM(rdma_leave_multicast(one.id, (struct sockaddr *)&to) == 0 && is_quiet());
	gone(&one);
}

static void a_synchronous_identifier_joins_at_once(void)
{
	struct sockaddr_in to = group("239.104.1.4"), at = own;
	struct rdma_cm_id *id;
	CLAIM(rdma_create_id(NULL, &id, NULL, RDMA_PS_UDP) == 0 && rdma_bind_addr(id, (struct sockaddr *)&at) == 0);
	CLAIM(rdma_join_multicast(id, (struct sockaddr *)&to, &to) == 0);
	CLAIM(id->event->event == RDMA_CM_EVENT_MULTICAST_JOIN && id->event->param.ud.private_data == &to);
	CLAIM(rdma_leave_multicast(id, (struct sockaddr *)&to) == 0 && rdma_destroy_id(id) == 0);
}

static void what_is_wrong_is_refused(void)
{
	struct sockaddr_in to = group("239.104.1.5"), at = own;
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
	CLAIM(inet_pton(AF_INET6, "ff0e::1", &v6.sin6_addr) == 1);
	struct rdma_cm_id *id;
	CLAIM(rdma_create_id(events, &id, NULL, RDMA_PS_UDP) == 0);
	REFUSES(rdma_join_multicast(id, (struct sockaddr *)&to, NULL), EINVAL);
	CLAIM(rdma_bind_addr(id, (struct sockaddr *)&at) == 0);
	REFUSES(rdma_join_multicast(id, NULL, NULL), EINVAL);
	REFUSES(rdma_join_multicast(NULL, (struct sockaddr *)&to, NULL), EINVAL);
	REFUSES(rdma_join_multicast(id, (struct sockaddr *)&own, NULL), EINVAL);
	REFUSES(rdma_join_multicast(id, (struct sockaddr *)&v6, NULL), EINVAL);
	struct rdma_cm_join_mc_attr_ex how = {.comp_mask = 4, .addr = (struct sockaddr *)&to};
	REFUSES(rdma_join_multicast_ex(id, &how, NULL), ENOTSUP);
	how.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS;
	REFUSES(rdma_join_multicast_ex(id, &how, NULL), EINVAL);
	how.comp_mask |= RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
	how.join_flags = RDMA_MC_JOIN_FLAG_RESERVED;
	REFUSES(rdma_join_multicast_ex(id, &how, NULL), EINVAL);
	REFUSES(rdma_join_multicast_ex(id, NULL, NULL), EINVAL);
	REFUSES(rdma_leave_multicast(id, (struct sockaddr *)&to), EADDRNOTAVAIL);
	CLAIM(rdma_destroy_id(id) == 0);
	CLAIM(rdma_create_id(events, &id, NULL, RDMA_PS_TCP) == 0 && rdma_bind_addr(id, (struct sockaddr *)&at) == 0);
	REFUSES(rdma_join_multicast(id, (struct sockaddr *)&to, NULL), EINVAL);
	CLAIM(rdma_destroy_id(id) == 0 && is_quiet());
}

int main(void)
{
	CLAIM(inet_pton(AF_INET, getenv("PUMICE_ADDR"), &own.sin_addr) == 1);
	CLAIM((events = rdma_create_event_channel()));
	members_hear_each_other_and_themselves();
	leaving_takes_back_what_was_not_fetched();
	a_synchronous_identifier_joins_at_once();
	what_is_wrong_is_refused();
	rdma_destroy_event_channel(events);
	return 0;
}
