/* Raw packet queue pairs and flow rules, on the interface that the device's address is on.
 *
 * raw_packets              with the right CAP_NET_RAW
 * raw_packets peer NAME    the same, and NAME is the other end of the interface's cable: a packet socket there is the peer
 * raw_packets forbidden    gives the right up first
 */
#define _GNU_SOURCE
#include "expect.h"
#include <arpa/inet.h>
#include <linux/capability.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/syscall.h>

enum { FRAME = 60, SOURCE = 0, PLACE = 1024, OTHER = 2048 };

static struct ibv_qp *a, *b;

/* Everything a rule of these tests may have. */
struct rule {
	struct ibv_flow_attr attr;
	uint8_t specs[256];
};
_Static_assert(offsetof(struct rule, specs) == sizeof(struct ibv_flow_attr), "specifications follow the attributes");

static struct rule rule_for(enum ibv_flow_attr_type type, int priority)
{
	struct rule rule = {.attr = {.type = type, .size = sizeof(rule.attr), .priority = priority, .port = 1}};
	return rule;
}

static void add(struct rule *rule, const void *spec, size_t size)
{
	memcpy((char *)rule + rule->attr.size, spec, size);
	rule->attr.size += size;
	rule->attr.num_of_specs++;
}

static struct ibv_flow_spec_eth to_address(uint8_t last)
{
	struct ibv_flow_spec_eth spec = {.type = IBV_FLOW_SPEC_ETH, .size = sizeof(spec)};
	memcpy(spec.val.dst_mac, (uint8_t[]){2, 0, 0, 0, 0, last}, 6);
	memset(spec.mask.dst_mac, 0xff, 6);
	return spec;
}

static struct ibv_flow *made(struct ibv_qp *qp, struct rule *rule)
{
	struct ibv_flow *flow = ibv_create_flow(qp, &rule->attr);
	CLAIM(flow && flow->context == ctx);
	return flow;
}

static struct ibv_flow *rule_to(struct ibv_qp *qp, uint8_t last, int priority)
{
	struct rule rule = rule_for(IBV_FLOW_ATTR_NORMAL, priority);
	struct ibv_flow_spec_eth spec = to_address(last);
	add(&rule, &spec, sizeof(spec));
	return made(qp, &rule);
}

/* A frame to 02:00:00:00:00:`last`, of a type that no network has. */
static void put_frame(uint8_t *frame, uint8_t last, uint8_t filling)
{
	memset(frame, filling, FRAME);
	memcpy(frame, (uint8_t[]){2, 0, 0, 0, 0, last, 2, 0, 0, 0, 1, 1, 0x88, 0xb5}, 14);
}

static uint8_t *at(unsigned offset)
{
	return (uint8_t *)memory + offset;
}

static void send_frame(struct ibv_qp *qp, uint32_t length, int flags)
{
	struct ibv_sge sge = piece(SOURCE, length);
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED | flags}, *bad;
	FAILS(ibv_post_send(qp, &wr, &bad), 0);
}

/* `from` sends a frame, and the next completion of a receive, at PLACE, is that frame. */
static void arrives(struct ibv_qp *from, uint32_t length, int flags)
{
	memset(at(PLACE), 0, 512);
	send_frame(from, length, flags);
	int sends = 0, receives = 0;
	while (sends + receives < 2) {
		struct ibv_wc wc = completion();
		CLAIM(wc.status == IBV_WC_SUCCESS);
		if (wc.opcode == IBV_WC_SEND) {
			sends++;
			continue;
		}
		CLAIM(wc.opcode == IBV_WC_RECV && wc.byte_len == length && wc.qp_num == b->qp_num);
		receives++;
	}
	CLAIM(sends == 1 && !memcmp(at(PLACE), at(SOURCE), length));
}

static struct ibv_qp *raw_queue_pair(void)
{
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RAW_PACKET);
	struct ibv_qp *qp = ibv_create_qp(pd, &wants);
	CLAIM(qp && qp->qp_type == IBV_QPT_RAW_PACKET);
	return qp;
}

