/* Calls that rdma-core has got since version 57, which the system's headers need not have. */
#define _GNU_SOURCE
#include "expect.h"
#include <dlfcn.h>
#include <sched.h>
#include <sys/mman.h>

struct ibv_buf;
/* `struct ibv_mr_init_attr`, whose name headers of today have. */
struct mr_wanted {
	size_t length;
	int access;
	uint64_t comp_mask, iova;
	void *addr;
	int fd;
	uint64_t fd_offset;
	void *dmah;
	struct ibv_buf *buf;
};
enum { IOVA = 1, ADDR = 2, FD = 4, FD_OFFSET = 8, DMAH = 16, BUF = 32 };

void *alloc_buf(struct ibv_pd *, size_t, struct ibv_buf **) __asm__("ibv_alloc_buf");
void free_buf(struct ibv_buf *) __asm__("ibv_free_buf");
struct ibv_mr *reg_buf_mr(struct ibv_pd *, struct ibv_buf *, void *, size_t, int) __asm__("ibv_reg_buf_mr");
struct ibv_mr *reg_mr_ex(struct ibv_pd *, struct mr_wanted *) __asm__("ibv_reg_mr_ex");
int export_buf(struct ibv_buf *) __asm__("ibv_export_buf_dmabuf_fd");
int export_dm(struct ibv_dm *) __asm__("ibv_dm_export_dmabuf_fd");
int device_index(struct ibv_device *) __asm__("ibv_get_device_index");
int port_speed(struct ibv_context *, uint32_t, uint64_t *) __asm__("ibv_query_port_speed");
void *alloc_dmah(struct ibv_context *, void *) __asm__("ibv_alloc_dmah");
int dealloc_dmah(void *) __asm__("ibv_dealloc_dmah");
void *create_counter(struct ibv_context *, void *) __asm__("ibv_create_comp_cntr");
int counter_caps(struct ibv_context *, void *, size_t) __asm__("_ibv_query_comp_cntr_caps");
int rq_depth(struct ibv_context *, void *, uint32_t) __asm__("efadv_get_max_rq_depth");

static struct ibv_qp *a, *b;

static void writes_to(struct ibv_mr *region, uint64_t address, uint64_t *place)
{
	memory[0] += 0x1234567;
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, piece(0, 8), address, region->rkey), 0);
	CLAIM(*place == memory[0]);
}

static void buffers(void)
{
	struct ibv_buf *buf = NULL, *other = NULL;
	struct ibv_pd *second = ibv_alloc_pd(ctx);
	REFUSED(alloc_buf(NULL, 4096, &buf), EINVAL);
	REFUSED(alloc_buf(pd, 4096, NULL), EINVAL);
	REFUSED(alloc_buf(pd, SIZE_MAX / 2, &buf), ENOMEM);
	CLAIM(!buf && second);
	char *at = alloc_buf(pd, 12288, &buf);
	CLAIM(at && buf && (uintptr_t)at % 4096 == 0);
	memset(at, 0x5a, 12288);
	CLAIM(alloc_buf(second, 1, &other) && other != buf);
	CLAIM((errno = 0, export_buf(buf)) == -1 && errno == ENODATA);

	struct ibv_mr *whole = reg_buf_mr(pd, buf, at, 12288, RIGHTS), *part = reg_buf_mr(pd, buf, at + 4096, 4096, RIGHTS);
	CLAIM(whole && whole->addr == at && whole->length == 12288 && whole->pd == pd && whole->context == ctx);
	CLAIM(part && part->addr == at + 4096 && part->lkey != whole->lkey);
	writes_to(whole, (uintptr_t)at + 8, (uint64_t *)(at + 8));
	writes_to(part, (uintptr_t)at + 4096, (uint64_t *)(at + 4096));
	FAILS(ibv_dereg_mr(part), 0);

	REFUSED(reg_buf_mr(second, buf, at, 4096, RIGHTS), EINVAL);
	REFUSED(reg_buf_mr(NULL, buf, at, 4096, RIGHTS), EINVAL);
	REFUSED(reg_buf_mr(pd, NULL, at, 4096, RIGHTS), EINVAL);
	REFUSED(reg_buf_mr(pd, buf, at, 12289, RIGHTS), EINVAL);
	REFUSED(reg_buf_mr(pd, buf, at + 8192, 4097, RIGHTS), EINVAL);
	REFUSED(reg_buf_mr(pd, buf, at - 1, 16, RIGHTS), EINVAL);
	REFUSED(reg_buf_mr(pd, buf, at + 1, SIZE_MAX, RIGHTS), EINVAL);

	struct mr_wanted wanted = {.length = 64, .access = RIGHTS, .comp_mask = BUF | ADDR, .addr = at, .buf = buf};
	struct ibv_mr *by_list = reg_mr_ex(pd, &wanted);
	CLAIM(by_list && by_list->addr == at && by_list->length == 64);
	writes_to(by_list, (uintptr_t)at + 56, (uint64_t *)(at + 56));
	FAILS(ibv_dereg_mr(by_list), 0);
	REFUSED(reg_mr_ex(second, &wanted), EINVAL);
	wanted.length = 12289;
	REFUSED(reg_mr_ex(pd, &wanted), EINVAL);
	wanted.length = 64;
	wanted.comp_mask = BUF;
	REFUSED(reg_mr_ex(pd, &wanted), EINVAL);
	wanted.comp_mask = BUF | ADDR | FD | FD_OFFSET;
	REFUSED(reg_mr_ex(pd, &wanted), EINVAL);
	wanted = (struct mr_wanted){.length = 64, .access = RIGHTS, .comp_mask = BUF | ADDR, .addr = at};
	REFUSED(reg_mr_ex(pd, &wanted), EINVAL);

	FAILS(ibv_dereg_mr(whole), 0);
	free_buf(buf);
	free_buf(other);
	free_buf(NULL);
	FAILS(ibv_dealloc_pd(second), 0);
}

