/* Registered memory that the program takes away before it deregisters it: requests fail, the program lives, and what came to the address
 * is not written, except the heap that grows again. The argument: "before", the program has a handler of SIGSEGV; "after", it installs one
 * that hands nothing on when memory is registered; "blocked", it blocks all signals. */
#define _GNU_SOURCE
#include "expect.h"
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/wait.h>

#define PAGE 4096
#define PAGES 8
#define BYTES (PAGES * PAGE)

static struct ibv_qp *a, *b;

static char *anonymous(int rights)
{
	char *at = mmap(NULL, BYTES, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CLAIM(at != MAP_FAILED);
	return at;
}

static struct ibv_sge at(struct ibv_mr *region, const void *address, uint32_t length)
{
	struct ibv_sge sge = {.addr = (uintptr_t)address, .length = length, .lkey = region->lkey};
	return sge;
}

/* Every way to reach a part of a region that is not there. A page that can be read, and not written, has `readable`. */
static void is_gone(struct ibv_mr *region, char *gone, int readable)
{
	uint64_t address = (uintptr_t)gone;
	struct ibv_sge mine = piece(0, 8), its = at(region, gone, 8);
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, mine, address, region->rkey), IBV_WC_REM_ACCESS_ERR);
	reconnect(a, b);
	FAILS(outcome(a, IBV_WR_ATOMIC_FETCH_AND_ADD, mine, address, region->rkey), IBV_WC_REM_ACCESS_ERR);
	reconnect(a, b);
	FAILS(outcome(a, IBV_WR_RDMA_READ, its, (uintptr_t)memory, mr->rkey), IBV_WC_LOC_PROT_ERR);
	reconnect(a, b);
	/* The receiver's memory error, and the sender's remote operation error. */
	struct ibv_recv_wr receive = {.wr_id = 1, .sg_list = &its, .num_sge = 1}, *bad;
	FAILS(ibv_post_recv(b, &receive, &bad), 0);
	struct ibv_send_wr send = {.wr_id = 2, .sg_list = &mine, .num_sge = 1, .opcode = IBV_WR_SEND};
	post(a, &send);
	for (int i = 0; i < 2; i++) {
		struct ibv_wc wc = completion();
		CLAIM(wc.status == (wc.wr_id == 1 ? IBV_WC_LOC_PROT_ERR : IBV_WC_REM_OP_ERR));
	}
	reconnect(a, b);
	if (readable)
		return;
	FAILS(outcome(a, IBV_WR_RDMA_READ, mine, address, region->rkey), IBV_WC_REM_ACCESS_ERR);
	reconnect(a, b);
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, its, (uintptr_t)memory, mr->rkey), IBV_WC_LOC_PROT_ERR);
	reconnect(a, b);
}

static void is_there(struct ibv_mr *region, char *page)
{
	memory[0] = 0x5a5a5a5a;
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, piece(0, 8), (uintptr_t)page, region->rkey), 0);
	CLAIM(*(uint64_t *)page == 0x5a5a5a5a);
	FAILS(outcome(a, IBV_WR_ATOMIC_FETCH_AND_ADD, piece(8, 8), (uintptr_t)page, region->rkey), 0);
	FAILS(outcome(a, IBV_WR_RDMA_READ, piece(0, 8), (uintptr_t)page, region->rkey), 0);
	CLAIM(memory[0] == 0x5a5a5a5b && memory[1] == 0x5a5a5a5a);
}

static struct ibv_mr *registered(char *first, size_t bytes)
{
	struct ibv_mr *region = (ibv_reg_mr)(pd, first, bytes, RIGHTS);
	CLAIM(region);
	return region;
}