static void to_rts(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	FAILS(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT), 0);
	attr.qp_state = IBV_QPS_RTR;
	FAILS(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
	attr.qp_state = IBV_QPS_RTS;
	FAILS(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
}

static void states(void)
{
	struct ibv_qp *qp = raw_queue_pair();
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	FAILS(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
	FAILS(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX), EINVAL);
	FAILS(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_QKEY), EINVAL);
	to_rts(qp);
	struct ibv_qp_init_attr init;
	FAILS(ibv_query_qp(qp, &attr, IBV_QP_STATE | IBV_QP_CAP, &init), 0);
	CLAIM(attr.qp_state == IBV_QPS_RTS && attr.cap.max_send_wr == 20 && init.qp_type == IBV_QPT_RAW_PACKET);
	FAILS(ibv_destroy_qp(qp), 0);
}

static void rules_that_are_refused(void)
{
	struct rule rule = rule_for(IBV_FLOW_ATTR_NORMAL, 0);
	struct ibv_qp *other, *rc = pair(IBV_QPT_RC, &other);
	REFUSED(ibv_create_flow(rc, &rule.attr), EINVAL);
	FAILS(ibv_destroy_qp(rc), 0);
	FAILS(ibv_destroy_qp(other), 0);
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_UD);
	struct ibv_qp *ud = ibv_create_qp(pd, &wants);
	REFUSED(ibv_create_flow(ud, &rule.attr), EOPNOTSUPP);
	FAILS(ibv_destroy_qp(ud), 0);
	REFUSED(ibv_create_flow(b, NULL), EINVAL);
	rule.attr.port = 2;
	REFUSED(ibv_create_flow(b, &rule.attr), EINVAL);
	rule = rule_for((enum ibv_flow_attr_type)4, 0);
	REFUSED(ibv_create_flow(b, &rule.attr), EINVAL);
	rule = rule_for(IBV_FLOW_ATTR_NORMAL, 0);
	rule.attr.flags = IBV_FLOW_ATTR_FLAGS_EGRESS;
	REFUSED(ibv_create_flow(b, &rule.attr), EOPNOTSUPP);
	rule.attr.flags = 1 << 20;
	REFUSED(ibv_create_flow(b, &rule.attr), EINVAL);
	/* Behind the default rules is no other. */
	rule = rule_for(IBV_FLOW_ATTR_MC_DEFAULT, 0);
	rule.attr.flags = IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
	REFUSED(ibv_create_flow(b, &rule.attr), EINVAL);
	rule.attr.type = IBV_FLOW_ATTR_ALL_DEFAULT;
	REFUSED(ibv_create_flow(b, &rule.attr), EINVAL);
	static const struct {
		int type, size, number;
	} specs[] = {
		{IBV_FLOW_SPEC_ETH, sizeof(struct ibv_flow_spec_eth) - 2, EINVAL},
		{IBV_FLOW_SPEC_IPV6, sizeof(struct ibv_flow_spec_eth), EINVAL},
		{IBV_FLOW_SPEC_ACTION_DROP, 0, EINVAL},
		{IBV_FLOW_SPEC_ETH | IBV_FLOW_SPEC_INNER, sizeof(struct ibv_flow_spec_eth), EOPNOTSUPP},
		{IBV_FLOW_SPEC_VXLAN_TUNNEL, sizeof(struct ibv_flow_spec_tunnel), EOPNOTSUPP},
		{IBV_FLOW_SPEC_ACTION_TAG, sizeof(struct ibv_flow_spec_action_tag), EOPNOTSUPP},
		{IBV_FLOW_SPEC_ACTION_COUNT, sizeof(struct ibv_flow_spec_counter_action), EOPNOTSUPP},
		{0x7777, 8, EINVAL},
	};
	for (unsigned i = 0; i < sizeof(specs) / sizeof(*specs); i++) {
		struct ibv_flow_spec spec = {.hdr = {.type = specs[i].type, .size = specs[i].size}};
		rule = rule_for(IBV_FLOW_ATTR_NORMAL, 0);
		add(&rule, &spec, sizeof(spec));
		REFUSED(ibv_create_flow(b, &rule.attr), specs[i].number);
	}
}

