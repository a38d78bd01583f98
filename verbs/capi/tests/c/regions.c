/* Memory regions as they are made and changed, and windows onto them. */
#define _GNU_SOURCE
#include "expect.h"
#include <sys/mman.h>

#define PAGE 4096

static void registration(void)
{
	char *pages = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CLAIM(pages != MAP_FAILED && mprotect(pages + PAGE, PAGE, PROT_READ) == 0 && munmap(pages + 2 * PAGE, PAGE) == 0);
	struct ibv_mr *read_only;
	REFUSED((ibv_reg_mr)(pd, pages, 2 * PAGE, IBV_ACCESS_LOCAL_WRITE), EFAULT);
	REFUSED((ibv_reg_mr)(pd, pages + PAGE, 2 * PAGE, 0), EFAULT);
	REFUSED((ibv_reg_mr)(pd, (void *)8, 8, 0), EFAULT);
	REFUSED((ibv_reg_mr)(pd, (void *)-8, 16, 0), EINVAL);
	CLAIM((read_only = (ibv_reg_mr)(pd, pages, 2 * PAGE, IBV_ACCESS_REMOTE_READ)));
	FAILS(ibv_rereg_mr(read_only, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE), IBV_REREG_MR_ERR_CMD);
	CLAIM(errno == EFAULT);
	FAILS(ibv_rereg_mr(read_only, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, pages + PAGE, 2 * PAGE, 0), IBV_REREG_MR_ERR_CMD);
	CLAIM(errno == EFAULT);
	FAILS(ibv_dereg_mr(read_only), 0);
	CLAIM(munmap(pages, 2 * PAGE) == 0);

	int refused[] = {IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_ATOMIC, 1 << 12, 1 << 30};
	for (unsigned i = 0; i < sizeof(refused) / sizeof(*refused); i++)
		REFUSED((ibv_reg_mr)(pd, memory, 8, refused[i]), EINVAL);
	/* Hints that make no difference, known and unknown ones. */
	struct ibv_mr *hinted = ibv_reg_mr(pd, memory, 8, RIGHTS | IBV_ACCESS_RELAXED_ORDERING | 1 << 22 | IBV_ACCESS_HUGETLB);
	struct ibv_mr *empty = ibv_reg_mr(pd, (char *)memory + 1, 0, RIGHTS);
	CLAIM(hinted && empty && empty->length == 0);
	FAILS(ibv_dereg_mr(hinted), 0);
	FAILS(ibv_dereg_mr(empty), 0);
}

