/* Calls in any order with arguments that are right, nearly right or nonsense: none crashes, nothing outside of the
 * registered memory changes, and in the end everything can be destroyed. `misuse SEED STEPS`: the same seed, the same calls. */
#include "expect.h"
#include <signal.h>
#include <sys/mman.h>

enum { OBJECTS = 8, SGES = 40, ARENA = 1 << 20, GUARD = 1 << 16 };

static struct ibv_pd *pds[OBJECTS];
static struct ibv_cq *cqs[OBJECTS];
static struct ibv_qp *qps[OBJECTS];
static struct ibv_mr *mrs[OBJECTS];
static struct ibv_mw *mws[OBJECTS];
static struct ibv_ah *ahs[OBJECTS];
static struct ibv_srq *srqs[OBJECTS];
/* The arena is what regions are made of; the guard behind it is in none. */
static unsigned char *arena;
static uint64_t state;
static unsigned long step, accepted, refused, completed;
static const char *call = "";

static uint32_t below(uint32_t bound)
{
	uint64_t z = (state += 0x9e3779b97f4a7c15);
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return (uint32_t)(((z ^ (z >> 31)) >> 32) * bound >> 32);
}

static int once_in(uint32_t times)
{
	return below(times) == 0;
}

/* Mostly below `usual`, now and then a number that no device grants. */
static uint32_t number(uint32_t usual)
{
	static const uint32_t odd[] = {0, 0x7fffffff, 0x80000000, 0xffffffff, 0x10000, 0xffff};
	return once_in(12) ? odd[below(6)] : below(usual);
}

static void crashed(int which)
{
	fprintf(stderr, "signal %d in step %lu, %s\n", which, step, call);
	_exit(99);
}

static void note(const char *name, int failed)
{
	call = name;
	if (failed)
		refused++;
	else
		accepted++;
}

