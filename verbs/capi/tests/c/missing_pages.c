/*
 * Memory whose pages a handler of userfaultfd fills: all are there when the registration returns, as an adapter pins
 * them, and the handler may use verbs meanwhile. Exit 77: the kernel has no userfaultfd for this program.
 */
#include "expect.h"
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

#define PAGE 4096
#define PAGES 16

static int faults;
static atomic_int filled;
static struct ibv_qp *own, *own_peer;
static struct ibv_cq *own_cq;
static char page[PAGE] __attribute__((aligned(PAGE)));

/* An RDMA WRITE on a connection and a completion queue of the handler's own, and a region. */
static void use_verbs(void)
{
	struct ibv_mr *region = ibv_reg_mr(pd, page, PAGE, RIGHTS);
	CLAIM(region);
	struct ibv_sge from = {.addr = (uintptr_t)page, .length = PAGE, .lkey = region->lkey};
	struct ibv_send_wr wr = {.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
	wr.wr.rdma.remote_addr = (uintptr_t)memory;
	wr.wr.rdma.rkey = mr->rkey;
	post(own, &wr);
	struct ibv_wc wc;
	time_t end = time(NULL) + 60;
	int count;
	while ((count = ibv_poll_cq(own_cq, 1, &wc)) == 0)
		CLAIM(time(NULL) <= end);
	CLAIM(count == 1 && wc.status == IBV_WC_SUCCESS && !memcmp(memory, page, PAGE));
	FAILS(ibv_dereg_mr(region), 0);
}

static void *fills(void *unused)
{
	struct uffd_msg fault;
	while (read(faults, &fault, sizeof(fault)) == sizeof(fault)) {
		CLAIM(fault.event == UFFD_EVENT_PAGEFAULT);
		memset(page, 'a' + filled % 26, PAGE);
		use_verbs();
		struct uffdio_copy copy = {
			.dst = fault.arg.pagefault.address & ~(uint64_t)(PAGE - 1), .src = (uintptr_t)page, .len = PAGE};
		/* The thread that waits for the page goes on at once. */
		filled++;
		CLAIM(ioctl(faults, UFFDIO_COPY, &copy) == 0 || errno == EEXIST);
	}
	return unused;
}

static char *watched(void)
{
	char *at = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CLAIM(at != MAP_FAILED);
	struct uffdio_register all = {
		.range = {.start = (uintptr_t)at, .len = PAGES * PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
	CLAIM(ioctl(faults, UFFDIO_REGISTER, &all) == 0);
	return at;
}

static void a_region_is_there(struct ibv_qp *one, int rights)
{
	char *at = watched();
	filled = 0;
	struct ibv_mr *region = ibv_reg_mr(pd, at, PAGES * PAGE, rights);
	CLAIM(region);
	CLAIM(filled == PAGES);
	if (rights) {
		struct ibv_sge from = {.addr = (uintptr_t)at, .length = PAGES * PAGE, .lkey = region->lkey};
		FAILS(outcome(one, IBV_WR_RDMA_READ, from, (uintptr_t)at, region->rkey), 0);
		FAILS(outcome(one, IBV_WR_RDMA_WRITE, from, (uintptr_t)at, region->rkey), 0);
	}
	for (int i = 0; i < PAGES; i++)
		CLAIM(at[i * PAGE] == 'a' + i && at[i * PAGE + PAGE - 1] == 'a' + i);
	/* Another range. */
	char *next = watched();
	filled = 0;
	FAILS(ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, next, 3 * PAGE, 0), 0);
	CLAIM(filled == 3);
	FAILS(ibv_dereg_mr(region), 0);
	/* On demand, no page is. */
	filled = 0;
	region = ibv_reg_mr(pd, watched(), PAGES * PAGE, rights | IBV_ACCESS_ON_DEMAND);
	CLAIM(region && filled == 0);
	FAILS(ibv_dereg_mr(region), 0);
}

int main(int argc, char **argv)
{
	int mode = argc > 1 && !strcmp(argv[1], "user") ? UFFD_USER_MODE_ONLY : 0;
	faults = syscall(SYS_userfaultfd, O_CLOEXEC | mode);
	struct uffdio_api api = {.api = UFFD_API};
	if (faults < 0 || ioctl(faults, UFFDIO_API, &api) != 0)
		return 77;
	open_device();
	struct ibv_qp *other, *one = pair(IBV_QPT_RC, &other);
	CLAIM((own_cq = ibv_create_cq(ctx, 64, NULL, NULL, 0)));
	struct ibv_cq *shared = cq;
	cq = own_cq;
	own = pair(IBV_QPT_RC, &own_peer);
	cq = shared;
	pthread_t handler;
	CLAIM(pthread_create(&handler, NULL, fills, NULL) == 0);
	a_region_is_there(one, RIGHTS);
	a_region_is_there(one, 0);
	return 0;
}