/* Memory that is unmapped, and other memory that comes to its address. */
static void unmapped(void)
{
	char *page = anonymous(PROT_READ | PROT_WRITE), *third = page + 3 * PAGE;
	struct ibv_mr *region = registered(page, BYTES);
	is_there(region, third);
	CLAIM(munmap(third, PAGE) == 0);
	is_gone(region, third, 0);
	is_there(region, page + 2 * PAGE);
	is_there(region, page + 4 * PAGE);
	CLAIM(mmap(third, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == third);
	memset(third, 2, PAGE);
	is_gone(region, third, 0);
	for (int i = 0; i < PAGE; i++)
		CLAIM(third[i] == 2);
	/* A call that the kernel refuses takes nothing away. */
	CLAIM(munmap(page + 1, PAGE) == -1 && errno == EINVAL);
	CLAIM(mmap(page, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, -1, 0) == MAP_FAILED && errno == EBADF);
	is_there(region, page);
	/* Another region of the same range has what is there now. */
	struct ibv_mr *again = registered(page, BYTES);
	is_there(again, third);
	is_gone(region, third, 0);
	FAILS(ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, page, BYTES, 0), 0);
	is_there(region, third);
	FAILS(ibv_dereg_mr(again), 0);
	CLAIM(mmap(page, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == page);
	is_gone(region, page, 0);
	FAILS(ibv_dereg_mr(region), 0);
	CLAIM(munmap(page, BYTES) == 0);
}

/* Rights that are taken away and given back: the pages are still the region's. */
static void without_rights(void)
{
	char *page = anonymous(PROT_READ | PROT_WRITE);
	struct ibv_mr *region = registered(page, BYTES);
	CLAIM(mprotect(page, PAGE, PROT_NONE) == 0);
	is_gone(region, page, 0);
	CLAIM(mprotect(page, PAGE, PROT_READ) == 0);
	is_gone(region, page, 1);
	CLAIM(mprotect(page, PAGE, PROT_READ | PROT_WRITE) == 0);
	is_there(region, page);
	CLAIM(madvise(page, PAGE, MADV_DONTNEED) == 0);
	is_there(region, page);
	FAILS(ibv_dereg_mr(region), 0);
	CLAIM(munmap(page, BYTES) == 0);
}

/* Memory that moves, by the program's call and by that of the C library. */
static void moved(void)
{
	char *page = anonymous(PROT_READ | PROT_WRITE), *to = anonymous(PROT_NONE);
	struct ibv_mr *region = registered(page, BYTES), *there;
	CLAIM(mremap(page, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
	is_gone(region, page, 0);
	there = registered(to, BYTES);
	CLAIM(mremap(to, BYTES, BYTES / 2, 0) == to);
	is_there(there, to + BYTES / 2 - 8);
	is_gone(there, to + BYTES / 2, 0);
	FAILS(ibv_dereg_mr(there), 0);
	FAILS(ibv_dereg_mr(region), 0);
	CLAIM(munmap(to, BYTES / 2) == 0);

	size_t bytes = 1 << 20;
	char *block = malloc(bytes), *wall = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *next;
	CLAIM(block && wall != MAP_FAILED);
	memset(block, 1, bytes);
	region = registered(block, bytes);
	next = realloc(block, 256 * bytes);
	CLAIM(next);
	uintptr_t old = region->addr ? (uintptr_t)region->addr : 0;
	if ((uintptr_t)next != old) {
		char *other = mmap((void *)(old - old % PAGE), bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		CLAIM(other != MAP_FAILED);
		is_gone(region, (char *)old + PAGE, 0);
		CLAIM(munmap(other, bytes) == 0);
	} else {
		is_there(region, next + PAGE);
	}
	FAILS(ibv_dereg_mr(region), 0);
	/* What the allocator gives back to the kernel. */
	region = registered(next, 256 * bytes);
	free(next);
	is_gone(region, (char *)region->addr + PAGE - (uintptr_t)region->addr % PAGE, 0);
	FAILS(ibv_dereg_mr(region), 0);
	CLAIM(munmap(wall, PAGE) == 0);
}

/* The end of the heap. The C library's allocator extends the same heap whenever it needs more: what lies behind its own part may be cut off,
 * what it has added since may not. */
static void heap(void)
{
	char *top, *first, *page;
	struct ibv_mr *region;
	for (int i = 0;; i++) {
		top = sbrk(0);
		first = sbrk(4 * PAGE);
		if (first != top)
			return;
		page = first + PAGE - (uintptr_t)first % PAGE;
		region = registered(page, 2 * PAGE);
		is_there(region, page);
		if (sbrk(0) == first + 4 * PAGE)
			break;
		/* The allocator has just taken enough for all that comes. */
		FAILS(ibv_dereg_mr(region), 0);
		CLAIM(i < 8);
	}
	CLAIM(brk(first) == 0 && sbrk(0) == first && sbrk(4 * PAGE) == first);
	CLAIM(*page == 0);
	is_there(region, page);
	FAILS(ibv_dereg_mr(region), 0);
	if (sbrk(0) == first + 4 * PAGE)
		CLAIM(brk(first) == 0);
}

static void segments(void)
{
	int segment = shmget(IPC_PRIVATE, BYTES, IPC_CREAT | 0600);
	char *at_once = segment < 0 ? (char *)-1 : shmat(segment, NULL, 0);
	if (segment >= 0)
		shmctl(segment, IPC_RMID, NULL);
	if (at_once == (char *)-1)
		return;
	struct ibv_mr *region = registered(at_once, BYTES);
	is_there(region, at_once);
	CLAIM(shmdt(at_once) == 0);
	CLAIM(shmdt(at_once) == -1 && errno == EINVAL);
	CLAIM(mmap(at_once, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at_once);
	is_gone(region, at_once, 0);
	FAILS(ibv_dereg_mr(region), 0);
	CLAIM(munmap(at_once, BYTES) == 0);
}

/* Files: behind their end, at the registration and later, and that another process shortens. */
static void shortened(void)
{
	int file = memfd_create("vanished", 0);
	CLAIM(file >= 0 && ftruncate(file, PAGE) == 0);
	char *page = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0), *own;
	CLAIM(page != MAP_FAILED);
	own = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
	CLAIM(own != MAP_FAILED);
	REFUSED((ibv_reg_mr)(pd, page, 2 * PAGE, RIGHTS), EFAULT);
	REFUSED((ibv_reg_mr)(pd, page + PAGE, 8, 0), EFAULT);
	REFUSED((ibv_reg_mr)(pd, own, 2 * PAGE, RIGHTS), EFAULT);
	struct ibv_mr *one = registered(page, PAGE);
	FAILS(ibv_rereg_mr(one, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, page, 2 * PAGE, 0), IBV_REREG_MR_ERR_CMD);
	CLAIM(errno == EFAULT);
	CLAIM(ftruncate(file, BYTES) == 0);
	struct ibv_mr *region = registered(page, BYTES);
	is_there(region, page + 2 * PAGE);
	pid_t child = fork();
	int status;
	if (!child)
		_exit(ftruncate(file, PAGE) != 0);
	CLAIM(waitpid(child, &status, 0) == child && status == 0);
	is_gone(region, page + 2 * PAGE, 0);
	is_there(region, page);
	is_there(one, page);
	CLAIM(ftruncate(file, BYTES) == 0);
	is_there(region, page + 2 * PAGE);
	FAILS(ibv_dereg_mr(region), 0);
	FAILS(ibv_dereg_mr(one), 0);
	CLAIM(munmap(page, BYTES) == 0 && munmap(own, BYTES) == 0 && close(file) == 0);
}

/* A message of which some packets find their memory and others do not. */
static void in_the_middle(void)
{
	char *page = anonymous(PROT_READ | PROT_WRITE), *other = anonymous(PROT_READ | PROT_WRITE);
	struct ibv_mr *region = registered(page, BYTES), *whole = registered(other, BYTES);
	CLAIM(munmap(page + 5 * PAGE, PAGE) == 0);
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, at(whole, other, BYTES), (uintptr_t)page, region->rkey), IBV_WC_REM_ACCESS_ERR);
	reconnect(a, b);
	FAILS(outcome(a, IBV_WR_RDMA_READ, at(whole, other, BYTES), (uintptr_t)page, region->rkey), IBV_WC_REM_ACCESS_ERR);
	reconnect(a, b);
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, at(region, page, BYTES), (uintptr_t)other, whole->rkey), IBV_WC_LOC_PROT_ERR);
	reconnect(a, b);
	FAILS(ibv_dereg_mr(region), 0);
	FAILS(ibv_dereg_mr(whole), 0);
	CLAIM(munmap(page, BYTES) == 0 && munmap(other, BYTES) == 0);
}

