/* Memory that the program takes away past the C library's functions: by syscall(), by instructions of its own in all forms that compilers
 * have, and by the loader. Other memory comes to the address, to which no request may lead;
 * only the heap comes back. */
#define _GNU_SOURCE
#include "expect.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define PAGE 4096
#define BYTES (8 * PAGE)
#define ALL (PROT_READ | PROT_WRITE)

static struct ibv_qp *a, *b;

#if defined __x86_64__
/* The number stands right before the call. */
static __attribute__((noinline)) long unmap(void *at, size_t bytes)
{
	long number = SYS_munmap;
	__asm__ volatile("syscall" : "+a"(number) : "D"(at), "S"(bytes) : "rcx", "r11", "memory");
	return number;
}

/* The number stands before other instructions. */
static __attribute__((noinline)) long unmap_late(void *at, size_t bytes)
{
	long outcome;
	__asm__ volatile("mov $11, %%eax; mov %1, %%rdi; mov %2, %%rsi; syscall" : "=&a"(outcome) : "r"(at), "r"(bytes)
			 : "rdi", "rsi", "rcx", "r11", "memory");
	return outcome;
}

/* All calls of an allocator pass through one function, to which the number is an argument. */
static __attribute__((noinline)) long own(long number, void *one, size_t two, long three, long four, long five, long six)
{
	register long r10 __asm__("r10") = four, r8 __asm__("r8") = five, r9 __asm__("r9") = six;
	__asm__ volatile("syscall" : "+a"(number) : "D"(one), "S"(two), "d"(three), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
	return number;
}

/* No instruction is as long as a jump. */
__asm__(".text; .p2align 4; .type tiny, @function; tiny: .cfi_startproc; mov %rdi, %rax; mov %rsi, %rdi; mov %rdx, %rsi; syscall; ret;"
	" .cfi_endproc; .size tiny, . - tiny");
long tiny(long number, void *at, size_t bytes);

/* A call keeps registers that a function need not keep, and leaves alone what lies below the stack pointer. */
static __attribute__((noinline)) int keeps_all(void *at, size_t bytes)
{
	unsigned char before[64], after[64];
	unsigned long r8 = 8, r10 = 10, below = 77;
	for (int i = 0; i < 64; i++)
		before[i] = i + 1;
	__asm__ volatile("movdqu (%[from]), %%xmm3; movdqu 16(%[from]), %%xmm15; mov $8, %%r8d; mov $10, %%r10d; movq $77, -64(%%rsp);"
			 "mov $11, %%eax; syscall; movdqu %%xmm3, (%[to]); movdqu %%xmm15, 16(%[to]); mov %%r8, %[r8]; mov %%r10, %[r10];"
			 "mov -64(%%rsp), %%rax; mov %%rax, %[below]"
			 : [r8] "=m"(r8), [r10] "=m"(r10), [below] "=m"(below)
			 : "D"(at), "S"(bytes), [from] "b"(before), [to] "d"(after)
			 : "rax", "rcx", "r8", "r10", "r11", "xmm3", "xmm15", "memory");
	return memcmp(before, after, 32) == 0 && r8 == 8 && r10 == 10 && below == 77;
}
#endif

static char *anonymous(void)
{
	char *at = mmap(NULL, BYTES, ALL, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CLAIM(at != MAP_FAILED);
	memset(at, 1, BYTES);
	return at;
}

static struct ibv_mr *registered(char *first, size_t bytes)
{
	struct ibv_mr *region = (ibv_reg_mr)(pd, first, bytes, RIGHTS);
	CLAIM(region);
	return region;
}

static void is_there(struct ibv_mr *region, char *at)
{
	memory[0] = 0x5a5a5a5a;
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, piece(0, 8), (uintptr_t)at, region->rkey), 0);
	CLAIM(*(uint64_t *)at == 0x5a5a5a5a);
}

/* Puts other memory where the region's was, and looks whether requests reach it. */
static void is_gone(struct ibv_mr *region, char *gone, size_t bytes)
{
	struct ibv_sge mine = piece(0, 8);
	if (bytes) {
		CLAIM(mmap(gone, bytes, ALL, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == gone);
		memset(gone, 2, bytes);
	}
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, mine, (uintptr_t)gone, region->rkey), IBV_WC_REM_ACCESS_ERR);
	reconnect(a, b);
	FAILS(outcome(a, IBV_WR_RDMA_READ, mine, (uintptr_t)gone, region->rkey), IBV_WC_REM_ACCESS_ERR);
	reconnect(a, b);
	for (size_t i = 0; i < bytes; i++)
		CLAIM(gone[i] == 2);
}