static void registration_by_a_list(void)
{
	struct mr_wanted wanted = {.length = 4096, .access = RIGHTS, .comp_mask = ADDR | IOVA, .addr = memory + 512};
	wanted.iova = 0x10000 + (uintptr_t)wanted.addr % 4096;
	struct ibv_mr *region = reg_mr_ex(pd, &wanted);
	CLAIM(region && region->addr == memory + 512 && region->length == 4096);
	writes_to(region, wanted.iova + 8, &memory[513]);
	FAILS(ibv_dereg_mr(region), 0);
	wanted.iova += 8;
	REFUSED(reg_mr_ex(pd, &wanted), EINVAL);
	wanted.iova -= 8;
	/* Programs that were built before the last members existed have a shorter structure, here at the end of a page. */
	char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CLAIM(pages != MAP_FAILED && mprotect(pages + 4096, 4096, PROT_NONE) == 0);
	struct mr_wanted *shorter = (struct mr_wanted *)(pages + 4096 - offsetof(struct mr_wanted, fd));
	memcpy(shorter, &wanted, offsetof(struct mr_wanted, fd));
	shorter->comp_mask = ADDR;
	CLAIM((region = reg_mr_ex(pd, shorter)));
	writes_to(region, (uintptr_t)&memory[512], &memory[512]);
	FAILS(ibv_dereg_mr(region), 0);
	REFUSED(reg_mr_ex(pd, NULL), EINVAL);
	REFUSED(reg_mr_ex(NULL, &wanted), EINVAL);
	for (int bit = 6; bit < 64; bit++) {
		wanted.comp_mask = ADDR | 1ull << bit;
		REFUSED(reg_mr_ex(pd, &wanted), EOPNOTSUPP);
	}
	static const struct {
		uint64_t mask;
		int number;
	} wrong[] = {
		{0, EINVAL}, {IOVA, EINVAL}, {ADDR | FD_OFFSET, EINVAL}, {ADDR | DMAH, EINVAL},
		{FD | FD_OFFSET, EINVAL}, {FD | IOVA, EINVAL}, {FD | FD_OFFSET | IOVA | ADDR, EINVAL}, {FD | FD_OFFSET | IOVA, EOPNOTSUPP},
	};
	wanted.fd = -1;
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		wanted.comp_mask = wrong[i].mask;
		REFUSED(reg_mr_ex(pd, &wanted), wrong[i].number);
	}
	/* A file that can be mapped. */
	int file = memfd_create("region", 0);
	uint64_t word = 0;
	CLAIM(file >= 0 && ftruncate(file, 8192) == 0);
	uint64_t *view = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	wanted = (struct mr_wanted){
		.length = 4096, .access = RIGHTS, .comp_mask = FD | FD_OFFSET | IOVA, .iova = 0x10040, .fd = file, .fd_offset = 64};
	CLAIM(view != MAP_FAILED && (region = reg_mr_ex(pd, &wanted)) && region->length == 4096);
	writes_to(region, 0x10048, &view[9]);
	FAILS(ibv_dereg_mr(region), 0);
	CLAIM(pread(file, &word, sizeof(word), 72) == sizeof(word) && word == view[9] && word);
	CLAIM(munmap(view, 8192) == 0 && close(file) == 0);
}

