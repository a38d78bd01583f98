/*
 * The address space ends (RLIMIT_AS, `ulimit -v`): a call that makes something works, or returns NULL with ENOMEM; what
 * was made before goes on, and the process lives. Requests with long lists or long inline data are taken, or refused with ENOMEM.
 */
#include "cm_kit.h"
#include <sys/resource.h>
#include <sys/wait.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

/* Bytes that the process has mapped: without memory of its own. */
static size_t mapped(void)
{
	char text[64] = "";
	int file = open("/proc/self/statm", O_RDONLY);
	CLAIM(file >= 0 && read(file, text, sizeof(text) - 1) > 0);
	close(file);
	return strtoul(text, NULL, 10) * (size_t)sysconf(_SC_PAGESIZE);
}

static void limit(rlim_t bytes)
{
	struct rlimit to = {.rlim_cur = bytes, .rlim_max = RLIM_INFINITY};
	CLAIM(setrlimit(RLIMIT_AS, &to) == 0);
}

/* The process can map so many bytes more, and not one more. */
static void leave(size_t bytes)
{
	limit(mapped() + bytes);
}

/* What the program has taken of malloc's memory. */
static void *eaten;

/* Takes all that malloc has. */
static void eat(void)
{
	for (size_t bytes = 64 * KIB; bytes >= 16; bytes /= 4) {
		void **block;
		while ((block = malloc(bytes))) {
			*block = eaten;
			eaten = block;
		}
	}
}

static void let_go(void)
{
	while (eaten) {
		void *next = *(void **)eaten;
		free(eaten);
		eaten = next;
	}
}

/* ---- a process that has little memory when it begins ---- */

enum { WORKED = 0, REFUSED_HERE = 7 };