static void by_syscall(void)
{
	char *page = anonymous(), *to = anonymous();
	struct ibv_mr *region = registered(page, BYTES);
	is_there(region, page);
	/* A call that the kernel refuses takes nothing away. */
	CLAIM(syscall(SYS_munmap, page + 1, PAGE) == -1 && errno == EINVAL);
	errno = 0;
	CLAIM(syscall(SYS_munmap, page, PAGE) == 0 && errno == 0);
	is_gone(region, page, PAGE);
	is_there(region, page + PAGE);
	CLAIM(syscall(SYS_mremap, page + PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == (long)to);
	is_gone(region, page + PAGE, PAGE);
	memset(page + 2 * PAGE, 2, PAGE);
	CLAIM(syscall(SYS_mmap, page + 2 * PAGE, PAGE, ALL, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == (long)(page + 2 * PAGE));
	is_gone(region, page + 2 * PAGE, 0);
	/* The pages stay those of the range. */
	CLAIM(syscall(SYS_madvise, page + 4 * PAGE, PAGE, MADV_DONTNEED) == 0);
	is_there(region, page + 4 * PAGE);
	CLAIM(syscall(SYS_mprotect, page + 4 * PAGE, PAGE, PROT_NONE) == 0);
	is_gone(region, page + 4 * PAGE, 0);
	CLAIM(syscall(SYS_mprotect, page + 4 * PAGE, PAGE, ALL) == 0);
	is_there(region, page + 4 * PAGE);
	FAILS(ibv_dereg_mr(region), 0);
	CLAIM(munmap(page, BYTES) == 0 && munmap(to, BYTES) == 0);
}

/* The end of the heap, from which sbrk() continues: a library that replaces brk() and sbrk() sets it as the C library does. */
static char **heap_end;

static char *set_heap(char *end)
{
	return *heap_end = (char *)syscall(SYS_brk, end);
}

/* A library has replaced sbrk() past another one, whose cache of registrations is not told that the heap shrinks. The heap grows again, and
 * the cache returns the registration that it has. The allocator may extend the same heap in between: see heap() in vanished.c. */
static void by_syscall_of_the_heap(void)
{
	char *first, *page;
	struct ibv_mr *region;
	heap_end = dlsym(RTLD_DEFAULT, "__curbrk");
	CLAIM(heap_end && *heap_end == sbrk(0));
	for (int i = 0;; i++) {
		first = sbrk(4 * PAGE);
		CLAIM(first != (char *)-1);
		page = first + PAGE - (uintptr_t)first % PAGE;
		region = registered(page, 2 * PAGE);
		is_there(region, page);
		if (sbrk(0) == first + 4 * PAGE)
			break;
		FAILS(ibv_dereg_mr(region), 0);
		CLAIM(i < 8);
	}
	char *end = first + 4 * PAGE;
	/* Nothing is allocated from a shrink to the growth that follows it. The first end is not that of a page. */
	char *ends[] = {page + PAGE + 8, first, page + PAGE, page};
	for (int i = 0; i < 8 && sbrk(0) == end; i++) {
		char *shorter = ends[i % 4], *shrunk = set_heap(shorter), *part = set_heap(end - PAGE), *grown = set_heap(end);
		CLAIM(shrunk == shorter && part == end - PAGE && grown == end);
		is_there(region, page);
		is_there(region, page + PAGE);
	}
	FAILS(ibv_dereg_mr(region), 0);
}

#if defined __x86_64__
static void by_own_instructions(void)
{
	char *page = anonymous();
	struct ibv_mr *region = registered(page, BYTES);
	CLAIM(unmap(page + 1, PAGE) == -EINVAL);
	CLAIM(unmap(page, PAGE) == 0);
	is_gone(region, page, PAGE);
	CLAIM(unmap_late(page + PAGE, PAGE) == 0);
	is_gone(region, page + PAGE, PAGE);
	CLAIM(own(SYS_munmap, page + 2 * PAGE, PAGE, 0, 0, 0, 0) == 0);
	is_gone(region, page + 2 * PAGE, PAGE);
	CLAIM(tiny(SYS_munmap, page + 3 * PAGE, PAGE) == 0);
	is_gone(region, page + 3 * PAGE, PAGE);
	CLAIM(tiny(SYS_getpid, NULL, 0) == getpid() && own(SYS_getppid, NULL, 0, 0, 0, 0, 0) == getppid());
	CLAIM(own(SYS_mremap, page + 4 * PAGE, PAGE, 2 * BYTES, MREMAP_MAYMOVE, 0, 0) > 0);
	is_gone(region, page + 4 * PAGE, PAGE);
	CLAIM(keeps_all(page + 5 * PAGE, PAGE));
	is_gone(region, page + 5 * PAGE, PAGE);
	is_there(region, page + 6 * PAGE);
	FAILS(ibv_dereg_mr(region), 0);
	CLAIM(unmap(page, BYTES) == 0);
}

/* A library that is loaded later has calls of its own, and its data goes with it. */
static void by_the_loader(const char *name)
{
	for (int i = 0; i < 3; i++) {
		void *library = dlopen(name, RTLD_NOW);
		CLAIM(library);
		char *buffer = dlsym(library, "buffer"), *page = anonymous();
		long (*give_back)(void *, size_t) = (long (*)(void *, size_t))dlsym(library, "give_back");
		CLAIM(buffer && give_back);
		struct ibv_mr *region = registered(buffer, BYTES), *other = registered(page, BYTES);
		is_there(region, buffer);
		CLAIM(give_back(page, PAGE) == 0);
		is_gone(other, page, PAGE);
		CLAIM(dlclose(library) == 0);
		is_gone(region, buffer, BYTES);
		FAILS(ibv_dereg_mr(region), 0);
		FAILS(ibv_dereg_mr(other), 0);
		CLAIM(munmap(buffer, BYTES) == 0 && munmap(page, BYTES) == 0);
	}
}

static atomic_int is_over;

static void *caller(void *unused)
{
	while (!is_over)
		CLAIM(own(SYS_getppid, NULL, 0, 0, 0, 0, 0) == getppid());
	return unused;
}
#endif

int main(int count, char **arguments)
{
	open_device();
	a = pair(IBV_QPT_RC, &b);
#if defined __x86_64__
	pthread_t thread;
	CLAIM(pthread_create(&thread, NULL, caller, NULL) == 0);
	by_syscall();
	by_syscall_of_the_heap();
	is_over = 1;
	CLAIM(pthread_join(thread, NULL) == 0);
	by_own_instructions();
	if (count > 1)
		by_the_loader(arguments[1]);
#else
	(void)count;
	(void)arguments;
#endif
	return 0;
}