/* `struct ibv_dmah_init_attr`. */
struct dmah_wanted {
	uint32_t comp_mask, cpu_id;
	uint8_t ph, tph_mem_type;
};
enum { CPU_ID = 1, PH = 2, MEM_TYPE = 4 };

static void dma_handles(void)
{
	static const struct {
		struct dmah_wanted wanted;
		int number;
	} wrong[] = {
		{{0}, EINVAL}, {{PH, 0, 4, 0}, EINVAL}, {{PH | 8, 0, 0, 0}, EOPNOTSUPP},
		{{CPU_ID | MEM_TYPE, 0, 0, 0}, EINVAL}, {{PH | CPU_ID, 0, 0, 0}, EINVAL}, {{PH | MEM_TYPE, 0, 0, 0}, EINVAL},
		{{PH | CPU_ID | MEM_TYPE, 0, 0, 2}, EOPNOTSUPP}, {{PH | CPU_ID | MEM_TYPE, 0xffff, 0, 0}, EPERM},
	};
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		REFUSED(alloc_dmah(ctx, (void *)&wrong[i].wanted), wrong[i].number);
	REFUSED(alloc_dmah(ctx, NULL), EINVAL);
	REFUSED(alloc_dmah(NULL, (void *)&wrong[0].wanted), EINVAL);
	FAILS(dealloc_dmah(NULL), EINVAL);
	struct dmah_wanted hint = {.comp_mask = PH, .ph = 3};
	struct dmah_wanted steering = {.comp_mask = PH | CPU_ID | MEM_TYPE, .cpu_id = (uint32_t)sched_getcpu(), .tph_mem_type = 1};
	void *plain = alloc_dmah(ctx, &hint), *steered = alloc_dmah(ctx, &steering);
	CLAIM(plain && steered && plain != steered && *(struct ibv_context **)plain == ctx);
	struct mr_wanted wanted = {.length = 64, .access = RIGHTS, .comp_mask = ADDR | DMAH, .addr = memory + 8, .dmah = steered};
	struct ibv_mr *region = reg_mr_ex(pd, &wanted);
	CLAIM(region);
	writes_to(region, (uintptr_t)(memory + 9), memory + 9);
	FAILS(dealloc_dmah(steered), EBUSY);
	FAILS(dealloc_dmah(plain), 0);
	FAILS(dealloc_dmah(plain), ENOENT);
	wanted.access |= IBV_ACCESS_ON_DEMAND;
	REFUSED(reg_mr_ex(pd, &wanted), EINVAL);
	wanted.access = RIGHTS;
	wanted.dmah = plain;
	REFUSED(reg_mr_ex(pd, &wanted), ENOENT);
	FAILS(ibv_dereg_mr(region), 0);
	FAILS(dealloc_dmah(steered), 0);
}

static void files_of_device_memory(void)
{
	struct ibv_alloc_dm_attr attr = {.length = 100};
	struct ibv_dm *dm = ibv_alloc_dm(ctx, &attr);
	CLAIM(dm && (errno = 0, export_dm(NULL)) == -1 && errno == EINVAL);
	int file = export_dm(dm);
	CLAIM(file >= 0 && (fcntl(file, F_GETFD) & FD_CLOEXEC));
	uint64_t *view = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0), word = 0x600df00d;
	CLAIM(view != MAP_FAILED && !view[1]);
	FAILS(ibv_memcpy_to_dm(dm, 8, &word, 8), 0);
	CLAIM(view[1] == word);
	/* Peers reach it by a registration of the file, and it stays when the memory is freed. */
	struct ibv_mr *region = ibv_reg_dmabuf_mr(pd, 0, 100, 0x1000, file, RIGHTS);
	CLAIM(region);
	FAILS(ibv_free_dm(dm), 0);
	writes_to(region, 0x1010, view + 2);
	FAILS(ibv_dereg_mr(region), 0);
	CLAIM(munmap(view, 4096) == 0 && close(file) == 0);
}