/* What fits comes and what does not fit does not, by each header that a rule compares. */
static void headers(void)
{
	struct ibv_flow *flow = rule_to(b, 2, 0);
	post_receive(b, 1, PLACE, 512);
	put_frame(at(SOURCE), 3, 0x11);
	send_frame(a, FRAME, 0);
	completions(1);
	put_frame(at(SOURCE), 2, 0x22);
	arrives(a, FRAME, 0);
	/* Inline, and with a VLAN tag, which it keeps. */
	post_receive(b, 1, PLACE, 512);
	memcpy(at(SOURCE) + 12, (uint8_t[]){0x81, 0, 0xa0, 5, 0x88, 0xb5}, 6);
	arrives(a, FRAME, IBV_SEND_INLINE);
	FAILS(ibv_destroy_qp(b), EBUSY);
	FAILS(ibv_destroy_flow(flow), 0);
	FAILS(ibv_destroy_flow(flow), ENOENT);

	/* UDP from 4660 to 22136 over IPv4 between addresses for documentation. */
	struct ibv_flow_spec_ipv4_ext v4 = {.type = IBV_FLOW_SPEC_IPV4_EXT, .size = sizeof(v4), .mask = {.dst_ip = ~0u, .proto = 0xff}};
	struct ibv_flow_spec_tcp_udp udp = {.type = IBV_FLOW_SPEC_UDP, .size = sizeof(udp), .mask = {.dst_port = 0xffff}};
	v4.val.dst_ip = inet_addr("192.0.2.2");
	v4.val.proto = IPPROTO_UDP;
	udp.val.dst_port = htons(0x5678);
	struct rule rule = rule_for(IBV_FLOW_ATTR_NORMAL, 1);
	add(&rule, &v4, sizeof(v4));
	add(&rule, &udp, sizeof(udp));
	flow = made(b, &rule);
	static const uint8_t packet[] = {0x08, 0x00, 0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2, 0x12, 0x34, 0x56, 0x79};
	put_frame(at(SOURCE), 2, 0);
	memcpy(at(SOURCE) + 12, packet, sizeof(packet));
	post_receive(b, 1, PLACE, 512);
	send_frame(a, FRAME, 0);
	completions(1);
	at(SOURCE)[37] = 0x78;
	arrives(a, FRAME, 0);
	/* A rule of a smaller number that drops it, and everything that is left after it. */
	struct ibv_flow_spec_action_drop drop = {.type = IBV_FLOW_SPEC_ACTION_DROP, .size = sizeof(drop)};
	struct rule dropping = rule_for(IBV_FLOW_ATTR_NORMAL, 0), all = rule_for(IBV_FLOW_ATTR_ALL_DEFAULT, 0);
	add(&dropping, &udp, sizeof(udp));
	add(&dropping, &drop, sizeof(drop));
	struct ibv_flow *dropped = made(b, &dropping);
	post_receive(b, 1, PLACE, 512);
	send_frame(a, FRAME, 0);
	completions(1);
	FAILS(ibv_destroy_flow(dropped), 0);
	arrives(a, FRAME, 0);
	FAILS(ibv_destroy_flow(flow), 0);
	flow = made(b, &all);
	FAILS(ibv_destroy_flow(flow), 0);
}

