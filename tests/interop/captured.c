/*
 * What the captures in tests/golden have: the same operations in the same order and with the same PSNs, one at a time but where
 * they are several there; nothing is sent twice because a machine is slow. A capture of a run can then be laid beside them.
 */
#include "interop.h"

struct plan as_captured(const struct side *s, enum ibv_qp_type type)
{
	return (struct plan){.type = type, .timeout = 20, .rnr_timer = 12, .first_psn = s->client ? 0x0a0000 : 0x0b0000};
}

static void start(struct side *s, enum ibv_qp_type type)
{
	struct plan plan = as_captured(s, type);
	connect_pair(s, &plan);
}

/* One message; the server's receive, if it needs one, is there before. */
static void exchange(struct side *s, enum ibv_wr_opcode opcode, uint32_t length, uint64_t to, uint32_t imm, int flags)
{
	bool takes_receive = opcode != IBV_WR_RDMA_WRITE;
	if (!s->client && takes_receive)
		post_receive(s, 0, opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? 0 : 65536);
	meet(s);
	if (s->client) {
		post(s, opcode, SOURCE, length, to, imm, flags);
		succeed(s, 1);
	} else if (takes_receive) {
		received(s, length);
	}
}

static void each_send(struct side *s)
{
	static const uint32_t sizes[] = {0, 1, 2, 3, 4, 100, 1023, 1024, 1025, 2048, 3077};
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		exchange(s, IBV_WR_SEND, sizes[i], 0, 0, 0);
	exchange(s, IBV_WR_SEND_WITH_IMM, 10, 0, 0xdeadbeef, IBV_SEND_SOLICITED);
	exchange(s, IBV_WR_SEND_WITH_IMM, 2050, 0, 0x01020304, 0);
}

static void each_write(struct side *s)
{
	static const uint32_t sizes[] = {0, 1, 3, 100, 1024, 1025, 3077};
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		exchange(s, IBV_WR_RDMA_WRITE, sizes[i], TARGET, 0, 0);
	exchange(s, IBV_WR_RDMA_WRITE_WITH_IMM, 50, TARGET, 0xcafe0001, 0);
	exchange(s, IBV_WR_RDMA_WRITE_WITH_IMM, 2500, TARGET, 0xcafe0002, IBV_SEND_SOLICITED);
	exchange(s, IBV_WR_RDMA_WRITE_WITH_IMM, 0, 0, 0xcafe0003, 0);
}

static void sends(struct side *s)
{
	start(s, IBV_QPT_RC);
	each_send(s);
}

static void writes(struct side *s)
{
	start(s, IBV_QPT_RC);
	each_write(s);
}

static void marked_writes(struct side *s)
{
	struct plan plan = as_captured(s, IBV_QPT_RC);
	plan.traffic_class = 106;
	plan.flow_label = 0x12345;
	connect_pair(s, &plan);
	each_write(s);
}

static void unreliable(struct side *s)
{
	start(s, IBV_QPT_UC);
	each_send(s);
	each_write(s);
}

static void datagrams(struct side *s)
{
	static const struct { uint32_t length, imm; } sent[] = {{0, 0}, {1, 0}, {3, 0}, {100, 0}, {1024, 0}, {4096, 0}, {20, 0xabad1dea}};
	start(s, IBV_QPT_UD);
	struct ibv_ah *ah = address_of_peer(s);
	for (unsigned i = 0; i < sizeof(sent) / sizeof(*sent); i++) {
		if (!s->client)
			post_receive(s, 0, 65536);
		meet(s);
		if (s->client) {
			post_datagram(s, ah, s->peer.qpn, QKEY, sent[i].length, sent[i].imm, sent[i].imm ? IBV_SEND_SOLICITED : 0);
			succeed(s, 1);
		} else {
			received(s, 40 + sent[i].length);
		}
	}
	ibv_destroy_ah(ah);
}

/* So many SENDs at once, which begin at this PSN. */
static void posted_together(struct side *s, int count, uint32_t length, uint32_t psn)
{
	struct plan plan = as_captured(s, IBV_QPT_RC);
	if (s->client)
		plan.first_psn = psn;
	connect_pair(s, &plan);
	if (!s->client)
		for (int i = 0; i < count; i++)
			post_receive(s, 4096 * i, 4096);
	meet(s);
	for (int i = 0; s->client && i < count; i++)
		post(s, IBV_WR_SEND, SOURCE, length, 0, 0, 0);
	if (s->client)
		succeed(s, count);
	for (int i = 0; !s->client && i < count; i++)
		received(s, length);
}

static void burst(struct side *s)
{
	posted_together(s, 32, 64, 0x0a0000);
}

static void across_the_last_psn(struct side *s)
{
	posted_together(s, 4, 1500, 0xfffffd);
	if (!s->client)
		return;
	post(s, IBV_WR_RDMA_READ, TARGET, 3000, SOURCE, 0, 0);
	succeed(s, 1);
}

static void reads(struct side *s)
{
	static const uint32_t sizes[] = {0, 1, 3, 100, 1024, 1025, 2048, 4100};
	start(s, IBV_QPT_RC);
	if (!s->client)
		post_receive(s, 0, 65536);
	meet(s);
	if (!s->client) {
		received(s, 64);
		return;
	}
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		post(s, IBV_WR_RDMA_READ, TARGET, sizes[i], SOURCE + 4096, 0, 0);
		succeed(s, 1);
	}
	for (int i = 0; i < 4; i++)
		post(s, IBV_WR_RDMA_READ, TARGET, 2000, SOURCE + 4096, 0, 0);
	succeed(s, 4);
	post(s, IBV_WR_RDMA_READ, TARGET, 2000, SOURCE + 4096, 0, 0);
	post(s, IBV_WR_SEND, SOURCE, 64, 0, 0, IBV_SEND_FENCE);
	succeed(s, 2);
}

static void atomics(struct side *s)
{
	start(s, IBV_QPT_RC);
	uint64_t word = 0x1122334455667788u;
	memcpy(s->memory + TARGET, &word, 8);
	meet(s);
	if (!s->client)
		return;
	post_atomic(s, false, SOURCE, TARGET, 0x10, 0);
	succeed(s, 1);
	post_atomic(s, true, SOURCE, TARGET, 0x1122334455667798u, 0xa0a1a2a3a4a5a6a7u);
	succeed(s, 1);
	post_atomic(s, true, SOURCE, TARGET, 5, 6);
	succeed(s, 1);
	post_atomic(s, false, SOURCE, TARGET, -1ull, 0);
	succeed(s, 1);
}

static void atomic_write(struct side *s)
{
	static const uint8_t word[8] = {0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11};
	connect_able_pair(s, ABILITY_ATOMIC_WRITE, as_captured(s, IBV_QPT_RC));
	if (!s->client)
		return;
	post_atomic_write(s, 1, TARGET, word);
	succeed(s, 1);
}

const struct named captured_scenarios[] = {{"rc-send", sends},
					   {"rc-write", writes},
					   {"rc-write-tclass", marked_writes},
					   {"rc-read", reads},
					   {"rc-atomic", atomics},
					   {"rc-atomic-write", atomic_write},
					   {"rc-burst", burst},
					   {"rc-psn-wrap", across_the_last_psn},
					   {"uc-send-write", unreliable},
					   {"ud-send", datagrams},
					   {NULL, NULL}};
