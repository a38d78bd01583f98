/* On-demand paging: regions of memory that comes and goes, and of the whole address space. */
#include "expect.h"
#include <sys/mman.h>

#define PAGE 4096
#define ODP (RIGHTS | IBV_ACCESS_ON_DEMAND | IBV_ACCESS_MW_BIND)

static char *map(size_t pages, int rights)
{
	char *at = mmap(NULL, pages * PAGE, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CLAIM(at != MAP_FAILED);
	return at;
}

static struct ibv_sge at(struct ibv_mr *region, const void *address, uint32_t length)
{
	struct ibv_sge sge = {.addr = (uintptr_t)address, .length = length, .lkey = region->lkey};
	return sge;
}

static void capabilities(void)
{
	struct ibv_device_attr_ex attr;
	/* With IBV_ODP_SUPPORT_FLUSH and IBV_ODP_SUPPORT_ATOMIC_WRITE, which older headers lack. */
	uint32_t reliable = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ |
			    IBV_ODP_SUPPORT_ATOMIC | IBV_ODP_SUPPORT_SRQ_RECV | 1 << 6 | 1 << 7;
	FAILS(ibv_query_device_ex(ctx, NULL, &attr), 0);
	CLAIM(attr.odp_caps.general_caps == (IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT));
	CLAIM(attr.odp_caps.per_transport_caps.rc_odp_caps == reliable && attr.xrc_odp_caps == reliable);
	CLAIM(attr.odp_caps.per_transport_caps.ud_odp_caps ==
	      (IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV));
	CLAIM(attr.odp_caps.per_transport_caps.uc_odp_caps ==
	      (IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_SRQ_RECV));
}

static void registration(void)
{
	REFUSED((ibv_reg_mr)(pd, NULL, SIZE_MAX, RIGHTS), EINVAL);
	REFUSED((ibv_reg_mr)(pd, memory, SIZE_MAX, ODP), EINVAL);
	REFUSED(ibv_reg_mr_iova2(pd, NULL, SIZE_MAX, 4096, ODP), EINVAL);
	REFUSED((ibv_reg_mr)(pd, NULL, SIZE_MAX, IBV_ACCESS_ON_DEMAND | IBV_ACCESS_REMOTE_WRITE), EINVAL);
	/* What is not there can be registered on demand only. */
	char *gone = map(1, PROT_NONE);
	CLAIM(munmap(gone, PAGE) == 0);
	REFUSED((ibv_reg_mr)(pd, gone, PAGE, RIGHTS), EFAULT);
	struct ibv_mr *hopeful = (ibv_reg_mr)(pd, gone, PAGE, ODP);
	CLAIM(hopeful);
	FAILS(ibv_dereg_mr(hopeful), 0);
}

/* Every operation, both ways, at odd places. */
static void traffic(struct ibv_qp *a, struct ibv_qp *b, struct ibv_mr *region, char *here, char *there)
{
	for (uint32_t length = 0; length < 9000; length = length * 2 + 1) {
		for (uint32_t i = 0; i < length; i++)
			here[3 + i] = (char)(i * 5 + length);
		FAILS(outcome(a, IBV_WR_RDMA_WRITE, at(region, here + 3, length), (uintptr_t)there + 1, region->rkey), 0);
		CLAIM(!memcmp(here + 3, there + 1, length));
		memset(here, 0, 9000);
		FAILS(outcome(a, IBV_WR_RDMA_READ, at(region, here + 5, length), (uintptr_t)there + 1, region->rkey), 0);
		CLAIM(!memcmp(here + 5, there + 1, length));
		struct ibv_sge into = at(region, there + 7, length);
		struct ibv_recv_wr receive = {.wr_id = 1, .sg_list = &into, .num_sge = 1}, *bad;
		FAILS(ibv_post_recv(b, &receive, &bad), 0);
		struct ibv_sge from = at(region, here + 5, length);
		struct ibv_send_wr send = {.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
		post(a, &send);
		CLAIM(completions(2) == 1);
		CLAIM(!memcmp(here + 5, there + 7, length));
	}
	*(uint64_t *)there = 41;
	FAILS(outcome(a, IBV_WR_ATOMIC_FETCH_AND_ADD, at(region, here, 8), (uintptr_t)there, region->rkey), 0);
	CLAIM(*(uint64_t *)here == 41 && *(uint64_t *)there == 42);
	*(uint64_t *)here = 77; /* IBV_WR_ATOMIC_WRITE, which older headers lack */
	FAILS(outcome(a, (enum ibv_wr_opcode)15, at(region, here, 8), (uintptr_t)there, region->rkey), 0);
	CLAIM(*(uint64_t *)there == 77);
}

/* Each access to a page that is not there ends the message, and not the program. */
static void holes(struct ibv_qp *a, struct ibv_qp *b, struct ibv_mr *region, char *gone)
{
	uint64_t address = (uintptr_t)gone;
	struct ibv_sge mine = piece(0, 8);
	CLAIM(munmap(gone, PAGE) == 0);
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, mine, address, region->rkey), IBV_WC_REM_ACCESS_ERR);
	reconnect(a, b);
	FAILS(outcome(a, IBV_WR_RDMA_READ, mine, address, region->rkey), IBV_WC_REM_ACCESS_ERR);
	reconnect(a, b);
	FAILS(outcome(a, IBV_WR_ATOMIC_FETCH_AND_ADD, mine, address, region->rkey), IBV_WC_REM_ACCESS_ERR);
	reconnect(a, b);
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, at(region, gone, 8), (uintptr_t)memory, mr->rkey), IBV_WC_LOC_PROT_ERR);
	reconnect(a, b);
	FAILS(outcome(a, IBV_WR_RDMA_READ, at(region, gone, 8), (uintptr_t)memory, mr->rkey), IBV_WC_LOC_PROT_ERR);
	reconnect(a, b);
	/* A receive into the hole: the receiver's memory error, the sender's remote operation error. */
	struct ibv_sge into = at(region, gone, 8);
	struct ibv_recv_wr receive = {.wr_id = 1, .sg_list = &into, .num_sge = 1}, *bad;
	FAILS(ibv_post_recv(b, &receive, &bad), 0);
	struct ibv_send_wr send = {.wr_id = 2, .sg_list = &mine, .num_sge = 1, .opcode = IBV_WR_SEND};
	post(a, &send);
	for (int i = 0; i < 2; i++) {
		struct ibv_wc wc = completion();
		CLAIM(wc.status == (wc.wr_id == 1 ? IBV_WC_LOC_PROT_ERR : IBV_WC_REM_OP_ERR));
	}
	reconnect(a, b);
	/* Memory that came back is used as before. */
	CLAIM(mmap(gone, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == gone);
	memory[0] = 0x1234;
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, mine, address, region->rkey), 0);
	CLAIM(*(uint64_t *)gone == 0x1234);
	/* Without the right to write: reads work. */
	CLAIM(mprotect(gone, PAGE, PROT_READ) == 0);
	FAILS(outcome(a, IBV_WR_RDMA_READ, mine, address, region->rkey), 0);
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, mine, address, region->rkey), IBV_WC_REM_ACCESS_ERR);
	reconnect(a, b);
	CLAIM(mprotect(gone, PAGE, PROT_READ | PROT_WRITE) == 0);
}