static void lengths(void)
{
	struct ibv_flow *flow = rule_to(b, 2, 0);
	put_frame(at(SOURCE), 2, 0x33);
	/* Without a receive request the frame is lost, and not the next one. */
	send_frame(a, FRAME, 0);
	completions(1);
	/* It has come and gone when the next one has come back. */
	struct ibv_flow *own = rule_to(a, 4, 0);
	post_receive(a, 7, OTHER, 512);
	at(SOURCE)[5] = 4;
	send_frame(a, FRAME, 0);
	CLAIM(completions(2) == 7);
	FAILS(ibv_destroy_flow(own), 0);
	at(SOURCE)[5] = 2;
	post_receive(b, 1, PLACE, 512);
	arrives(a, FRAME, 0);
	/* Shorter than a header. */
	send_frame(a, 13, 0);
	CLAIM(completion().status == IBV_WC_LOC_LEN_ERR);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_SQE};
	FAILS(ibv_modify_qp(a, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE), 0);
	/* Longer than the receive request. */
	post_receive(b, 9, PLACE, FRAME - 1);
	send_frame(a, FRAME, 0);
	struct ibv_wc one = completion(), two = completion();
	struct ibv_wc received = one.opcode == IBV_WC_SEND ? two : one;
	CLAIM(received.wr_id == 9 && received.status == IBV_WC_LOC_LEN_ERR);
	FAILS(ibv_query_qp(b, &attr, IBV_QP_STATE, &(struct ibv_qp_init_attr){0}), 0);
	CLAIM(attr.qp_state == IBV_QPS_ERR);
	FAILS(ibv_destroy_flow(flow), 0);
	attr.qp_state = IBV_QPS_RESET;
	FAILS(ibv_modify_qp(b, &attr, IBV_QP_STATE), 0);
	to_rts(b);
	/* What is no SEND. */
	struct ibv_sge sge = piece(SOURCE, FRAME);
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_IMM, .send_flags = IBV_SEND_SIGNALED}, *bad;
	FAILS(ibv_post_send(a, &wr, &bad), 0);
	CLAIM(completion().status == IBV_WC_LOC_QP_OP_ERR);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_SQE};
	FAILS(ibv_modify_qp(a, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE), 0);
}

/* A program that sleeps until a frame comes. */
static void sleeping(void)
{
	struct ibv_cq *from = NULL;
	void *context;
	struct ibv_flow *flow = rule_to(b, 2, 0);
	put_frame(at(SOURCE), 2, 0x44);
	post_receive(b, 5, PLACE, 512);
	FAILS(ibv_req_notify_cq(cq, 0), 0);
	send_frame(a, FRAME, 0);
	int left = 2;
	while (left > 0) {
		struct pollfd readable = {.fd = channel->fd, .events = POLLIN};
		CLAIM(poll(&readable, 1, 60000) == 1);
		FAILS(ibv_get_cq_event(channel, &from, &context), 0);
		ibv_ack_cq_events(from, 1);
		FAILS(ibv_req_notify_cq(cq, 0), 0);
		struct ibv_wc wc;
		while (ibv_poll_cq(cq, 1, &wc) == 1) {
			CLAIM(wc.status == IBV_WC_SUCCESS);
			left--;
		}
	}
	FAILS(ibv_destroy_flow(flow), 0);
}

/* Frames of another host, as they come from a cable. */
/* At 4 Mbit/s the last of nine frames of 500 bytes leaves 8 ms after the first one, or later. */
static void rate_limits(void)
{
	struct ibv_device_attr_ex device;
	FAILS(ibv_query_device_ex(ctx, NULL, &device), 0);
	CLAIM(device.packet_pacing_caps.supported_qpts == 1 << IBV_QPT_RAW_PACKET);
	CLAIM(device.packet_pacing_caps.qp_rate_limit_min <= 4000 && device.packet_pacing_caps.qp_rate_limit_max >= 4000);
	struct ibv_qp *qp = raw_queue_pair();
	struct ibv_qp_rate_limit_attr limit = {.rate_limit = 4000};
	FAILS(ibv_modify_qp_rate_limit(qp, &limit), EINVAL);
	to_rts(qp);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .rate_limit = 9000};
	FAILS(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_RATE_LIMIT), 0);
	FAILS(ibv_query_qp(qp, &attr, IBV_QP_RATE_LIMIT, &(struct ibv_qp_init_attr){0}), 0);
	CLAIM(attr.rate_limit == 9000);
	limit.comp_mask = 1;
	FAILS(ibv_modify_qp_rate_limit(qp, &limit), EOPNOTSUPP);
	limit.comp_mask = 0;
	FAILS(ibv_modify_qp_rate_limit(qp, &limit), 0);
	put_frame(at(SOURCE), 9, 0x44);
	struct timespec from, to;
	clock_gettime(CLOCK_MONOTONIC, &from);
	for (int k = 0; k < 9; k++)
		send_frame(qp, 500, 0);
	completions(9);
	clock_gettime(CLOCK_MONOTONIC, &to);
	CLAIM((to.tv_sec - from.tv_sec) * 1000000000L + to.tv_nsec - from.tv_nsec >= 8 * 504 * 8 * 250L);
	limit.rate_limit = 0;
	FAILS(ibv_modify_qp_rate_limit(qp, &limit), 0);
	send_frame(qp, 500, 0);
	completions(1);
	FAILS(ibv_destroy_qp(qp), 0);
}