/* A part of the work of a child. */
#define WORKS(call)                                                                                          \
	do {                                                                                                 \
		errno = 0;                                                                                   \
		if (!(call)) {                                                                               \
			if (errno == ENOMEM)                                                                 \
				_exit(REFUSED_HERE);                                                         \
			fprintf(stderr, "%s: errno %d\n", #call, errno);                                     \
			_exit(1);                                                                            \
		}                                                                                            \
	} while (0)

static void begins_with(size_t bytes)
{
	if (bytes != SIZE_MAX)
		leave(bytes);
	struct ibv_device **list;
	WORKS(list = ibv_get_device_list(NULL));
	WORKS(ctx = ibv_open_device(list[0]));
	WORKS(pd = ibv_alloc_pd(ctx));
	WORKS(channel = ibv_create_comp_channel(ctx));
	WORKS(cq = ibv_create_cq(ctx, 64, &cq, channel, 0));
	WORKS(mr = ibv_reg_mr(pd, memory, sizeof(memory), RIGHTS));
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	struct ibv_qp *one, *other;
	WORKS(one = ibv_create_qp(pd, &wants));
	WORKS(other = ibv_create_qp(pd, &wants));
	struct rdma_event_channel *events;
	struct rdma_cm_id *id;
	WORKS(events = rdma_create_event_channel());
	WORKS(rdma_create_id(events, &id, NULL, RDMA_PS_TCP) == 0);
	WORKS(rdma_bind_addr(id, (struct sockaddr *)&own) == 0);
	WORKS(rdma_listen(id, 4) == 0);
	_exit(WORKED);
}

static int child_with(size_t bytes)
{
	pid_t child = fork();
	CLAIM(child >= 0);
	if (child == 0)
		begins_with(bytes);
	int status;
	CLAIM(waitpid(child, &status, 0) == child);
	if (!WIFEXITED(status) || (WEXITSTATUS(status) != WORKED && WEXITSTATUS(status) != REFUSED_HERE)) {
		fprintf(stderr, "with %zu KiB: status %#x\n", bytes / KIB, status);
		exit(1);
	}
	return WEXITSTATUS(status);
}

static void processes_that_begin_in_little_memory(void)
{
	CLAIM(child_with(SIZE_MAX) == WORKED);
	CLAIM(child_with(0) == REFUSED_HERE);
	int refused = 0, worked = 0;
	for (size_t bytes = 0; bytes < 48 * MIB; bytes += bytes < 4 * MIB ? 128 * KIB : MIB) {
		int ended = child_with(bytes);
		refused += ended == REFUSED_HERE;
		worked += ended == WORKED;
	}
	printf("a process that begins: refused with %d sizes, works with %d\n", refused, worked);
	CLAIM(refused);
}

/* ---- objects, of a process that runs ---- */

static struct ibv_device_attr attr;
static struct ibv_device **devices;
static struct ibv_xrcd *domain_of_xrc;

static void *make_pd(void) { return ibv_alloc_pd(ctx); }
static void *make_mr(void) { return ibv_reg_mr(pd, memory, sizeof(memory), RIGHTS); }
static void *make_mw(void) { return ibv_alloc_mw(pd, IBV_MW_TYPE_2); }
static void *make_td(void) { return ibv_alloc_td(ctx, &(struct ibv_td_init_attr){0}); }
static void *make_channel(void) { return ibv_create_comp_channel(ctx); }
static void *make_cq(void) { return ibv_create_cq(ctx, 1000, NULL, NULL, 0); }
static void *make_deep_cq(void) { return ibv_create_cq(ctx, attr.max_cqe, NULL, NULL, 0); }
static void *make_context(void) { return ibv_open_device(devices[0]); }
static void *make_events(void) { return rdma_create_event_channel(); }

static void *make_ah(void)
{
	struct ibv_ah_attr address = own_address();
	return ibv_create_ah(pd, &address);
}

static void *make_parent(void)
{
	struct ibv_parent_domain_init_attr wants = {.pd = pd};
	return ibv_alloc_parent_domain(ctx, &wants);
}

static void *make_cq_ex(void)
{
	struct ibv_cq_init_attr_ex wants = {.cqe = 100};
	struct ibv_cq_ex *made = ibv_create_cq_ex(ctx, &wants);
	return made ? ibv_cq_ex_to_cq(made) : NULL;
}

static void *srq_of(uint32_t requests, uint32_t elements)
{
	struct ibv_srq_init_attr wants = {.attr = {.max_wr = requests, .max_sge = elements}};
	return ibv_create_srq(pd, &wants);
}

static void *make_srq(void) { return srq_of(16, 1); }
static void *make_deep_srq(void) { return srq_of(attr.max_srq_wr, attr.max_srq_sge); }

static void *qp_of(uint32_t sends, uint32_t receives, uint32_t elements)
{
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	wants.cap = (struct ibv_qp_cap){sends, receives, elements, elements, 0};
	return ibv_create_qp(pd, &wants);
}

static void *make_qp(void) { return qp_of(16, 16, 1); }
static void *make_deep_qp(void) { return qp_of(attr.max_qp_wr, attr.max_qp_wr, attr.max_sge); }
static void *make_sending_qp(void) { return qp_of(attr.max_qp_wr, 1, 1); }

static void *make_wq(void)
{
	struct ibv_wq_init_attr wants = {.wq_type = IBV_WQT_RQ, .max_wr = 100, .max_sge = 1, .pd = pd, .cq = cq};
	return ibv_create_wq(ctx, &wants);
}

static void *make_dm(void)
{
	struct ibv_alloc_dm_attr wants = {.length = 4096};
	return ibv_alloc_dm(ctx, &wants);
}

static void *make_xrc_srq(void)
{
	struct ibv_srq_init_attr_ex wants = {
		.attr = {.max_wr = 8, .max_sge = 1},
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_XRC,
		.pd = pd,
		.xrcd = domain_of_xrc,
		.cq = cq,
	};
	return ibv_create_srq_ex(ctx, &wants);
}

static void *make_id(void)
{
	struct rdma_cm_id *id;
	return rdma_create_id(passive, &id, NULL, RDMA_PS_TCP) == 0 ? id : NULL;
}

static int end_events(void *events)
{
	rdma_destroy_event_channel(events);
	return 0;
}

#define END(function) ((int (*)(void *))(void (*)(void))(function))

static const struct kind {
	const char *name;
	void *(*make)(void);
	int (*end)(void *);
	/* Most of them: descriptors are few. 0: until one is refused. */
	int most;
} kinds[] = {
	{"protection domains", make_pd, END(ibv_dealloc_pd), 0},
	{"regions", make_mr, END(ibv_dereg_mr), 0},
	{"windows", make_mw, END(ibv_dealloc_mw), 0},
	{"thread domains", make_td, END(ibv_dealloc_td), 0},
	{"parent domains", make_parent, END(ibv_dealloc_pd), 0},
	{"address handles", make_ah, END(ibv_destroy_ah), 0},
	{"completion channels", make_channel, END(ibv_destroy_comp_channel), 200},
	{"completion queues", make_cq, END(ibv_destroy_cq), 0},
	{"extended completion queues", make_cq_ex, END(ibv_destroy_cq), 0},
	{"the deepest completion queues", make_deep_cq, END(ibv_destroy_cq), 0},
	{"shared receive queues", make_srq, END(ibv_destroy_srq), 0},
	{"the deepest shared receive queues", make_deep_srq, END(ibv_destroy_srq), 0},
	{"shared receive queues of XRC", make_xrc_srq, END(ibv_destroy_srq), 0},
	{"queue pairs", make_qp, END(ibv_destroy_qp), 0},
	{"the deepest queue pairs", make_deep_qp, END(ibv_destroy_qp), 0},
	{"queue pairs that send much", make_sending_qp, END(ibv_destroy_qp), 0},
	{"work queues", make_wq, END(ibv_destroy_wq), 0},
	{"device memory", make_dm, END(ibv_free_dm), 0},
	{"contexts", make_context, END(ibv_close_device), 100},
	{"event channels", make_events, END(end_events), 200},
	{"identifiers", make_id, END(rdma_destroy_id), 0},
};

static void *made[200000];

/* Makes objects until one is refused; how many. */
static int make_many(const struct kind *kind)
{
	int count = 0, most = kind->most ? kind->most : (int)(sizeof(made) / sizeof(made[0]));
	errno = 0;
	while (count < most && (made[count] = kind->make()))
		count++;
	int found = errno;
	if (count < most && found != ENOMEM) {
		fprintf(stderr, "%s: the %d. is refused with errno %d\n", kind->name, count + 1, found);
		exit(1);
	}
	if (count == most && !kind->most) {
		fprintf(stderr, "%s: %d of them, and none is refused\n", kind->name, count);
		exit(1);
	}
	return count;
}

static void objects_of_one_kind(const struct kind *kind, struct ibv_qp *one, struct ibv_sge from)
{
	for (size_t bytes = 0; bytes <= 16 * MIB; bytes = bytes ? bytes * 4 : 64 * KIB) {
		leave(bytes);
		eat();
		int count = make_many(kind);
		/* What there was goes on. */
		FAILS(outcome(one, IBV_WR_RDMA_WRITE, from, (uintptr_t)memory + 4096, mr->rkey), 0);
		let_go();
		limit(RLIM_INFINITY);
		printf("%s: %d after %zu KiB\n", kind->name, count, bytes / KIB);
		while (count--)
			FAILS(kind->end(made[count]), 0);
		/* There is memory again. */
		void *again = kind->make();
		CLAIM(again && kind->end(again) == 0);
	}
}

/* ---- requests that need memory of their own ---- */

enum { INLINE_BYTES = 512 };

/* Posts a SEND that waits: of as many pieces as a request may have, or with inline data. */
static int post_waiting(struct ibv_qp *qp, int is_inline)
{
	struct ibv_sge pieces[attr.max_sge];
	for (int k = 0; k < attr.max_sge; k++)
		pieces[k] = piece(0, is_inline ? INLINE_BYTES : 8);
	struct ibv_send_wr wants = {
		.sg_list = pieces,
		.num_sge = is_inline ? 1 : attr.max_sge,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED | (is_inline ? IBV_SEND_INLINE : 0),
	};
	struct ibv_send_wr *bad = NULL;
	int failed_with = ibv_post_send(qp, &wants, &bad);
	CLAIM(bad == (failed_with ? &wants : NULL));
	return failed_with;
}

/* Fills queues until a request is refused: together they hold more than the library has of its own. */
static void requests_that_need_memory(int is_inline)
{
	enum { QUEUES = 4 };
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	wants.cap = (struct ibv_qp_cap){attr.max_qp_wr, 1, attr.max_sge, 1, INLINE_BYTES};
	struct ibv_qp *queues[QUEUES];
	for (int k = 0; k < QUEUES; k++) {
		CLAIM((queues[k] = ibv_create_qp(pd, &wants)));
		init(queues[k]);
	}
	/* Each is connected to its neighbour, which has no receive. */
	for (int k = 0; k < QUEUES; k++)
		connect_to(queues[k], queues[k ^ 1]->qp_num);
	leave(0);
	eat();
	int count = 0, refused_with = 0;
	while (count < QUEUES * attr.max_qp_wr && !(refused_with = post_waiting(queues[count / attr.max_qp_wr], is_inline)))
		count++;
	printf("requests %s: %d\n", is_inline ? "with inline data" : "of many pieces", count);
	CLAIM(count > 0 && count % attr.max_qp_wr);
	FAILS(refused_with, ENOMEM);
	let_go();
	limit(RLIM_INFINITY);
	FAILS(post_waiting(queues[count / attr.max_qp_wr], is_inline), 0);
	for (int k = 0; k < QUEUES; k++)
		FAILS(ibv_destroy_qp(queues[k]), 0);
}

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	CLAIM(inet_pton(AF_INET, getenv("PUMICE_ADDR"), &own.sin_addr) == 1);
	processes_that_begin_in_little_memory();
	begin();
	open_device();
	FAILS(ibv_query_device(ctx, &attr), 0);
	CLAIM((devices = ibv_get_device_list(NULL)));
	struct ibv_xrcd_init_attr alone = {.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT};
	CLAIM((domain_of_xrc = ibv_open_xrcd(ctx, &alone)));
	struct ibv_qp *other, *one = pair(IBV_QPT_RC, &other);
	FAILS(outcome(one, IBV_WR_RDMA_WRITE, piece(0, 8), (uintptr_t)memory + 4096, mr->rkey), 0);
	/* Before the objects: how much memory the library has of its own does not depend on them. */
	requests_that_need_memory(0);
	requests_that_need_memory(1);
	for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
		objects_of_one_kind(&kinds[k], one, piece(0, 8));
	return 0;
}