static void advice(struct ibv_mr *region, char *pages)
{
	struct ibv_sge sge[2] = {at(region, pages + 100, 3 * PAGE), at(region, pages, 0)};
	struct ibv_mr *read_only = (ibv_reg_mr)(pd, pages, PAGE, IBV_ACCESS_ON_DEMAND);
	struct ibv_pd *other = ibv_alloc_pd(ctx);
	CLAIM(read_only && other);
	for (int advice = IBV_ADVISE_MR_ADVICE_PREFETCH; advice <= IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT; advice++) {
		FAILS(ibv_advise_mr(pd, advice, 0, sge, 2), 0);
		FAILS(ibv_advise_mr(pd, advice, IBV_ADVISE_MR_FLAG_FLUSH, sge, 2), 0);
		unsigned char present[3];
		CLAIM(mincore(pages, 3 * PAGE, present) == 0);
		CLAIM(advice == IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT || (present[0] & present[1] & present[2] & 1));
	}
	FAILS(ibv_advise_mr(pd, 77, 0, sge, 1), EOPNOTSUPP);
	FAILS(ibv_advise_mr(pd, 0, 2, sge, 1), EINVAL);
	FAILS(ibv_advise_mr(pd, 0, 0, sge, 0), EINVAL);
	FAILS(ibv_advise_mr(pd, 0, 0, NULL, 1), EINVAL);
	FAILS(ibv_advise_mr(other, 0, 0, sge, 1), EPERM);
	sge[1] = at(read_only, pages, 8);
	FAILS(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, sge, 2), 0);
	FAILS(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0, sge, 2), EPERM);
	sge[1] = piece(0, 8);
	FAILS(ibv_advise_mr(pd, 0, 0, sge, 2), EINVAL);
	sge[1].lkey = 0x777;
	FAILS(ibv_advise_mr(pd, 0, 0, sge, 2), ENOENT);
	sge[1] = at(read_only, pages + 8, PAGE);
	FAILS(ibv_advise_mr(pd, 0, 0, sge, 2), EFAULT);
	char *gone = map(1, PROT_NONE);
	sge[1] = at(region, gone, 8);
	/* Pages are another matter than keys: only who waits hears of them. */
	FAILS(ibv_advise_mr(pd, 0, 0, sge, 2), 0);
	FAILS(ibv_advise_mr(pd, 0, IBV_ADVISE_MR_FLAG_FLUSH, sge, 2), EFAULT);
	CLAIM(munmap(gone, PAGE) == 0);
	FAILS(ibv_dereg_mr(read_only), 0);
	FAILS(ibv_dealloc_pd(other), 0);
}