static void from_peer(const char *name)
{
	int peer = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));
	struct sockaddr_ll end = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = if_nametoindex(name)};
	CLAIM(peer >= 0 && bind(peer, (struct sockaddr *)&end, sizeof(end)) == 0);
	struct ibv_flow *flow = rule_to(b, 2, 0);
	uint8_t frame[FRAME];
	for (int tagged = 0; tagged < 2; tagged++) {
		put_frame(frame, 2, 0x55);
		if (tagged)
			memcpy(frame + 12, (uint8_t[]){0x81, 0, 0x60, 9, 0x88, 0xb5}, 6);
		post_receive(b, 6, PLACE, 512);
		CLAIM(send(peer, frame, FRAME, 0) == FRAME);
		struct ibv_wc wc = completion();
		CLAIM(wc.status == IBV_WC_SUCCESS && wc.wr_id == 6 && wc.byte_len == FRAME && !memcmp(at(PLACE), frame, FRAME));
	}
	/* And to it. */
	put_frame(at(SOURCE), 8, 0x66);
	send_frame(a, FRAME, 0);
	completions(1);
	do {
		memset(frame, 0, FRAME);
		CLAIM(recv(peer, frame, FRAME, 0) > 0);
	} while (memcmp(frame, at(SOURCE), FRAME));
	/* Longer than the interface carries. */
	send_frame(a, 1519, 0);
	CLAIM(completion().status == IBV_WC_LOC_LEN_ERR);
	FAILS(ibv_destroy_flow(flow), 0);
	close(peer);
}

enum { QUEUES = 4, CONNECTIONS = 12 };

static struct ibv_wq *work_queue(void)
{
	struct ibv_wq_init_attr wants = {.wq_type = IBV_WQT_RQ, .max_wr = 2 * CONNECTIONS, .max_sge = 1, .pd = pd, .cq = cq};
	struct ibv_wq *wq = ibv_create_wq(ctx, &wants);
	CLAIM(wq && wq->state == IBV_WQS_RESET && wq->cq == cq && wq->pd == pd && wq->context == ctx);
	CLAIM(wants.max_wr >= 2 * CONNECTIONS);
	struct ibv_wq_attr attr = {.attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_RDY};
	FAILS(ibv_modify_wq(wq, &attr), 0);
	CLAIM(wq->state == IBV_WQS_RDY);
	return wq;
}

