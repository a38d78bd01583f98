/* What a reliable connection carries, compared byte for byte at both ends. */
#include "interop.h"

#include <stdlib.h>

/* Around every boundary that packets have; the path MTU is put in the place of 1, 2, 3 million. */
static const uint32_t sizes[] = {0, 1, 2, 3, 4, 33, 255, 999999, 1000000, 1000001, 2000000, 3000005, 65536, 200003};

static uint32_t size_of(const struct side *s, unsigned index)
{
	uint32_t size = sizes[index];
	uint32_t packets = (size + 2) / 1000000;
	return packets ? size - packets * 1000000 + packets * s->mtu_bytes : size;
}

#define SIZES (sizeof(sizes) / sizeof(*sizes))

static void sends(struct side *s)
{
	connect_pair(s, &(struct plan){.type = IBV_QPT_RC});
	for (unsigned i = 0; i < SIZES; i++) {
		uint32_t length = size_of(s, i), imm = 0xfeed0000 + i;
		bool immediate = i & 1;
		memset(s->memory + TARGET, 0xee, length + 64);
		if (!s->client)
			post_receive(s, 0, length);
		meet(s);
		if (s->client) {
			fill(s->memory, length, i);
			post(s, immediate ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, SOURCE, length, 0, imm, i % 3 ? 0 : IBV_SEND_SOLICITED);
			succeed(s, 1);
		} else {
			struct ibv_wc wc = received(s, length);
			CLAIM(wc.qp_num == s->qp->qp_num && wc.wr_id == 0);
			CLAIM(!!(wc.wc_flags & IBV_WC_WITH_IMM) == immediate);
			CLAIM(!immediate || wc.imm_data == htobe32(imm));
			expect(s, s->memory + TARGET, length, i);
			untouched(s, s->memory + TARGET + length, 64, 0xee);
		}
	}
	/* Gathered from pieces, scattered to pieces, and inline. */
	if (s->client) {
		fill(s->memory, 5000, 77);
		struct ibv_sge from[4] = {piece(s, 0, 1), piece(s, 1, 2000), piece(s, 2001, 0), piece(s, 2001, 2999)};
		struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
		meet(s);
		post_sge(s, from, 4, &wr);
		fill(s->memory + 8000, 50, 78);
		struct ibv_sge inlined = piece(s, 8000, 50);
		wr.send_flags |= IBV_SEND_INLINE;
		post_sge(s, &inlined, 1, &wr);
		memset(s->memory + 8000, 0, 50);
		succeed(s, 2);
	} else {
		struct ibv_sge to[3] = {piece(s, TARGET, 3), piece(s, TARGET + 3, 3000), piece(s, TARGET + 3003, 5000)};
		struct ibv_recv_wr wr = {.sg_list = to, .num_sge = 3}, *bad;
		CLAIM(!ibv_post_recv(s->qp, &wr, &bad));
		post_receive(s, 10000, 64);
		meet(s);
		received(s, 5000);
		expect(s, s->memory + TARGET, 5000, 77);
		received(s, 50);
		expect(s, s->memory + TARGET + 10000, 50, 78);
	}
	snprintf(s->figures, sizeof(s->figures), "%s", s->client ? "" : "16 messages up to 200003 bytes");
}

static void writes(struct side *s)
{
	connect_pair(s, &(struct plan){.type = IBV_QPT_RC});
	for (unsigned i = 0; i < SIZES; i++) {
		uint32_t length = size_of(s, i);
		bool immediate = i & 1;
		memset(s->memory + TARGET, 0xee, length + 128);
		if (!s->client && immediate)
			post_receive(s, 500000, 0);
		meet(s);
		if (s->client) {
			fill(s->memory + 5, length, i);
			post(s, immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE, SOURCE + 5, length, TARGET + 3, i, 0);
			succeed(s, 1);
		} else if (immediate) {
			struct ibv_wc wc = received(s, length);
			CLAIM(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.imm_data == htobe32(i) && wc.wc_flags & IBV_WC_WITH_IMM);
		}
		meet(s);
		if (!s->client) {
			untouched(s, s->memory + TARGET, 3, 0xee);
			expect(s, s->memory + TARGET + 3, length, i);
			untouched(s, s->memory + TARGET + 3 + length, 64, 0xee);
		}
	}
	snprintf(s->figures, sizeof(s->figures), "%s", s->client ? "" : "14 messages up to 200003 bytes");
}

