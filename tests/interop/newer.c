/* ATOMIC WRITE and FLUSH, which not every device and not every library has. */
#include "interop.h"

#define WITH_FLUSH (1u << 11)
#define WITH_ATOMIC_WRITE (1u << 12)
typedef void flush_call(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address, size_t length, uint8_t type, uint8_t level);

void connect_able_pair(struct side *s, uint64_t ability, struct plan plan)
{
	connect_pair(s, &(struct plan){.type = IBV_QPT_RC});
	bool both = s->own.abilities & s->peer.abilities & ability;
	meet(s);
	if (!both)
		skip(s, ability == ABILITY_FLUSH_GLOBAL ? "one of the two has no FLUSH" : "one of the two has no ATOMIC WRITE");
	disconnect(s);
	plan.type = IBV_QPT_RC;
	plan.extended = ability == ABILITY_FLUSH_GLOBAL ? WITH_FLUSH | IBV_QP_EX_WITH_RDMA_WRITE
							: WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_RDMA_READ;
	connect_pair(s, &plan);
}

void post_atomic_write(struct side *s, uint64_t id, uint64_t to, const uint8_t bytes[8])
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(s->qp);
	CLAIM(qp);
	ibv_wr_start(qp);
	qp->wr_id = id;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_atomic_write(qp, s->peer.rkey, remote(s, to), bytes);
	CLAIM(!ibv_wr_complete(qp));
}

/* A request of the extended calls; the WRITE before it, if there is one, is posted with it. */
static void post_flush_after(struct side *s, uint64_t id, uint32_t written, uint64_t to, uint32_t length, int placement, int selectivity)
{
	/* The last of the calls, after ibv_wr_atomic_write. */
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(s->qp);
	CLAIM(qp);
	flush_call *call = *(flush_call **)((char *)qp + offsetof(struct ibv_qp_ex, wr_atomic_write) + sizeof(void *));
	ibv_wr_start(qp);
	if (written) {
		qp->wr_flags = 0;
		ibv_wr_rdma_write(qp, s->peer.rkey, remote(s, to));
		ibv_wr_set_sge(qp, s->mr->lkey, (uintptr_t)s->memory, written);
	}
	qp->wr_id = id;
	qp->wr_flags = IBV_SEND_SIGNALED;
	call(qp, s->peer.rkey, remote(s, to), length, placement, selectivity);
	CLAIM(!ibv_wr_complete(qp));
}

void post_flush(struct side *s, uint64_t id, uint64_t from, uint32_t length, int placement, int selectivity)
{
	post_flush_after(s, id, 0, from, length, placement, selectivity);
}

static void atomic_write(struct side *s)
{
	connect_able_pair(s, ABILITY_ATOMIC_WRITE, (struct plan){0});
	uint8_t bytes[8] = {1, 2, 3, 4, 5, 6, 7, 8};
	if (s->client) {
		for (int i = 0; i < 50; i++) {
			bytes[0] = i;
			post_atomic_write(s, i, TARGET + 8 * i, bytes);
			struct ibv_wc wc = next_completion(s);
			CLAIM(wc.status == IBV_WC_SUCCESS && (int)wc.opcode == OPCODE_ATOMIC_WRITE && (int)wc.wr_id == i, "%s, opcode %d",
			      ibv_wc_status_str(wc.status), wc.opcode);
		}
	}
	meet(s);
	if (!s->client) {
		for (int i = 0; i < 50; i++) {
			bytes[0] = i;
			CLAIM(!memcmp(s->memory + TARGET + 8 * i, bytes, 8), "word %d", i);
		}
		untouched(s, s->memory + TARGET + 400, 64, 0xee);
		snprintf(s->figures, sizeof(s->figures), "50 words");
	}
}

static void flush(struct side *s)
{
	connect_able_pair(s, ABILITY_FLUSH_GLOBAL, (struct plan){.more_rights = ACCESS_FLUSH_GLOBAL});
	if (s->client) {
		for (unsigned i = 0; i < 6; i++) {
			fill(s->memory, 3000, i);
			post_flush_after(s, i, 3000, TARGET + 4096 * i, i == 4 ? 0 : 3000, FLUSH_VISIBLE, i & 1 ? FLUSH_REGION : FLUSH_RANGE);
			struct ibv_wc wc = next_completion(s);
			CLAIM(wc.status == IBV_WC_SUCCESS && (int)wc.opcode == OPCODE_FLUSH && wc.wr_id == i, "%s, opcode %d",
			      ibv_wc_status_str(wc.status), wc.opcode);
		}
	}
	meet(s);
	if (!s->client) {
		for (unsigned i = 0; i < 6; i++)
			expect(s, s->memory + TARGET + 4096 * i, 3000, i);
		snprintf(s->figures, sizeof(s->figures), "6, of ranges, of the whole region, and of nothing");
	}
}

const struct named newer_scenarios[] = {{"atomic-write", atomic_write}, {"flush", flush}, {NULL, NULL}};