/* Frames are spread over work queues by their IPv4 addresses: those of one connection stay together. */
static void spreading(void)
{
	struct ibv_wq *queues[QUEUES];
	for (int i = 0; i < QUEUES; i++)
		queues[i] = work_queue();
	struct ibv_wq_attr wrong = {.attr_mask = IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE, .wq_state = IBV_WQS_ERR, .curr_wq_state = IBV_WQS_RESET};
	FAILS(ibv_modify_wq(queues[0], &wrong), EINVAL);
	wrong.attr_mask = IBV_WQ_ATTR_FLAGS;
	FAILS(ibv_modify_wq(queues[0], &wrong), EOPNOTSUPP);
	struct ibv_rwq_ind_table_init_attr wants_table = {.log_ind_tbl_size = 13, .ind_tbl = queues};
	REFUSED(ibv_create_rwq_ind_table(ctx, &wants_table), EINVAL);
	wants_table.log_ind_tbl_size = 2;
	struct ibv_rwq_ind_table *table = ibv_create_rwq_ind_table(ctx, &wants_table);
	CLAIM(table && table->context == ctx);
	FAILS(ibv_destroy_wq(queues[0]), EBUSY);

	uint8_t key[40];
	for (unsigned i = 0; i < sizeof(key); i++)
		key[i] = 37 * i + 11;
	struct ibv_qp_init_attr_ex wants = {
		.qp_type = IBV_QPT_RAW_PACKET,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH,
		.pd = pd,
		.rwq_ind_tbl = table,
		.rx_hash_conf = {.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ, .rx_hash_key_len = sizeof(key), .rx_hash_key = key,
				 .rx_hash_fields_mask = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4},
	};
	struct ibv_qp_init_attr_ex other = wants;
	other.comp_mask &= ~IBV_QP_INIT_ATTR_RX_HASH;
	REFUSED(ibv_create_qp_ex(ctx, &other), EINVAL);
	other = wants;
	other.qp_type = IBV_QPT_UD;
	REFUSED(ibv_create_qp_ex(ctx, &other), EINVAL);
	other = wants;
	other.rx_hash_conf.rx_hash_key_len = 39;
	REFUSED(ibv_create_qp_ex(ctx, &other), EINVAL);
	other = wants;
	other.rx_hash_conf.rx_hash_fields_mask |= IBV_RX_HASH_SRC_IPV6;
	REFUSED(ibv_create_qp_ex(ctx, &other), EINVAL);
	other = wants;
	other.rx_hash_conf.rx_hash_function = 2;
	REFUSED(ibv_create_qp_ex(ctx, &other), EOPNOTSUPP);
	struct ibv_qp *qp = ibv_create_qp_ex(ctx, &wants);
	CLAIM(qp);
	FAILS(ibv_destroy_rwq_ind_table(table), EBUSY);

	for (int i = 0; i < QUEUES; i++)
		for (int j = 0; j < 2 * CONNECTIONS; j++) {
			struct ibv_sge sge = piece(PLACE, 512);
			struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1}, *bad;
			FAILS(ibv_post_wq_recv(queues[i], &wr, &bad), 0);
		}
	struct ibv_flow *flow = rule_to(qp, 2, 0);
	static const uint8_t packet[] = {0x08, 0x00, 0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 0, 192, 0, 2, 2, 1, 2, 3, 4};
	int got[CONNECTIONS], used = 0;
	for (int round = 0; round < 2; round++)
		for (int from = 0; from < CONNECTIONS; from++) {
			put_frame(at(SOURCE), 2, 0);
			memcpy(at(SOURCE) + 12, packet, sizeof(packet));
			at(SOURCE)[29] = 10 + from;
			send_frame(a, FRAME, 0);
			int queue = (int)completions(2);
			CLAIM(!memcmp(at(PLACE), at(SOURCE), FRAME) && (!round || got[from] == queue));
			got[from] = queue;
			used |= 1 << queue;
		}
	CLAIM(used & (used - 1)); /* More than one. */
	FAILS(ibv_destroy_flow(flow), 0);
	FAILS(ibv_destroy_qp(qp), 0);
	FAILS(ibv_destroy_rwq_ind_table(table), 0);
	FAILS(ibv_destroy_rwq_ind_table(table), ENOENT);
	struct ibv_wq_attr error = {.attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_ERR};
	FAILS(ibv_modify_wq(queues[0], &error), 0);
	for (int i = 0; i < QUEUES; i++)
		FAILS(ibv_destroy_wq(queues[i]), 0);
}

static void give_the_right_up(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct rights[2];
	CLAIM(syscall(SYS_capget, &header, rights) == 0);
	rights[0].effective &= ~(1u << CAP_NET_RAW);
	CLAIM(syscall(SYS_capset, &header, rights) == 0);
}

int main(int count, char **words)
{
	const char *mode = count > 1 ? words[1] : "";
	open_device();
	if (!strcmp(mode, "forbidden")) {
		give_the_right_up();
		struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RAW_PACKET);
		REFUSED(ibv_create_qp(pd, &wants), EPERM);
		FAILS(ibv_close_device(ctx), 0);
		return 0;
	}
	states();
	a = raw_queue_pair();
	b = raw_queue_pair();
	to_rts(a);
	to_rts(b);
	rules_that_are_refused();
	headers();
	sleeping();
	spreading();
	rate_limits();
	if (!strcmp(mode, "peer"))
		from_peer(words[2]);
	else
		lengths();
	/* What a program leaves goes with its context. */
	rule_to(b, 2, 0);
	FAILS(ibv_close_device(ctx), 0);
	return 0;
}