/* A destroyed object leaves its place. */
#define DESTROY(place, destroy)                                                                              \
	do {                                                                                                 \
		call = #destroy;                                                                             \
		int failed = destroy(place);                                                                 \
		note(#destroy, failed);                                                                      \
		if (!failed)                                                                                 \
			(place) = NULL;                                                                      \
	} while (0)

#define ANY(objects) objects[below(OBJECTS)]

static void *somewhere(void)
{
	return arena + below(ARENA);
}

static void fill(struct ibv_sge *sges, int inlined)
{
	for (int i = 0; i < SGES; i++) {
		struct ibv_mr *of = ANY(mrs);
		sges[i].addr = inlined || below(6) ? (uintptr_t)somewhere() : once_in(2) ? 0 : UINT64_MAX - below(100);
		/* Inline data is read by the call itself, so it has to be there. */
		sges[i].length = inlined ? below(50) : number(6000);
		if (sges[i].addr <= (uintptr_t)arena + ARENA && sges[i].addr + sges[i].length > (uintptr_t)arena + ARENA)
			sges[i].length = 1;
		sges[i].lkey = of && below(6) ? of->lkey : number(0x10000);
	}
}

static uint32_t some_key(void)
{
	struct ibv_mr *of = ANY(mrs);
	return of && below(6) ? of->rkey : number(0x10000);
}

static void make(int kind, int i)
{
	struct ibv_pd *of = ANY(pds);
	switch (kind) {
	case 0:
		if (!pds[i])
			note("ibv_alloc_pd", !(pds[i] = ibv_alloc_pd(ctx)));
		else if (once_in(20))
			DESTROY(pds[i], ibv_dealloc_pd);
		return;
	case 1:
		call = "ibv_create_cq";
		if (!cqs[i])
			note(call, !(cqs[i] = ibv_create_cq(ctx, (int)number(64) + 1, NULL, once_in(2) ? channel : NULL, once_in(9) ? 7 : 0)));
		else if (once_in(10))
			DESTROY(cqs[i], ibv_destroy_cq);
		else
			note("ibv_resize_cq", ibv_resize_cq(cqs[i], (int)number(200)));
		return;
	case 2: {
		struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
		static const int types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND, IBV_QPT_RAW_PACKET, 77};
		wants.qp_type = (enum ibv_qp_type)types[below(below(4) ? 3 : 6)];
		wants.send_cq = below(9) ? ANY(cqs) : NULL;
		wants.recv_cq = below(9) ? ANY(cqs) : NULL;
		wants.srq = once_in(4) ? ANY(srqs) : NULL;
		wants.sq_sig_all = (int)below(2);
		wants.cap = (struct ibv_qp_cap){number(32), number(32), number(8), number(8), number(200)};
		call = "ibv_create_qp";
		if (!qps[i] && of)
			note(call, !(qps[i] = ibv_create_qp(of, &wants)));
		else if (qps[i] && once_in(12))
			DESTROY(qps[i], ibv_destroy_qp);
		return;
	}
	case 3:
		call = "ibv_reg_mr";
		if (!mrs[i] && of) {
			uint32_t offset = below(ARENA), length = once_in(10) ? number(1) : below(ARENA - offset);
			void *start = once_in(10) ? (void *)(uintptr_t)number(1) : arena + offset;
			/* More than the arena is refused, as long as nothing is mapped behind the guard. */
			note(call, !(mrs[i] = ibv_reg_mr(of, start, length, (int)(below(6) ? RIGHTS | IBV_ACCESS_MW_BIND : number(64)))));
		} else if (mrs[i] && once_in(6)) {
			DESTROY(mrs[i], ibv_dereg_mr);
		} else if (mrs[i]) {
			call = "ibv_rereg_mr";
			uint32_t offset = below(ARENA);
			note(call, ibv_rereg_mr(mrs[i], (int)below(16), ANY(pds), arena + offset, below(ARENA - offset), (int)(below(3) ? RIGHTS : number(64))));
		}
		return;
	case 4:
		call = "windows";
		if (!mws[i] && of) {
			note("ibv_alloc_mw", !(mws[i] = ibv_alloc_mw(of, (enum ibv_mw_type)(1 + below(once_in(5) ? 9 : 2)))));
		} else if (mws[i] && once_in(5)) {
			DESTROY(mws[i], ibv_dealloc_mw);
		} else if (mws[i] && ANY(qps)) {
			struct ibv_qp *on = ANY(qps);
			struct ibv_mw_bind bind = {.wr_id = step};
			bind.bind_info = (struct ibv_mw_bind_info){ANY(mrs), (uintptr_t)somewhere(), number(5000), below(32)};
			if (on)
				note("ibv_bind_mw", ibv_bind_mw(on, mws[i], &bind));
		}
		return;
	case 5: {
		struct ibv_ah_attr to = own_address();
		to.is_global = !once_in(9);
		to.port_num = once_in(9) ? (uint8_t)below(256) : 1;
		to.grh.sgid_index = once_in(9) ? (uint8_t)below(256) : 0;
		call = "ibv_create_ah";
		if (!ahs[i] && of)
			note(call, !(ahs[i] = ibv_create_ah(of, &to)));
		else if (ahs[i] && once_in(5))
			DESTROY(ahs[i], ibv_destroy_ah);
		return;
	}
	default: {
		struct ibv_srq_init_attr wants = {.attr = {number(32) + 1, number(4) + 1, 0}};
		struct ibv_srq_attr change = {number(100), number(9), number(100)};
		call = "ibv_create_srq";
		if (!srqs[i] && of)
			note(call, !(srqs[i] = ibv_create_srq(of, &wants)));
		else if (srqs[i] && once_in(15))
			DESTROY(srqs[i], ibv_destroy_srq);
		else if (srqs[i])
			note("ibv_modify_srq", ibv_modify_srq(srqs[i], &change, (int)below(8)));
	}
	}
}