static void reads_with(struct side *s, int depth)
{
	/* The responses of the third READ cross the end of the PSNs. */
	connect_pair(s, &(struct plan){.type = IBV_QPT_RC, .rd_atomic = depth, .first_psn = 0xffffff - 10});
	if (!s->client)
		fill(s->memory + SOURCE, REGION, 4711);
	meet(s);
	if (!s->client)
		return;
	for (unsigned i = 0; i < SIZES; i++) {
		uint32_t length = size_of(s, i);
		memset(s->memory + TARGET, 0xee, length + 64);
		struct ibv_sge sge = piece(s, TARGET, length);
		struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED};
		wr.wr.rdma.remote_addr = length ? remote(s, SOURCE) : 0;
		wr.wr.rdma.rkey = length ? s->peer.rkey : 0;
		post_sge(s, &sge, length > 0, &wr);
		struct ibv_wc wc = next_completion(s);
		CLAIM(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RDMA_READ, "%s", ibv_wc_status_str(wc.status));
		expect(s, s->memory + TARGET, length, 4711);
		untouched(s, s->memory + TARGET + length, 64, 0xee);
	}
	/* Many at a time, and a WRITE between them that must not overtake: it is read back. */
	memset(s->memory + TARGET, 0xee, REGION);
	for (int i = 0; i < 60; i++) {
		struct ibv_sge sge = piece(s, TARGET + i * 8192, 8000);
		struct ibv_send_wr wr = {.wr_id = i, .opcode = IBV_WR_RDMA_READ, .send_flags = i == 59 ? IBV_SEND_SIGNALED : 0};
		wr.wr.rdma.remote_addr = remote(s, SOURCE + i * 8192);
		wr.wr.rdma.rkey = s->peer.rkey;
		post_sge(s, &sge, 1, &wr);
	}
	struct ibv_wc wc = next_completion(s);
	CLAIM(wc.status == IBV_WC_SUCCESS && wc.wr_id == 59);
	for (int i = 0; i < 60; i++)
		for (int at = 0; at < 8000; at += 8) {
			uint64_t word = mixed(4711 + i * 8192 + at);
			CLAIM(!memcmp(s->memory + TARGET + i * 8192 + at, &word, 8), "READ %d, byte %d", i, at);
		}
	snprintf(s->figures, sizeof(s->figures), "74 READs up to 200003 bytes, %d at a time, PSN from 0xfffff5", depth);
}

static void reads_one_at_a_time(struct side *s) { reads_with(s, 1); }
static void reads(struct side *s) { reads_with(s, 16); }

static void atomics(struct side *s)
{
	connect_pair(s, &(struct plan){.type = IBV_QPT_RC});
	uint64_t *word = (uint64_t *)(s->memory + TARGET), *result = (uint64_t *)(s->memory + SOURCE);
	*word = 0x0123456789abcdefu;
	meet(s);
	if (s->client) {
		post_atomic(s, false, SOURCE, TARGET, 1, 0);
		post_atomic(s, false, SOURCE + 8, TARGET, -1ull, 0);
		post_atomic(s, true, SOURCE + 16, TARGET, 0x0123456789abcdefu, 1000); /* swaps */
		post_atomic(s, true, SOURCE + 24, TARGET, 0x0123456789abcdefu, 5);    /* does not */
		succeed(s, 4);
		CLAIM(result[0] == 0x0123456789abcdefu && result[1] == 0x0123456789abcdf0u);
		CLAIM(result[2] == 0x0123456789abcdefu && result[3] == 1000);
		for (int i = 0; i < 100; i++)
			post_atomic(s, false, SOURCE + 8 * i, TARGET, 3, 0);
		succeed(s, 100);
		for (int i = 0; i < 100; i++)
			CLAIM(result[i] == 1000u + 3 * i, "the %dth gave %llu", i, (unsigned long long)result[i]);
	}
	meet(s);
	if (!s->client)
		CLAIM(*word == 1300, "it is %llu", (unsigned long long)*word);
	snprintf(s->figures, sizeof(s->figures), "%s", s->client ? "" : "104 atomics, each exactly once");
}

/* Without an address, a key or a byte. */
static void nothing(struct side *s)
{
	connect_pair(s, &(struct plan){.type = IBV_QPT_RC});
	if (!s->client)
		for (int i = 0; i < 4; i++)
			post_receive(s, 64 * i, i & 1 ? 64 : 0);
	meet(s);
	if (s->client) {
		post(s, IBV_WR_SEND, 0, 0, 0, 0, 0);
		post(s, IBV_WR_SEND_WITH_IMM, 0, 0, 0, 1, 0);
		post(s, IBV_WR_RDMA_WRITE, 0, 0, 0, 0, 0);
		post(s, IBV_WR_RDMA_WRITE_WITH_IMM, 0, 0, 0, 2, 0);
		post(s, IBV_WR_RDMA_READ, 0, 0, 0, 0, 0);
		post(s, IBV_WR_SEND, 0, 0, 0, 0, IBV_SEND_INLINE);
		succeed(s, 6);
	} else {
		CLAIM(!(received(s, 0).wc_flags & IBV_WC_WITH_IMM));
		CLAIM(received(s, 0).imm_data == htobe32(1));
		CLAIM(received(s, 0).imm_data == htobe32(2));
		received(s, 0);
		untouched(s, s->memory, MEMORY, 0xee);
	}
}

/*
 * Everything at once, many requests under way, for as many rounds as asked for. SENDs come in order and once (they carry their
 * numbers), every addition is made once, WRITEs and READs are compared.
 */