static void windows(struct ibv_qp *a, struct ibv_qp *b, struct ibv_mr *region, char *gone)
{
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = {
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = {.mr = region, .addr = (uintptr_t)gone, .length = PAGE, .mw_access_flags = IBV_ACCESS_REMOTE_WRITE},
	};
	CLAIM(mw);
	FAILS(ibv_bind_mw(b, mw, &bind), 0);
	completions(1);
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, piece(0, 8), (uintptr_t)gone, mw->rkey), 0);
	CLAIM(munmap(gone, PAGE) == 0);
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, piece(0, 8), (uintptr_t)gone, mw->rkey), IBV_WC_REM_ACCESS_ERR);
	FAILS(ibv_dealloc_mw(mw), 0);
}

/* Datagrams: the end that has the hole learns of it, and the peer does not. */
static void datagrams(struct ibv_mr *region, char *page)
{
	struct ibv_qp *b, *a = pair(IBV_QPT_UD, &b);
	struct ibv_ah_attr address = own_address();
	struct ibv_sge from = at(region, page, 100), into = at(region, page + 1000, 140);
	struct ibv_send_wr send = {.wr_id = 2, .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_recv_wr receive = {.wr_id = 1, .sg_list = &into, .num_sge = 1}, *bad;
	CLAIM((send.wr.ud.ah = ibv_create_ah(pd, &address)));
	send.wr.ud.remote_qpn = b->qp_num;
	send.wr.ud.remote_qkey = 7;
	memset(page, 0x33, 100);
	FAILS(ibv_post_recv(b, &receive, &bad), 0);
	post(a, &send);
	CLAIM(completions(2) == 1);
	CLAIM(!memcmp(page, page + 1040, 100));
	CLAIM(munmap(page, PAGE) == 0);
	post(a, &send);
	struct ibv_wc wc = completion();
	CLAIM(wc.wr_id == 2 && wc.status == IBV_WC_LOC_PROT_ERR);
	FAILS(ibv_post_recv(b, &receive, &bad), 0);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_SQE};
	FAILS(ibv_modify_qp(a, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE), 0);
	from = piece(0, 100);
	post(a, &send);
	for (int i = 0; i < 2; i++) {
		wc = completion();
		CLAIM(wc.status == (wc.wr_id == 1 ? IBV_WC_LOC_PROT_ERR : IBV_WC_SUCCESS));
	}
	FAILS(ibv_destroy_ah(send.wr.ud.ah), 0);
	FAILS(ibv_destroy_qp(a), 0);
	FAILS(ibv_destroy_qp(b), 0);
	CLAIM(mmap(page, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == page);
}

/* Unreliable: what cannot be written is gone, and what comes after is not. */
static void unreliable(struct ibv_mr *region, char *page)
{
	struct ibv_qp *b, *a = pair(IBV_QPT_UC, &b);
	memory[0] = 0x77;
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, piece(0, 8), (uintptr_t)page, region->rkey), 0);
	CLAIM(munmap(page, PAGE) == 0);
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, piece(0, 8), (uintptr_t)page, region->rkey), 0);
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, at(region, page, 8), (uintptr_t)memory, mr->rkey), IBV_WC_LOC_PROT_ERR);
	FAILS(ibv_destroy_qp(a), 0);
	FAILS(ibv_destroy_qp(b), 0);
	CLAIM(mmap(page, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == page);
}