/* Files that can be mapped, as DMA-bufs of udmabuf and of heaps can: sealed ones, and ones that may be shortened. */
static void files(struct ibv_qp *a, struct ibv_qp *b)
{
	int file = memfd_create("region", MFD_ALLOW_SEALING), ends[2];
	char text[16] = "", *bytes = (char *)memory;
	CLAIM(file >= 0 && pipe(ends) == 0 && ftruncate(file, 4 * PAGE) == 0 && pwrite(file, "from file", 10, PAGE + 100) == 10);
	for (int sealed = 0; sealed < 2; sealed++) {
		if (sealed)
			CLAIM(fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
		struct ibv_mr *region = ibv_reg_dmabuf_mr(pd, PAGE + 100, PAGE, 0x1064, file, RIGHTS);
		CLAIM(region && region->length == PAGE && (uintptr_t)region->addr == PAGE + 100 && region->pd == pd);
		FAILS(outcome(a, IBV_WR_RDMA_READ, piece(0, 10), 0x1064, region->rkey), 0);
		CLAIM(!strcmp(bytes, "from file"));
		/* From the file to the file, by its local key too. */
		strcpy(bytes, "to a file");
		FAILS(outcome(a, IBV_WR_RDMA_WRITE, piece(0, 10), 0x1264, region->rkey), 0);
		struct ibv_sge there = {.addr = 0x1264, .length = 10, .lkey = region->lkey};
		FAILS(outcome(a, IBV_WR_RDMA_WRITE, there, 0x1364, region->rkey), 0);
		CLAIM(pread(file, text, 10, PAGE + 100 + 0x300) == 10 && !strcmp(text, "to a file"));
		FAILS(outcome(a, IBV_WR_RDMA_READ, piece(0, 8), 0x1064 + PAGE - 7, region->rkey), IBV_WC_REM_ACCESS_ERR);
		reconnect(a, b);
		FAILS(ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_CMD);
		uint32_t its_rkey = region->rkey;
		FAILS(ibv_dereg_mr(region), 0);
		FAILS(outcome(a, IBV_WR_RDMA_READ, piece(0, 8), 0x1064, its_rkey), IBV_WC_REM_ACCESS_ERR);
		reconnect(a, b);
	}
	/* Programs ask with a descriptor of -1 whether the memory of GPUs can be registered. */
	REFUSED(ibv_reg_dmabuf_mr(pd, 0, PAGE, 0, -1, RIGHTS), EOPNOTSUPP);
	REFUSED(ibv_reg_dmabuf_mr(pd, 0, PAGE, 0, ends[1], RIGHTS), EOPNOTSUPP);
	REFUSED(ibv_reg_dmabuf_mr(pd, 0, 0, 0, file, RIGHTS), EINVAL);
	REFUSED(ibv_reg_dmabuf_mr(pd, 4 * PAGE, 1, 0, file, RIGHTS), EINVAL);
	REFUSED(ibv_reg_dmabuf_mr(pd, 0, PAGE, 0, file, IBV_ACCESS_REMOTE_WRITE), EINVAL);
	/* Remote addresses elsewhere in a page than the offset, and rights that a DMA-buf does not have. */
	REFUSED(ibv_reg_dmabuf_mr(pd, 16, PAGE, 32, file, RIGHTS), EINVAL);
	int others[] = {IBV_ACCESS_ON_DEMAND, IBV_ACCESS_MW_BIND, IBV_ACCESS_ZERO_BASED, IBV_ACCESS_HUGETLB, 1 << 8, 1 << 25};
	for (unsigned i = 0; i < sizeof(others) / sizeof(*others); i++)
		REFUSED(ibv_reg_dmabuf_mr(pd, 0, PAGE, 0, file, RIGHTS | others[i]), EINVAL);
	CLAIM(close(file) == 0 && close(ends[0]) == 0 && close(ends[1]) == 0);
}

static void addresses(struct ibv_qp *a, struct ibv_qp *b)
{
	char *here = (char *)memory + 100;
	struct ibv_mr *zero_based = (ibv_reg_mr)(pd, here, 100, RIGHTS | IBV_ACCESS_ZERO_BASED);
	uint64_t offset = (uintptr_t)here % PAGE, far = 0x700000000000 + offset;
	struct ibv_mr *moved = ibv_reg_mr_iova2(pd, here, 100, far, RIGHTS);
	struct ibv_mr *older = ibv_reg_mr_iova(pd, here, 100, 4 * PAGE + offset, RIGHTS);
	CLAIM(zero_based && moved && older && moved->addr == here && moved->length == 100);
	struct {
		struct ibv_mr *region;
		uint64_t first;
	} cases[] = {{zero_based, 0}, {moved, far}, {older, 4 * PAGE + offset}, {mr, (uintptr_t)here}};
	for (unsigned i = 0; i < 4; i++) {
		struct ibv_mr *region = cases[i].region;
		uint64_t first = cases[i].first;
		struct ibv_sge inside = {.addr = first + 50, .length = 8, .lkey = region->lkey};
		strcpy(here, "written");
		FAILS(outcome(a, IBV_WR_RDMA_READ, inside, first, region->rkey), 0);
		CLAIM(!strcmp(here + 50, "written"));
		memset(here, 0, 100);
		if (region == mr)
			continue;
		/* Neither before it, nor behind it, nor by the address that it has in the process. */
		uint64_t outside[] = {first - 1, first + 93, (uintptr_t)here};
		for (unsigned j = 0; j < 3; j++) {
			FAILS(outcome(a, IBV_WR_RDMA_READ, piece(0, 8), outside[j], region->rkey), IBV_WC_REM_ACCESS_ERR);
			reconnect(a, b);
			inside.addr = outside[j];
			FAILS(outcome(a, IBV_WR_RDMA_WRITE, inside, (uintptr_t)memory, mr->rkey), IBV_WC_LOC_PROT_ERR);
			reconnect(a, b);
		}
	}
	FAILS(ibv_dereg_mr(zero_based), 0);
	FAILS(ibv_dereg_mr(moved), 0);
	uint32_t its_rkey = older->rkey;
	FAILS(ibv_dereg_mr(older), 0);
	/* A region that is gone. */
	FAILS(outcome(a, IBV_WR_RDMA_READ, piece(0, 8), 64, its_rkey), IBV_WC_REM_ACCESS_ERR);
	reconnect(a, b);
}

static void changes(struct ibv_qp *a, struct ibv_qp *b)
{
	char *first = (char *)memory + 1000, *second = (char *)memory + 2000;
	struct ibv_mr *region = ibv_reg_mr(pd, first, 100, RIGHTS);
	struct ibv_pd *other = ibv_alloc_pd(ctx);
	CLAIM(region && other);
	int all = IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
	struct {
		int flags;
		struct ibv_pd *pd;
		void *addr;
		size_t length;
		int access;
		int refusal;
	} wrong[] = {
		{0, NULL, NULL, 0, 0, IBV_REREG_MR_ERR_INPUT},
		{8, NULL, NULL, 0, 0, IBV_REREG_MR_ERR_INPUT},
		{all | 8, other, second, 100, RIGHTS, IBV_REREG_MR_ERR_INPUT},
		{IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, 100, 0, IBV_REREG_MR_ERR_INPUT},
		{IBV_REREG_MR_CHANGE_TRANSLATION, NULL, second, 0, 0, IBV_REREG_MR_ERR_INPUT},
		{IBV_REREG_MR_CHANGE_TRANSLATION, NULL, second, SIZE_MAX, 0, IBV_REREG_MR_ERR_CMD},
		{IBV_REREG_MR_CHANGE_PD, NULL, NULL, 0, 0, IBV_REREG_MR_ERR_INPUT},
		{IBV_REREG_MR_CHANGE_PD, other, NULL, 0, RIGHTS, IBV_REREG_MR_ERR_INPUT},
		{IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE, IBV_REREG_MR_ERR_CMD},
		{IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 1 << 12, IBV_REREG_MR_ERR_CMD},
	};
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		errno = 0;
		FAILS(ibv_rereg_mr(region, wrong[i].flags, wrong[i].pd, wrong[i].addr, wrong[i].length, wrong[i].access),
		      wrong[i].refusal);
		CLAIM(errno == EINVAL);
	}
	CLAIM(ibv_rereg_mr(NULL, all, pd, second, 100, RIGHTS) == IBV_REREG_MR_ERR_INPUT);
	/* Nothing has changed by that. */
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, piece(0, 8), (uintptr_t)first, region->rkey), 0);
	FAILS(ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, second, 50, 0), 0);
	CLAIM(region->addr == second && region->length == 50 && region->pd == pd);
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, piece(0, 8), (uintptr_t)second, region->rkey), 0);
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, piece(0, 8), (uintptr_t)first, region->rkey), IBV_WC_REM_ACCESS_ERR);
	reconnect(a, b);
	FAILS(ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_READ), 0);
	FAILS(outcome(a, IBV_WR_RDMA_READ, piece(0, 8), (uintptr_t)second, region->rkey), 0);
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, piece(0, 8), (uintptr_t)second, region->rkey), IBV_WC_REM_ACCESS_ERR);
	reconnect(a, b);
	FAILS(ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_PD, other, NULL, 0, 0), 0);
	CLAIM(region->pd == other);
	FAILS(ibv_dealloc_pd(other), EBUSY);
	FAILS(outcome(a, IBV_WR_RDMA_READ, piece(0, 8), (uintptr_t)second, region->rkey), IBV_WC_REM_ACCESS_ERR);
	reconnect(a, b);
	FAILS(ibv_rereg_mr(region, all, pd, first, 100, RIGHTS | IBV_ACCESS_MW_BIND), 0);
	CLAIM(region->pd == pd && region->addr == first && region->length == 100);
	FAILS(ibv_dealloc_pd(other), 0);
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, piece(0, 8), (uintptr_t)first, region->rkey), 0);
	/* A region with a window bound to it stays as it is. */
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = {
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = {.mr = region, .addr = (uintptr_t)first, .length = 10, .mw_access_flags = IBV_ACCESS_REMOTE_WRITE},
	};
	CLAIM(mw);
	FAILS(ibv_bind_mw(b, mw, &bind), 0);
	completions(1);
	FAILS(ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_CMD);
	CLAIM(errno == EBUSY);
	FAILS(ibv_dereg_mr(region), EBUSY);
	/* Length 0 unbinds. */
	bind.bind_info.length = 0;
	FAILS(ibv_bind_mw(b, mw, &bind), 0);
	completions(1);
	FAILS(ibv_dereg_mr(region), 0);
	FAILS(ibv_dealloc_mw(mw), 0);
}