static void mixture(struct side *s)
{
	enum { SLOT = 16384, SLOTS = 32 };
	uint64_t chance = 0x5eed + s->mtu_bytes;
	/* As long as the chance is the same, both sides know all sizes. */
	connect_pair(s, &(struct plan){.type = IBV_QPT_RC});
	uint64_t *counter = (uint64_t *)(s->memory + 2 * REGION - 8);
	*counter = 0;
	if (!s->client)
		fill(s->memory + SOURCE, SLOT * SLOTS, 99);
	uint64_t bytes = 0, added = 0;
	for (int round = 0; round < s->rounds; round += SLOTS) {
		struct { int kind; uint32_t length; } slot[SLOTS];
		int sends = 0;
		for (int i = 0; i < SLOTS; i++) {
			chance = mixed(chance);
			slot[i].kind = chance % 4;
			slot[i].length = (chance >> 8) % 3 ? (chance >> 16) % 2000 : (chance >> 16) % SLOT;
			bytes += slot[i].kind == 3 ? 8 : slot[i].length;
			added += slot[i].kind == 3 ? slot[i].length : 0;
			if (!s->client && slot[i].kind == 0) {
				post_receive(s, SLOT * i, SLOT);
				sends++;
			}
		}
		meet(s);
		if (s->client) {
			for (int i = 0; i < SLOTS; i++) {
				uint64_t at = SLOT * i;
				struct ibv_sge sge = piece(s, SOURCE + at, slot[i].length);
				struct ibv_send_wr wr = {.wr_id = i, .send_flags = IBV_SEND_SIGNALED};
				wr.wr.rdma.remote_addr = remote(s, TARGET + at);
				wr.wr.rdma.rkey = s->peer.rkey;
				switch (slot[i].kind) {
				case 0: wr.opcode = IBV_WR_SEND; break;
				case 1: wr.opcode = IBV_WR_RDMA_WRITE; break;
				case 2:
					wr.opcode = IBV_WR_RDMA_READ;
					wr.wr.rdma.remote_addr = remote(s, SOURCE + at);
					sge = piece(s, TARGET + at, slot[i].length);
					break;
				case 3:
					wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
					wr.wr.atomic.remote_addr = remote(s, 2 * REGION - 8);
					wr.wr.atomic.rkey = s->peer.rkey;
					wr.wr.atomic.compare_add = slot[i].length;
					sge.length = 8;
					break;
				}
				if (slot[i].kind < 2)
					fill(s->memory + SOURCE + at, slot[i].length, round + i);
				post_sge(s, &sge, 1, &wr);
			}
			for (int i = 0; i < SLOTS; i++) {
				struct ibv_wc wc = next_completion(s);
				CLAIM(wc.status == IBV_WC_SUCCESS && (int)wc.wr_id == i, "round %d: %s of %llu, not %d", round,
				      ibv_wc_status_str(wc.status), (unsigned long long)wc.wr_id, i);
			}
			for (int i = 0; i < SLOTS; i++)
				if (slot[i].kind == 2)
					for (uint32_t at = 0; at + 8 <= slot[i].length; at += 8) {
						uint64_t word = mixed(99 + SLOT * i + at);
						CLAIM(!memcmp(s->memory + TARGET + SLOT * i + at, &word, 8), "round %d: READ %d", round, i);
					}
		} else {
			for (int i = 0; i < SLOTS; i++)
				if (slot[i].kind == 0)
					CLAIM(received(s, slot[i].length).wr_id == (uint64_t)SLOT * i, "round %d", round);
		}
		meet(s);
		if (!s->client)
			for (int i = 0; i < SLOTS; i++)
				if (slot[i].kind < 2)
					expect(s, s->memory + TARGET + SLOT * i, slot[i].length, round + i);
	}
	if (!s->client) {
		CLAIM(*counter == added, "%llu were added, not %llu", (unsigned long long)*counter, (unsigned long long)added);
		snprintf(s->figures, sizeof(s->figures), "%d requests, %llu bytes", (s->rounds + SLOTS - 1) / SLOTS * SLOTS,
			 (unsigned long long)bytes);
	}
}

/* 16 messages of 64 KiB at a time: rxe sends 128 packets before it looks at an answer. */
static void bursts(struct side *s)
{
	connect_pair(s, &(struct plan){.type = IBV_QPT_RC});
	for (int round = 0; round < 3; round++) {
		if (s->client)
			for (int i = 0; i < 16; i++)
				fill(s->memory + SOURCE + 65536 * i, 65536, round * 100 + i);
		meet(s);
		if (s->client) {
			for (int i = 0; i < 16; i++)
				post(s, IBV_WR_RDMA_WRITE, SOURCE + 65536 * i, 65536, TARGET + 65536 * i, 0, 0);
			succeed(s, 16);
		}
		meet(s);
		if (!s->client)
			for (int i = 0; i < 16; i++)
				expect(s, s->memory + TARGET + 65536 * i, 65536, round * 100 + i);
	}
	if (!s->client)
		snprintf(s->figures, sizeof(s->figures), "48 messages of 64 KiB, 16 posted at a time");
}

const struct named data_scenarios[] = {{"send", sends}, {"write", writes}, {"read", reads}, {"read-1", reads_one_at_a_time},
				       {"atomics", atomics}, {"nothing", nothing},
				       {"mixture", mixture}, {"bursts", bursts}, {NULL, NULL}};