int main(void)
{
	open_device();
	capabilities();
	registration();
	struct ibv_qp *b, *a = pair(IBV_QPT_RC, &b);
	char *pages = map(9, PROT_READ | PROT_WRITE);
	struct ibv_mr *one = (ibv_reg_mr)(pd, pages, 9 * PAGE, ODP), *all = (ibv_reg_mr)(pd, NULL, SIZE_MAX, ODP);
	CLAIM(one && all && all->addr == NULL && all->length == SIZE_MAX);
	traffic(a, b, one, pages, pages + 4 * PAGE);
	traffic(a, b, all, pages, pages + 4 * PAGE);
	/* The implicit region reaches everything that the process has, and nothing else. */
	static char own[64];
	char local[64] = "on the stack";
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, at(all, local, 64), (uintptr_t)own, all->rkey), 0);
	CLAIM(!strcmp(own, local));
	holes(a, b, one, pages + 8 * PAGE);
	holes(a, b, all, pages + 8 * PAGE);
	uint64_t nowhere[] = {0, 8, 1ull << 47, 1ull << 63, UINT64_MAX - 8, UINT64_MAX};
	for (unsigned i = 0; i < sizeof(nowhere) / sizeof(*nowhere); i++) {
		FAILS(outcome(a, IBV_WR_RDMA_WRITE, piece(0, 8), nowhere[i], all->rkey), IBV_WC_REM_ACCESS_ERR);
		reconnect(a, b);
	}
	datagrams(all, pages + 8 * PAGE);
	unreliable(one, pages + 8 * PAGE);
	advice(all, pages);
	windows(a, b, one, pages + 8 * PAGE);
	reconnect(a, b);
	FAILS(ibv_rereg_mr(all, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, RIGHTS), IBV_REREG_MR_ERR_CMD);
	FAILS(ibv_rereg_mr(all, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_ON_DEMAND), 0);
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, piece(0, 8), (uintptr_t)own, all->rkey), IBV_WC_REM_ACCESS_ERR);
	FAILS(ibv_destroy_qp(a), 0);
	FAILS(ibv_destroy_qp(b), 0);
	FAILS(ibv_dereg_mr(one), 0);
	FAILS(ibv_dereg_mr(all), 0);
	FAILS(ibv_close_device(ctx), 0);
	return 0;
}