static struct ibv_send_wr bind_request(struct ibv_mw *mw, uint64_t address, uint64_t length, unsigned rights)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED};
	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	wr.bind_mw.bind_info.mr = mr;
	wr.bind_mw.bind_info.addr = address;
	wr.bind_mw.bind_info.length = length;
	wr.bind_mw.bind_info.mw_access_flags = rights;
	return wr;
}

static enum ibv_wc_status posted(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	post(qp, wr);
	return completion().status;
}

/* Binds are on the data path: of the structures they read what adapters' libraries read, also of copies. */
static void structures_of_binds_are_trusted(struct ibv_qp *b)
{
	uint64_t here = (uintptr_t)memory + 4096;
	for (int copied = 0; copied < 2; copied++)
		for (int garbled = 0; garbled < 4; garbled++) {
			struct ibv_mw *windows[2] = {ibv_alloc_mw(pd, IBV_MW_TYPE_1), ibv_alloc_mw(pd, IBV_MW_TYPE_2)};
			CLAIM(windows[0] && windows[1]);
			for (int k = 0; k < 2; k++) {
				struct ibv_mr region = *mr, *by = copied ? &region : mr;
				struct ibv_mw window = *windows[k], *mw = copied ? &window : windows[k];
				uint32_t handles[2] = {by->handle, mw->handle}, key = mw->rkey;
				by->handle ^= garbled & 1 ? 0x5a5a : 0;
				mw->handle ^= garbled & 2 ? 0x5a5a : 0;
				struct ibv_mw_bind bind = {
					.send_flags = IBV_SEND_SIGNALED,
					.bind_info = {.mr = by, .addr = here, .length = 64, .mw_access_flags = IBV_ACCESS_REMOTE_READ}};
				struct ibv_send_wr wr = bind_request(mw, here, 64, IBV_ACCESS_REMOTE_READ);
				wr.bind_mw.bind_info.mr = by;
				if (k == 0)
					FAILS(ibv_bind_mw(b, mw, &bind), 0);
				else
					post(b, &wr);
				CLAIM(completion().status == IBV_WC_SUCCESS);
				CLAIM(mw->rkey != key || (copied && k == 1));
				by->handle = handles[0];
				mw->handle = handles[1];
				FAILS(ibv_dealloc_mw(windows[k]), 0);
			}
		}
}

