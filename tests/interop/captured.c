/*
 * What the captures in tests/golden have: the same operations in the same order and with the same PSNs, one at a time but where
 * they are several there; nothing is sent twice because a machine is slow. A capture of a run can then be laid beside them.
 */
#include "interop.h"

static void start(struct side *s)
{
	connect_pair(s, &(struct plan){.type = IBV_QPT_RC, .timeout = 20, .first_psn = s->client ? 0x0a0000 : 0x0b0000});
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

static void sends(struct side *s)
{
	static const uint32_t sizes[] = {0, 1, 2, 3, 4, 100, 1023, 1024, 1025, 2048, 3077};
	start(s);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		exchange(s, IBV_WR_SEND, sizes[i], 0, 0, 0);
	exchange(s, IBV_WR_SEND_WITH_IMM, 10, 0, 0xdeadbeef, IBV_SEND_SOLICITED);
	exchange(s, IBV_WR_SEND_WITH_IMM, 2050, 0, 0x01020304, 0);
}

static void writes(struct side *s)
{
	static const uint32_t sizes[] = {0, 1, 3, 100, 1024, 1025, 3077};
	start(s);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		exchange(s, IBV_WR_RDMA_WRITE, sizes[i], TARGET, 0, 0);
	exchange(s, IBV_WR_RDMA_WRITE_WITH_IMM, 50, TARGET, 0xcafe0001, 0);
	exchange(s, IBV_WR_RDMA_WRITE_WITH_IMM, 2500, TARGET, 0xcafe0002, IBV_SEND_SOLICITED);
	exchange(s, IBV_WR_RDMA_WRITE_WITH_IMM, 0, 0, 0xcafe0003, 0);
}

static void reads(struct side *s)
{
	static const uint32_t sizes[] = {0, 1, 3, 100, 1024, 1025, 2048, 4100};
	start(s);
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
	start(s);
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

const struct named captured_scenarios[] = {
	{"rc-send", sends}, {"rc-write", writes}, {"rc-read", reads}, {"rc-atomic", atomics}, {NULL, NULL}};