static void refusals(void)
{
	/* Of the first libibverbs, with other structures than today's: loaded programs hear that it is not supported. */
	void *first = dlvsym(RTLD_DEFAULT, "ibv_open_device", "IBVERBS_1.0");
	CLAIM(first && first != dlvsym(RTLD_DEFAULT, "ibv_open_device", "IBVERBS_1.1"));
	REFUSED(((void *(*)(void *))first)(ctx->device), EOPNOTSUPP);
	/* Each by its own convention: an errno, a descriptor, an object, a negative errno. */
	FAILS(counter_caps(ctx, NULL, 0), EINVAL);
	REFUSED(create_counter(ctx, NULL), EINVAL);
	FAILS(rq_depth(ctx, NULL, 0), -EOPNOTSUPP);
}

/* Every type of queue pair that there is not, and OFED 1.x's, which has a longer structure: this one ends where its
   memory does. */
static void types_of_queue_pairs(void)
{
	char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CLAIM(pages != MAP_FAILED && mprotect(pages + 4096, 4096, PROT_NONE) == 0);
	struct ibv_qp_init_attr *wants = (struct ibv_qp_init_attr *)(pages + 4096 - sizeof(*wants));
	struct ibv_qp_init_attr_ex *extended = (struct ibv_qp_init_attr_ex *)(pages + 4096 - offsetof(struct ibv_qp_init_attr_ex, xrcd));
	for (int type = -1; type <= 0x101; type++) {
		*wants = qp_wants((enum ibv_qp_type)type);
		if (type == IBV_QPT_RC || type == IBV_QPT_UC || type == IBV_QPT_UD || type == IBV_QPT_XRC_SEND || type == IBV_QPT_RAW_PACKET)
			continue;
		int driver = type == IBV_QPT_DRIVER;
		REFUSED(ibv_create_qp(pd, wants), driver ? EOPNOTSUPP : EINVAL);
		struct ibv_qp_init_attr_ex long_one = {.send_cq = cq, .recv_cq = cq, .cap = wants->cap, .qp_type = (enum ibv_qp_type)type,
						       .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd};
		memcpy(extended, &long_one, offsetof(struct ibv_qp_init_attr_ex, xrcd));
		REFUSED(ibv_create_qp_ex(ctx, extended), driver ? EOPNOTSUPP : EINVAL);
	}
	/* All bits ask for everything, and a program of before `rate_limit` has no place for that. */
	struct ibv_qp_attr *attr = (struct ibv_qp_attr *)(pages + 4096 - offsetof(struct ibv_qp_attr, rate_limit));
	FAILS(ibv_query_qp(a, attr, -1, wants), 0);
	CLAIM(attr->qp_state == IBV_QPS_RTS);
}

int main(void)
{
	open_device();
	a = pair(IBV_QPT_RC, &b);
	buffers();
	registration_by_a_list();
	dma_handles();
	files_of_device_memory();
	refusals();
	types_of_queue_pairs();
	/* What the kernel is asked about by index is not this device. */
	CLAIM(device_index(ctx->device) == -1);
	uint64_t speed = 0;
	FAILS(port_speed(ctx, 1, &speed), 0);
	CLAIM(speed == 25);
	FAILS(port_speed(ctx, 0, &speed), EINVAL);
	FAILS(port_speed(ctx, 257, &speed), EINVAL);
	FAILS(port_speed(ctx, 1, NULL), EINVAL);
	FAILS(port_speed(NULL, 1, &speed), EINVAL);
	FAILS(ibv_destroy_qp(a), 0);
	FAILS(ibv_destroy_qp(b), 0);
	FAILS(ibv_close_device(ctx), 0);
	return 0;
}