/* Only windows of type 2 may begin at 0: the post is refused, and nothing has happened. */
static void zero_based_windows_of_type_1_are_refused(struct ibv_qp *a, struct ibv_qp *b)
{
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = {
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = {.mr = mr, .addr = (uintptr_t)memory, .length = 64, .mw_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ZERO_BASED}};
	struct ibv_wc wc;
	CLAIM(mw);
	uint32_t key = mw->rkey;
	FAILS(ibv_bind_mw(b, mw, &bind), EINVAL);
	CLAIM(mw->rkey == key && ibv_poll_cq(cq, 1, &wc) == 0);
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, piece(0, 8), (uintptr_t)memory + 64, mr->rkey), 0);
	bind.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_READ;
	FAILS(ibv_bind_mw(b, mw, &bind), 0);
	completions(1);
	FAILS(ibv_dealloc_mw(mw), 0);
}

/* A datagram queue pair has no windows. */
static void datagram_queue_pairs_bind_nothing(void)
{
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_UD);
	struct ibv_qp *qp = ibv_create_qp(pd, &wants);
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	CLAIM(qp && mw);
	init(qp);
	connect_to(qp, 0);
	struct ibv_send_wr wr = bind_request(mw, (uintptr_t)memory, 64, IBV_ACCESS_REMOTE_READ);
	FAILS(posted(qp, &wr), IBV_WC_LOC_QP_OP_ERR);
	FAILS(ibv_destroy_qp(qp), 0);
	FAILS(ibv_dealloc_mw(mw), 0);
}