/* One step up for a queue pair, or a leap, or nonsense. */
static void move(struct ibv_qp *qp)
{
	static const int up[] = {
		IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
		IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
		IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
	};
	struct ibv_qp *peer = below(4) ? ANY(qps) : qp;
	struct ibv_qp_attr attr = {
		.qp_state = (enum ibv_qp_state)(once_in(10) ? number(8) : qp->state < IBV_QPS_RTS ? qp->state + 1 : below(7)),
		.path_mtu = (enum ibv_mtu)(1 + number(5)),
		.dest_qp_num = peer ? peer->qp_num : number(0x1000000),
		.qp_access_flags = once_in(4) ? (int)number(64) : RIGHTS,
		.ah_attr = own_address(),
		.port_num = once_in(9) ? (uint8_t)below(256) : 1,
		.qkey = 0x11,
		.max_dest_rd_atomic = (uint8_t)number(8),
		.max_rd_atomic = (uint8_t)number(8),
		.min_rnr_timer = 1,
		.timeout = 8,
		.retry_cnt = 1,
		.rnr_retry = 1,
	};
	int mask = once_in(8) ? (int)number(1 << 25) : IBV_QP_STATE;
	if (mask == IBV_QP_STATE && qp->state < IBV_QPS_RTS)
		mask |= up[qp->state];
	if (qp->qp_type == IBV_QPT_UC)
		mask &= ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			  IBV_QP_MAX_QP_RD_ATOMIC);
	if (qp->qp_type == IBV_QPT_UD) {
		static const int datagrams[] = {IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, 0, IBV_QP_SQ_PSN};
		mask = IBV_QP_STATE | (qp->state < IBV_QPS_RTS ? datagrams[qp->state] : 0);
	}
	call = "ibv_modify_qp";
	note(call, ibv_modify_qp(qp, &attr, mask));
}

static void send_some(struct ibv_qp *qp)
{
	struct ibv_send_wr requests[3], *bad = NULL;
	struct ibv_sge sges[3][SGES];
	struct ibv_qp *peer = ANY(qps);
	unsigned count = 1 + below(3);
	memset(requests, 0, sizeof(requests));
	for (unsigned i = 0; i < count; i++) {
		struct ibv_send_wr *wr = &requests[i];
		wr->wr_id = step;
		wr->next = i + 1 < count ? &requests[i + 1] : NULL;
		wr->send_flags = (int)(below(8) ? below(16) : number(256));
		fill(sges[i], wr->send_flags & IBV_SEND_INLINE);
		wr->sg_list = once_in(20) ? NULL : sges[i];
		wr->num_sge = wr->sg_list ? (once_in(20) ? (int)number(SGES) : (int)below(4)) : 0;
		if (wr->num_sge > SGES)
			wr->num_sge = -1;
		wr->opcode = (enum ibv_wr_opcode)(once_in(12) ? number(40) : below(9));
		if (qp->qp_type == IBV_QPT_UD) {
			wr->wr.ud.ah = ANY(ahs);
			wr->wr.ud.remote_qpn = peer ? peer->qp_num : number(0x1000000);
			wr->wr.ud.remote_qkey = 0x11;
		} else if (wr->opcode == IBV_WR_BIND_MW) {
			wr->bind_mw.mw = ANY(mws);
			wr->bind_mw.rkey = some_key();
			wr->bind_mw.bind_info = (struct ibv_mw_bind_info){ANY(mrs), (uintptr_t)somewhere(), number(5000), below(32)};
		} else {
			/* Atomics have address and key elsewhere in the union. */
			wr->wr.rdma.remote_addr = (uintptr_t)somewhere();
			wr->wr.rdma.rkey = some_key();
			if (once_in(3))
				wr->wr.atomic.rkey = some_key();
		}
	}
	call = "ibv_post_send";
	note(call, ibv_post_send(qp, requests, &bad));
}

static void receive(struct ibv_qp *qp, struct ibv_srq *srq)
{
	struct ibv_sge sges[SGES];
	struct ibv_recv_wr request = {.wr_id = step}, *bad = NULL;
	fill(sges, 0);
	request.sg_list = once_in(20) ? NULL : sges;
	request.num_sge = request.sg_list ? (once_in(20) ? (int)below(SGES) : (int)below(4)) : 0;
	call = "receives";
	if (qp)
		note("ibv_post_recv", ibv_post_recv(qp, &request, &bad));
	if (srq)
		note("ibv_post_srq_recv", ibv_post_srq_recv(srq, &request, &bad));
}

