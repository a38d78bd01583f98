/* Posting, polling, and contents that can be recognised. */
#include "interop.h"

#include <sched.h>
#include <time.h>
#include <unistd.h>

/* Emulated processors are slow; nothing that works takes so long. */
#define PATIENCE_MILLISECONDS 60000

struct ibv_sge piece(struct side *s, uint64_t offset, uint32_t length)
{
	return (struct ibv_sge){.addr = (uintptr_t)s->memory + offset, .length = length, .lkey = s->mr->lkey};
}

void post_receive(struct side *s, uint64_t offset, uint32_t length)
{
	struct ibv_sge sge = piece(s, TARGET + offset, length);
	struct ibv_recv_wr wr = {.wr_id = offset, .sg_list = &sge, .num_sge = length > 0}, *bad;
	int refused = s->srq ? ibv_post_srq_recv(s->srq, &wr, &bad) : ibv_post_recv(s->qp, &wr, &bad);
	CLAIM(!refused);
}

void post_sge(struct side *s, struct ibv_sge *sge, int pieces, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	wr->sg_list = sge;
	wr->num_sge = pieces;
	CLAIM(!ibv_post_send(s->qp, wr, &bad), "opcode %d", wr->opcode);
}

void post(struct side *s, enum ibv_wr_opcode opcode, uint64_t from, uint32_t length, uint64_t to, uint32_t imm, int flags)
{
	struct ibv_sge sge = piece(s, from, length);
	struct ibv_send_wr wr = {.wr_id = from, .opcode = opcode, .send_flags = flags | IBV_SEND_SIGNALED, .imm_data = htobe32(imm)};
	wr.wr.rdma.remote_addr = length || to ? remote(s, to) : 0;
	wr.wr.rdma.rkey = length || to ? s->peer.rkey : 0;
	post_sge(s, &sge, length > 0, &wr);
}

void post_atomic(struct side *s, bool swap, uint64_t result_at, uint64_t to, uint64_t compare_add, uint64_t swap_in)
{
	struct ibv_sge sge = piece(s, result_at, 8);
	struct ibv_send_wr wr = {.wr_id = result_at, .send_flags = IBV_SEND_SIGNALED,
				 .opcode = swap ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD};
	wr.wr.atomic.remote_addr = remote(s, to);
	wr.wr.atomic.rkey = s->peer.rkey;
	wr.wr.atomic.compare_add = compare_add;
	wr.wr.atomic.swap = swap_in;
	post_sge(s, &sge, 1, &wr);
}

uint64_t now_milliseconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000ull + now.tv_nsec / 1000000;
}

bool completion_within(struct side *s, struct ibv_wc *wc, unsigned milliseconds)
{
	uint64_t end = now_milliseconds() + milliseconds;
	for (unsigned empty = 0;; empty++) {
		int got = ibv_poll_cq(s->cq, 1, wc);
		CLAIM(got >= 0);
		if (got > 0)
			return true;
		if (now_milliseconds() > end)
			return false;
		/* A driver that works in kernel threads needs the processor that this one spins on. */
		if (empty > 50)
			usleep(200);
		else
			sched_yield();
	}
}

struct ibv_wc next_completion(struct side *s)
{
	struct ibv_wc wc;
	CLAIM(completion_within(s, &wc, PATIENCE_MILLISECONDS), "no completion");
	return wc;
}

void succeed(struct side *s, int count)
{
	for (int i = 0; i < count; i++) {
		struct ibv_wc wc = next_completion(s);
		CLAIM(wc.status == IBV_WC_SUCCESS, "%s of request %llu", ibv_wc_status_str(wc.status), (unsigned long long)wc.wr_id);
	}
}

struct ibv_wc received(struct side *s, uint32_t length)
{
	struct ibv_wc wc = next_completion(s);
	CLAIM(wc.status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(wc.status));
	CLAIM(wc.opcode & IBV_WC_RECV, "opcode %d", wc.opcode);
	CLAIM(wc.byte_len == length, "%u bytes, not %u", wc.byte_len, length);
	return wc;
}

uint64_t mixed(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

void fill(uint8_t *bytes, size_t length, uint64_t seed)
{
	for (size_t i = 0; i < length; i += 8) {
		uint64_t word = mixed(seed + i);
		memcpy(bytes + i, &word, length - i < 8 ? length - i : 8);
	}
}

void expect(struct side *s, const uint8_t *bytes, size_t length, uint64_t seed)
{
	for (size_t i = 0; i < length; i += 8) {
		uint64_t word = mixed(seed + i);
		CLAIM(!memcmp(bytes + i, &word, length - i < 8 ? length - i : 8), "wrong bytes at %zu of %zu", i, length);
	}
}

void untouched(struct side *s, const uint8_t *bytes, size_t length, uint8_t value)
{
	for (size_t i = 0; i < length; i++)
		CLAIM(bytes[i] == value, "%zu bytes beyond the end", i + 1);
}