static void windows_of_type_1(struct ibv_qp *a, struct ibv_qp *b)
{
	uint64_t here = (uintptr_t)memory + 4096;
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = {
		.wr_id = 4,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = {.mr = mr, .addr = here, .length = 64, .mw_access_flags = IBV_ACCESS_REMOTE_WRITE},
	};
	struct ibv_send_wr as_type_2 = bind_request(mw, here, 64, IBV_ACCESS_REMOTE_WRITE), *bad;
	CLAIM(mw && mw->type == IBV_MW_TYPE_1 && mw->pd == pd);
	FAILS(ibv_post_send(b, &as_type_2, &bad), EINVAL);
	/* Not bound: opens nothing. */
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, piece(0, 8), here, mw->rkey), IBV_WC_REM_ACCESS_ERR);
	reconnect(a, b);
	uint32_t unbound = mw->rkey;
	FAILS(ibv_bind_mw(b, mw, &bind), 0);
	CLAIM(mw->rkey != unbound && mw->rkey >> 8 == unbound >> 8);
	struct ibv_wc wc = completion();
	CLAIM(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_BIND_MW && wc.wr_id == 4);
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, piece(0, 8), here + 56, mw->rkey), 0);
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, piece(0, 8), here + 57, mw->rkey), IBV_WC_REM_ACCESS_ERR);
	reconnect(a, b);
	FAILS(outcome(a, IBV_WR_RDMA_READ, piece(0, 8), here, mw->rkey), IBV_WC_REM_ACCESS_ERR);
	reconnect(a, b);
	/* Bound again: the old key is dead. */
	uint32_t old = mw->rkey;
	bind.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_READ;
	FAILS(ibv_bind_mw(b, mw, &bind), 0);
	completions(1);
	FAILS(outcome(a, IBV_WR_RDMA_READ, piece(0, 8), here, mw->rkey), 0);
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, piece(0, 8), here, old), IBV_WC_REM_ACCESS_ERR);
	reconnect(a, b);
	/* It cannot be invalidated, only unbound; and gives no local access. */
	struct ibv_send_wr invalidate = {.opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED, .invalidate_rkey = mw->rkey};
	CLAIM(posted(b, &invalidate) != IBV_WC_SUCCESS);
	reconnect(a, b);
	struct ibv_sge through = {.addr = here, .length = 8, .lkey = mw->rkey};
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, through, here, mr->rkey), IBV_WC_LOC_PROT_ERR);
	reconnect(a, b);
	/* What a bind asks too much of. */
	bind.bind_info.mw_access_flags = IBV_ACCESS_MW_BIND;
	FAILS(ibv_bind_mw(b, mw, &bind), 0);
	FAILS(completion().status, IBV_WC_MW_BIND_ERR);
	reconnect(a, b);
	bind.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_READ;
	bind.bind_info.length = sizeof(memory);
	FAILS(ibv_bind_mw(b, mw, &bind), 0);
	FAILS(completion().status, IBV_WC_MW_BIND_ERR);
	reconnect(a, b);
	struct ibv_mr *unbindable = ibv_reg_mr(pd, memory, 64, RIGHTS);
	bind.bind_info = (struct ibv_mw_bind_info){.mr = unbindable, .addr = (uintptr_t)memory, .length = 8};
	bind.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_READ;
	FAILS(ibv_bind_mw(b, mw, &bind), 0);
	FAILS(completion().status, IBV_WC_MW_BIND_ERR);
	reconnect(a, b);
	FAILS(ibv_dereg_mr(unbindable), 0);
	FAILS(ibv_dealloc_mw(mw), 0);
}