static void poll_some(struct ibv_cq *of)
{
	struct ibv_wc completions[16];
	call = "ibv_poll_cq";
	int count = ibv_poll_cq(of, (int)below(17), completions);
	CLAIM(count <= 16);
	completed += count > 0 ? (unsigned)count : 0;
	if (once_in(4))
		note("ibv_req_notify_cq", ibv_req_notify_cq(of, (int)below(3)));
}

static void look(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr got;
	union ibv_gid group = {.raw = {255, 14, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 239, 1, 2, 3}};
	call = "ibv_query_qp";
	note(call, ibv_query_qp(qp, &attr, (int)below(1 << 21), &got));
	call = "multicast";
	const union ibv_gid *of = once_in(3) ? &own_gid : &group;
	note(call, once_in(2) ? ibv_attach_mcast(qp, of, 0) : ibv_detach_mcast(qp, of, 0));
	if (once_in(9))
		FAILS(ibv_modify_qp(qp, NULL, IBV_QP_STATE), EINVAL);
}

static void one_step(void)
{
	unsigned what = below(20), i = below(OBJECTS);
	if (what < 7)
		make((int)what, (int)i);
	else if (what < 10 && qps[i])
		move(qps[i]);
	else if (what < 14 && qps[i])
		send_some(qps[i]);
	else if (what < 16)
		receive(qps[i], ANY(srqs));
	else if (what < 19 && cqs[i])
		poll_some(cqs[i]);
	else if (qps[i])
		look(qps[i]);
}

/* In the order of use, and again for what was still in use. */
static unsigned destroy_all(void)
{
	unsigned left = 0;
	union ibv_gid groups[2] = {{.raw = {255, 14, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 239, 1, 2, 3}}, own_gid};
	for (int i = 0; i < OBJECTS; i++)
		for (int g = 0; g < 2 && qps[i]; g++)
			ibv_detach_mcast(qps[i], &groups[g], 0);
	for (int i = 0; i < OBJECTS; i++)
		if (qps[i])
			DESTROY(qps[i], ibv_destroy_qp);
	for (int i = 0; i < OBJECTS; i++) {
		if (mws[i])
			DESTROY(mws[i], ibv_dealloc_mw);
		if (srqs[i])
			DESTROY(srqs[i], ibv_destroy_srq);
		if (ahs[i])
			DESTROY(ahs[i], ibv_destroy_ah);
		if (cqs[i])
			DESTROY(cqs[i], ibv_destroy_cq);
	}
	for (int i = 0; i < OBJECTS; i++)
		if (mrs[i])
			DESTROY(mrs[i], ibv_dereg_mr);
	for (int i = 0; i < OBJECTS; i++)
		if (pds[i])
			DESTROY(pds[i], ibv_dealloc_pd);
	for (int i = 0; i < OBJECTS; i++)
		left += !!qps[i] + !!mws[i] + !!srqs[i] + !!ahs[i] + !!cqs[i] + !!mrs[i] + !!pds[i];
	return left;
}

int main(int count, char **arguments)
{
	static const int signals[] = {SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE};
	CLAIM(count == 3);
	state = strtoull(arguments[1], NULL, 0);
	unsigned long steps = strtoul(arguments[2], NULL, 0);
	for (unsigned i = 0; i < sizeof(signals) / sizeof(*signals); i++)
		signal(signals[i], crashed);
	open_device();
	arena = mmap(NULL, ARENA + GUARD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CLAIM(arena != MAP_FAILED);
	memset(arena + ARENA, 0xee, GUARD);
	for (step = 0; step < steps; step++)
		one_step();
	CLAIM(destroy_all() == 0);
	for (unsigned i = 0; i < GUARD; i++)
		CLAIM(arena[ARENA + i] == 0xee);
	printf("%lu accepted, %lu refused, %lu completed\n", accepted, refused, completed);
	CLAIM(accepted > steps / 10 && refused > steps / 10 && completed > 0);
	ibv_dereg_mr(mr);
	FAILS(ibv_close_device(ctx), 0);
	return 0;
}
