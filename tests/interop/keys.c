/* Keys that come and go: memory windows of both types, and invalidation by the peer. */
#include "interop.h"

/* Binds TARGET … TARGET + 4096; the new key is told to the peer. Windows of type 2 are bound by a request. */
struct ibv_mw *bind_window(struct side *s, enum ibv_mw_type type)
{
	struct ibv_mw *window = ibv_alloc_mw(s->pd, type);
	CLAIM(window);
	struct ibv_mw_bind_info info = {.mr = s->mr, .addr = (uintptr_t)s->memory + TARGET, .length = 4096,
					.mw_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
	uint32_t key;
	if (type == IBV_MW_TYPE_1) {
		struct ibv_mw_bind request = {.wr_id = 1, .send_flags = IBV_SEND_SIGNALED, .bind_info = info};
		CLAIM(!ibv_bind_mw(s->qp, window, &request));
		key = 0;
	} else {
		struct ibv_send_wr wr = {.wr_id = 1, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED};
		key = ibv_inc_rkey(window->rkey);
		wr.bind_mw.mw = window;
		wr.bind_mw.rkey = key;
		wr.bind_mw.bind_info = info;
		post_sge(s, NULL, 0, &wr);
	}
	struct ibv_wc wc = next_completion(s);
	CLAIM(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_BIND_MW, "%s", ibv_wc_status_str(wc.status));
	tell(s, key ? key : window->rkey);
	return window;
}

void write_with(struct side *s, uint32_t key, uint64_t to, uint32_t length)
{
	struct ibv_sge sge = piece(s, SOURCE, length);
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
	wr.wr.rdma.remote_addr = remote(s, to);
	wr.wr.rdma.rkey = key;
	post_sge(s, &sge, 1, &wr);
}

void send_and_invalidate(struct side *s, uint32_t key, uint32_t length)
{
	struct ibv_sge sge = piece(s, SOURCE, length);
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND_WITH_INV, .send_flags = IBV_SEND_SIGNALED};
	wr.invalidate_rkey = key;
	post_sge(s, &sge, 1, &wr);
}

/* The key of a window serves for what the window allows only. That it serves for its range only is not judged: rxe does not look. */
static void window(struct side *s, enum ibv_mw_type type)
{
	connect_pair(s, &(struct plan){.type = IBV_QPT_RC});
	if (!s->client) {
		struct ibv_mw *bound = bind_window(s, type);
		meet(s);
		expect(s, s->memory + TARGET + 96, 4000, 5);
		untouched(s, s->memory + TARGET + 4096, 64, 0xee);
		meet(s);
		ibv_destroy_qp(s->qp);
		s->qp = NULL;
		CLAIM(!ibv_dealloc_mw(bound));
	} else {
		uint32_t key = tell(s, 0);
		fill(s->memory, 4000, 5);
		write_with(s, key, TARGET + 96, 4000);
		struct ibv_sge sge = piece(s, TARGET, 4000);
		struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED};
		wr.wr.rdma.remote_addr = remote(s, TARGET + 96);
		wr.wr.rdma.rkey = key;
		post_sge(s, &sge, 1, &wr);
		succeed(s, 2);
		expect(s, s->memory + TARGET, 4000, 5);
		meet(s);
		/* The region allows atomics, the window does not. */
		struct ibv_send_wr atomic = {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .send_flags = IBV_SEND_SIGNALED};
		atomic.wr.atomic.remote_addr = remote(s, TARGET);
		atomic.wr.atomic.rkey = key;
		sge.length = 8;
		post_sge(s, &sge, 1, &atomic);
		struct ibv_wc wc = next_completion(s);
		CLAIM(wc.status == IBV_WC_REM_ACCESS_ERR, "an atomic: %s", ibv_wc_status_str(wc.status));
		meet(s);
	}
}

static void window_1(struct side *s) { window(s, IBV_MW_TYPE_1); }
static void window_2(struct side *s) { window(s, IBV_MW_TYPE_2); }

/* A SEND takes the key back. */
static void send_invalidate(struct side *s)
{
	connect_pair(s, &(struct plan){.type = IBV_QPT_RC});
	if (!s->client) {
		post_receive(s, 100000, 5000);
		struct ibv_mw *bound = bind_window(s, IBV_MW_TYPE_2);
		uint32_t key = tell(s, 0);
		struct ibv_wc wc = received(s, 3000);
		/* rxe hands the kernel's flag (4) through, which is another than the library's (8). */
		CLAIM(wc.wc_flags & (IBV_WC_WITH_INV | 4) && wc.invalidated_rkey == key, "key %#x, flags %#x",
		      wc.invalidated_rkey, wc.wc_flags);
		expect(s, s->memory + TARGET + 100000, 3000, 6);
		meet(s);
		ibv_destroy_qp(s->qp);
		s->qp = NULL;
		CLAIM(!ibv_dealloc_mw(bound));
	} else {
		uint32_t key = tell(s, 0);
		tell(s, key);
		fill(s->memory, 3000, 6);
		write_with(s, key, TARGET, 100);
		send_and_invalidate(s, key, 3000);
		succeed(s, 2);
		write_with(s, key, TARGET, 100);
		struct ibv_wc wc = next_completion(s);
		CLAIM(wc.status == IBV_WC_REM_ACCESS_ERR, "with the old key: %s", ibv_wc_status_str(wc.status));
		meet(s);
	}
}

const struct named key_scenarios[] = {
	{"window-1", window_1}, {"window-2", window_2}, {"send-invalidate", send_invalidate}, {NULL, NULL}};