static void windows_of_type_2(struct ibv_qp *a, struct ibv_qp *b)
{
	uint64_t here = (uintptr_t)memory + 4096;
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	struct ibv_qp *d, *c = pair(IBV_QPT_RC, &d);
	unsigned both = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	CLAIM(mw);
	struct ibv_send_wr bind = bind_request(mw, here, 64, both), *bad;
	bind.num_sge = 1;
	bind.sg_list = &(struct ibv_sge){.addr = here, .length = 8, .lkey = mr->lkey};
	FAILS(ibv_post_send(b, &bind, &bad), EINVAL);
	bind = bind_request(mw, here, 64, both);
	FAILS(posted(b, &bind), 0);
	CLAIM(mw->rkey == bind.bind_mw.rkey);
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, piece(0, 8), here, mw->rkey), 0);
	/* Type 2B: only the queue pair that it was bound on. */
	FAILS(outcome(c, IBV_WR_RDMA_WRITE, piece(0, 8), here, mw->rkey), IBV_WC_REM_ACCESS_ERR);
	reconnect(c, d);
	/* Bound already. */
	bind = bind_request(mw, here, 64, both);
	uint32_t bound = mw->rkey;
	post(b, &bind);
	CLAIM(mw->rkey == bind.bind_mw.rkey);
	FAILS(completion().status, IBV_WC_MW_BIND_ERR);
	CLAIM(mw->rkey == bound);
	/* What is flushed or not posted changes no key either. */
	FAILS(posted(b, &bind), IBV_WC_WR_FLUSH_ERR);
	CLAIM(mw->rkey == bound);
	bind.num_sge = 1;
	struct ibv_send_wr first = bind_request(mw, here, 64, both);
	first.next = &bind;
	FAILS(ibv_post_send(b, &first, &bad), EINVAL);
	CLAIM(bad == &bind && completion().status == IBV_WC_WR_FLUSH_ERR && mw->rkey == bound);
	reconnect(a, b);
	/* Invalidated here. */
	struct ibv_send_wr invalidate = {.opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED, .invalidate_rkey = mw->rkey};
	CLAIM(posted(d, &invalidate) != IBV_WC_SUCCESS);
	reconnect(c, d);
	post(b, &invalidate);
	struct ibv_wc wc = completion();
	CLAIM(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_LOCAL_INV);
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, piece(0, 8), here, mw->rkey), IBV_WC_REM_ACCESS_ERR);
	reconnect(a, b);
	/* Only the low byte of the key is the program's, and it may be any. */
	uint32_t wanted[] = {0xba, 1024, ~mw->rkey, mw->rkey & 0xff};
	for (unsigned i = 0; i < 4; i++) {
		bind = bind_request(mw, here, 64, both);
		bind.bind_mw.rkey = wanted[i];
		FAILS(posted(b, &bind), 0);
		CLAIM(mw->rkey == ((bound & ~0xffu) | (wanted[i] & 0xff)));
		FAILS(outcome(a, IBV_WR_RDMA_WRITE, piece(0, 8), here, mw->rkey), 0);
		invalidate.invalidate_rkey = mw->rkey;
		FAILS(posted(b, &invalidate), 0);
	}
	/* Free again: bound, zero-based, and invalidated by the peer. */
	bind = bind_request(mw, here, 64, both | IBV_ACCESS_ZERO_BASED);
	FAILS(posted(b, &bind), 0);
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, piece(0, 8), 56, mw->rkey), 0);
	post_receive(b, 5, 0, 8);
	struct ibv_sge sge = piece(64, 8);
	struct ibv_send_wr send = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_INV, .send_flags = IBV_SEND_SIGNALED, .invalidate_rkey = mw->rkey};
	post(a, &send);
	for (int i = 0; i < 2; i++) {
		wc = completion();
		CLAIM(wc.status == IBV_WC_SUCCESS);
		CLAIM(wc.opcode != IBV_WC_RECV || (wc.wc_flags == IBV_WC_WITH_INV && wc.invalidated_rkey == mw->rkey));
	}
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, piece(0, 8), 56, mw->rkey), IBV_WC_REM_ACCESS_ERR);
	reconnect(a, b);
	/* A region's key cannot be invalidated by a program. */
	invalidate.invalidate_rkey = mr->rkey;
	CLAIM(posted(b, &invalidate) != IBV_WC_SUCCESS);
	reconnect(a, b);
	/* It dies with its queue pair. */
	bind = bind_request(mw, here, 64, both);
	FAILS(posted(d, &bind), 0);
	FAILS(outcome(c, IBV_WR_RDMA_WRITE, piece(0, 8), here, mw->rkey), 0);
	FAILS(ibv_dereg_mr(mr), EBUSY);
	FAILS(ibv_destroy_qp(c), 0);
	FAILS(ibv_destroy_qp(d), 0);
	bind = bind_request(mw, here, 64, both);
	FAILS(posted(b, &bind), 0);
	/* Freed while it is bound. */
	FAILS(ibv_dealloc_mw(mw), 0);
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, piece(0, 8), here, bind.bind_mw.rkey), IBV_WC_REM_ACCESS_ERR);
	reconnect(a, b);
}