static char *_Atomic target;
static _Atomic uint32_t target_rkey;
static atomic_int is_over;
static atomic_long requests;

/* Writes into the target until it is over, and does not mind refusals. */
static void *writer(void *unused)
{
	memset(memory, 7, BYTES);
	while (!is_over) {
		if (outcome(a, IBV_WR_RDMA_WRITE, piece(0, BYTES), (uintptr_t)target, target_rkey))
			reconnect(a, b);
		requests++;
	}
	return unused;
}

static void wait_for_requests(long more)
{
	for (long until = requests + more; requests < until;)
		sched_yield();
}

/* Memory that is replaced again and again while requests are under way: what comes is never written before it is registered. */
static void replaced_under_way(void)
{
	pthread_t thread;
	char *page = anonymous(PROT_READ | PROT_WRITE);
	struct ibv_mr *region = registered(page, BYTES), *before;
	target = page;
	target_rkey = region->rkey;
	CLAIM(pthread_create(&thread, NULL, writer, NULL) == 0);
	for (int i = 0; i < 200; i++) {
		wait_for_requests(1);
		CLAIM(mmap(page, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == page);
		memset(page, 2, BYTES);
		wait_for_requests(2);
		for (int k = 0; k < BYTES; k++)
			CLAIM(page[k] == 2);
		before = region;
		region = registered(page, BYTES);
		target_rkey = region->rkey;
		FAILS(ibv_dereg_mr(before), 0);
	}
	is_over = 1;
	CLAIM(pthread_join(thread, NULL) == 0);
	reconnect(a, b);
	FAILS(ibv_dereg_mr(region), 0);
	CLAIM(munmap(page, BYTES) == 0);
}

/* Nothing, from inside a page and from its beginning. */
static void nothing(void)
{
	char *page = anonymous(PROT_READ);
	struct ibv_mr *inside = (ibv_reg_mr)(pd, page + 64, 0, IBV_ACCESS_REMOTE_READ);
	CLAIM(inside && inside->length == 0);
	REFUSED((ibv_reg_mr)(pd, page, 0, IBV_ACCESS_REMOTE_READ), EINVAL);
	REFUSED((ibv_reg_mr)(pd, NULL, 0, IBV_ACCESS_REMOTE_READ), EINVAL);
	FAILS(ibv_dereg_mr(inside), 0);
	CLAIM(munmap(page, BYTES) == 0);
}

static sigjmp_buf back;
static volatile int own_faults;

static void jump_back(int signal)
{
	(void)signal;
	own_faults++;
	siglongjmp(back, 1);
}

/* The program's own faults go to the program's own handler. */
static void faults_of_the_program(void)
{
	static char *volatile nowhere;
	int before = own_faults;
	for (int i = 0; i < 3; i++) {
		if (!sigsetjmp(back, 1))
			*nowhere = 1;
	}
	CLAIM(own_faults == before + 3);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "none";
	struct sigaction own = {.sa_handler = jump_back};
	if (!strcmp(mode, "before"))
		CLAIM(sigaction(SIGSEGV, &own, NULL) == 0);
	open_device();
	if (!strcmp(mode, "after"))
		CLAIM(sigaction(SIGSEGV, &own, NULL) == 0 && sigaction(SIGBUS, &own, NULL) == 0);
	sigset_t all;
	sigfillset(&all);
	if (!strcmp(mode, "blocked"))
		CLAIM(sigprocmask(SIG_SETMASK, &all, NULL) == 0);
	a = pair(IBV_QPT_RC, &b);
	nothing();
	unmapped();
	without_rights();
	moved();
	heap();
	segments();
	shortened();
	in_the_middle();
	replaced_under_way();
	CLAIM(own_faults == 0);
	if (!strcmp(mode, "before") || !strcmp(mode, "after"))
		faults_of_the_program();
	/* Without a handler of its own, the program dies of its own faults as ever. */
	pid_t child = fork();
	int status;
	if (!child) {
		static char *volatile nowhere;
		if (own_faults)
			signal(SIGSEGV, SIG_DFL);
		*nowhere = 1;
		_exit(0);
	}
	CLAIM(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	return 0;
}