/* The same through ibv_wr_*: bind, use, invalidate in one series, as fast registration does it. */
static void in_one_series(void)
{
	struct ibv_qp_init_attr_ex wants = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 20, .max_recv_wr = 20, .max_send_sge = 4, .max_recv_sge = 4},
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND_WITH_INV,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(ctx, &wants);
	struct ibv_qp_ex *qpx = ibv_qp_to_qp_ex(qp);
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	struct ibv_mw_bind_info info = {
		.mr = mr, .addr = (uintptr_t)memory + 4096, .length = 64, .mw_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
	CLAIM(qp && qpx && mw);
	init(qp);
	connect_to(qp, qp->qp_num);
	for (int round = 0; round < 300; round++) {
		uint32_t key = ibv_inc_rkey(mw->rkey);
		memory[0] = round + 1;
		post_receive(qp, 7, 64, 8);
		ibv_wr_start(qpx);
		qpx->wr_flags = 0;
		qpx->wr_id = 1;
		ibv_wr_bind_mw(qpx, mw, key, &info);
		qpx->wr_id = 2;
		ibv_wr_rdma_write(qpx, key, (uintptr_t)memory + 4096);
		ibv_wr_set_sge(qpx, mr->lkey, (uintptr_t)memory, 8);
		qpx->wr_id = 3;
		qpx->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE;
		if (round % 2) {
			ibv_wr_send_inv(qpx, key);
			ibv_wr_set_sge(qpx, mr->lkey, (uintptr_t)memory, 8);
			FAILS(ibv_wr_complete(qpx), 0);
			CLAIM(completions(2) == 7);
		} else {
			ibv_wr_send(qpx);
			ibv_wr_set_sge(qpx, mr->lkey, (uintptr_t)memory, 8);
			FAILS(ibv_wr_complete(qpx), 0);
			CLAIM(completions(2) == 7);
			ibv_wr_start(qpx);
			ibv_wr_local_inv(qpx, key);
			FAILS(ibv_wr_complete(qpx), 0);
			completions(1);
		}
		CLAIM(mw->rkey == key && memory[512] == (uint64_t)round + 1);
	}
	/* Nothing of a refused series is bound. */
	uint32_t before = mw->rkey;
	ibv_wr_start(qpx);
	ibv_wr_bind_mw(qpx, mw, ibv_inc_rkey(before), &info);
	ibv_wr_bind_mw(qpx, NULL, 0, &info);
	CLAIM(ibv_wr_complete(qpx) == EINVAL && mw->rkey == before);
	FAILS(ibv_dealloc_mw(mw), 0);
	FAILS(ibv_destroy_qp(qp), 0);
}

int main(void)
{
	open_device();
	registration();
	struct ibv_qp *b, *a = pair(IBV_QPT_RC, &b);
	addresses(a, b);
	changes(a, b);
	files(a, b);
	REFUSED(ibv_alloc_mw(pd, 0), EINVAL);
	REFUSED(ibv_alloc_mw(pd, 3), EINVAL);
	structures_of_binds_are_trusted(b);
	zero_based_windows_of_type_1_are_refused(a, b);
	datagram_queue_pairs_bind_nothing();
	windows_of_type_1(a, b);
	windows_of_type_2(a, b);
	in_one_series();
	FAILS(ibv_destroy_qp(a), 0);
	FAILS(ibv_destroy_qp(b), 0);
	FAILS(ibv_dereg_mr(mr), 0);
	FAILS(ibv_close_device(ctx), 0);
	return 0;
}
