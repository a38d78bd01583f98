/* A device that looks like a ConnectX-7: what mlx5 lets programs say of queues, clocks, numbers and bandwidth. */
#include "expect.h"
#include <stdbool.h>

/* `struct mlx5dv_cq_init_attr`. */
struct cq_attr {
	uint64_t comp_mask;
	uint8_t format;
	uint32_t flags;
	uint16_t cqe_size;
};
/* `struct mlx5dv_clock_info`. */
struct clock {
	uint64_t nsec, last_cycles, frac;
	uint32_t mult, shift;
	uint64_t mask;
};
/* `struct mlx5dv_sched_attr`. */
struct sched {
	void *parent;
	uint32_t flags, bw_share, max_avg_bw;
	uint64_t comp_mask;
};
struct device {
	uint8_t version;
	uint64_t flags, comp_mask;
	uint32_t max_packed, formats, of_rings[13], dc_odp_caps;
	uint64_t others[11];
	uint32_t max_rc, max_xrc, max_dct, max_ud, max_uc;
};
enum { COMPRESSED = 1, FLAGS = 2, SIZE = 4, PAD = 1, OOO = 1 << 16, OOO_DP = 1 << 7 };

struct ibv_cq_ex *create_cq(struct ibv_context *, struct ibv_cq_init_attr_ex *, struct cq_attr *) __asm__("mlx5dv_create_cq");
struct ibv_qp *create_qp(struct ibv_context *, void *, void *) __asm__("mlx5dv_create_qp");
int query(struct ibv_context *, void *) __asm__("mlx5dv_query_device");
int query_port(struct ibv_context *, uint32_t, void *, size_t) __asm__("_mlx5dv_query_port");
int clock_info(struct ibv_context *, struct clock *) __asm__("mlx5dv_get_clock_info");
int reserve(struct ibv_context *, uint32_t *) __asm__("mlx5dv_reserved_qpn_alloc");
int release(struct ibv_context *, uint32_t) __asm__("mlx5dv_reserved_qpn_dealloc");
void *node(struct ibv_context *, struct sched *) __asm__("mlx5dv_sched_node_create");
void *leaf(struct ibv_context *, struct sched *) __asm__("mlx5dv_sched_leaf_create");
int change_node(void *, struct sched *) __asm__("mlx5dv_sched_node_modify");
int change_leaf(void *, struct sched *) __asm__("mlx5dv_sched_leaf_modify");
int drop_node(void *) __asm__("mlx5dv_sched_node_destroy");
int drop_leaf(void *) __asm__("mlx5dv_sched_leaf_destroy");
int belong(struct ibv_qp *, void *, void *) __asm__("mlx5dv_modify_qp_sched_elem");
int numbers_of(void *, uint64_t) __asm__("mlx5dv_init_obj");
int set_attribute(struct ibv_context *, int, void *) __asm__("mlx5dv_set_context_attr");
int source_port(struct ibv_qp *, uint16_t) __asm__("mlx5dv_modify_qp_udp_sport");

static struct ibv_cq_init_attr_ex plain = {.cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS};

static void takes_queue(struct cq_attr wanted)
{
	struct ibv_cq_ex *made = create_cq(ctx, &plain, &wanted);
	CLAIM(made && made->context == ctx);
	struct ibv_poll_cq_attr all = {};
	FAILS(ibv_start_poll(made, &all), ENOENT);
	FAILS(ibv_destroy_cq(ibv_cq_ex_to_cq(made)), 0);
}

static void refuses_queue(struct cq_attr wanted)
{
	REFUSED(create_cq(ctx, &plain, &wanted), EINVAL);
}

static void completion_queues(void)
{
	struct device device = {.comp_mask = COMPRESSED};
	FAILS(query(ctx, &device), 0);
	CLAIM(device.comp_mask == COMPRESSED && device.formats == 7 && device.max_packed > 0 && device.dc_odp_caps == 0);
	for (uint8_t format = 0; format < 16; format++) {
		struct cq_attr wanted = {.comp_mask = COMPRESSED, .format = format};
		if (format == 1 || format == 2 || format == 4)
			takes_queue(wanted);
		else
			refuses_queue(wanted);
	}
	takes_queue((struct cq_attr){.format = 99, .flags = 99, .cqe_size = 99});
	takes_queue((struct cq_attr){.comp_mask = SIZE, .cqe_size = 64});
	takes_queue((struct cq_attr){.comp_mask = SIZE | FLAGS, .cqe_size = 128, .flags = PAD});
	refuses_queue((struct cq_attr){.comp_mask = SIZE | FLAGS, .cqe_size = 64, .flags = PAD});
	refuses_queue((struct cq_attr){.comp_mask = FLAGS, .flags = PAD});
	refuses_queue((struct cq_attr){.comp_mask = FLAGS, .flags = 2});
	refuses_queue((struct cq_attr){.comp_mask = SIZE, .cqe_size = 100});
	refuses_queue((struct cq_attr){.comp_mask = 8});
	/* What the user says, where the program does not. */
	CLAIM(setenv("MLX5_CQE_SIZE", "100", 1) == 0);
	refuses_queue((struct cq_attr){});
	takes_queue((struct cq_attr){.comp_mask = SIZE, .cqe_size = 128});
	CLAIM(setenv("MLX5_CQE_SIZE", "128", 1) == 0);
	takes_queue((struct cq_attr){.comp_mask = FLAGS, .flags = PAD});
	CLAIM(unsetenv("MLX5_CQE_SIZE") == 0);
	struct ibv_cq_ex *made = create_cq(ctx, &plain, NULL);
	CLAIM(made);
	FAILS(ibv_destroy_cq(ibv_cq_ex_to_cq(made)), 0);
	REFUSED(create_cq(ctx, NULL, NULL), EINVAL);
}

static void clocks_and_ports(void)
{
	struct clock info;
	struct timespec before, after;
	CLAIM(clock_gettime(CLOCK_REALTIME, &before) == 0);
	FAILS(clock_info(ctx, &info), 0);
	CLAIM(clock_gettime(CLOCK_REALTIME, &after) == 0);
	CLAIM(info.mult == 1 && info.shift == 0 && info.mask == ~0ull && info.last_cycles > 0);
	/* A measurement that was interrupted is off by a millisecond at most. */
	uint64_t least = before.tv_sec * 1000000000ull + before.tv_nsec, most = after.tv_sec * 1000000000ull + after.tv_nsec;
	CLAIM(info.nsec + 1000000 >= least && info.nsec <= most + 1000000);
	FAILS(clock_info(ctx, NULL), EINVAL);

	uint64_t port[6];
	memset(port, 0xff, sizeof(port));
	FAILS(query_port(ctx, 1, port, 40), 0);
	CLAIM(port[0] == 0 && port[4] == 0 && port[5] == ~0ull);
	FAILS(query_port(ctx, 0, port, 40), EINVAL);
	FAILS(query_port(ctx, 2, port, 40), EINVAL);
	FAILS(query_port(ctx, 1, NULL, 40), EINVAL);
}

static void reserved_numbers(void)
{
	enum { COUNT = 50 };
	uint32_t numbers[COUNT], first;
	for (int i = 0; i < COUNT; i++) {
		FAILS(reserve(ctx, &numbers[i]), 0);
		for (int j = 0; j < i; j++)
			CLAIM(numbers[i] != numbers[j]);
	}
	/* No queue pair gets one. */
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	for (int i = 0; i < COUNT; i++) {
		struct ibv_qp *qp = ibv_create_qp(pd, &wants);
		CLAIM(qp);
		for (int j = 0; j < COUNT; j++)
			CLAIM(qp->qp_num != numbers[j]);
		FAILS(release(ctx, qp->qp_num), EINVAL);
		FAILS(ibv_destroy_qp(qp), 0);
	}
	for (int i = 0; i < COUNT; i++)
		FAILS(release(ctx, numbers[i]), 0);
	FAILS(release(ctx, numbers[0]), EINVAL);
	FAILS(release(ctx, ~0u), EINVAL);
	FAILS(reserve(ctx, NULL), EINVAL);
	/* One that stays goes with the context; only the context that has it gives it back. */
	struct ibv_context *second = ibv_open_device(ctx->device);
	CLAIM(second);
	FAILS(reserve(second, &first), 0);
	FAILS(release(ctx, first), EINVAL);
	FAILS(ibv_close_device(second), 0);
}

static void objects(void)
{
	struct {
		uint32_t number;
		uint64_t comp_mask;
	} out = {~0u, ~0ull}, second = out;
	struct ibv_pd *other = ibv_alloc_pd(ctx);
	CLAIM(other);
	/* `struct mlx5dv_obj`: seven pairs, the last one of a protection domain. */
	void *object[14] = {[12] = pd, [13] = &out};
	FAILS(numbers_of(object, 1 << 6), 0);
	CLAIM(out.number != ~0u && out.comp_mask == 0);
	object[12] = other;
	object[13] = &second;
	FAILS(numbers_of(object, 1 << 6), 0);
	CLAIM(second.number != out.number);
	FAILS(ibv_dealloc_pd(other), 0);
	object[13] = NULL;
	object[12] = pd;
	FAILS(numbers_of(object, 1 << 6), EINVAL);
	FAILS(numbers_of(NULL, 1 << 6), EINVAL);
	for (int kind = 0; kind < 9; kind++)
		if (kind != 6)
			FAILS(numbers_of(object, 1 << kind), EOPNOTSUPP);
	FAILS(numbers_of(object, 1 << 6 | 1), EOPNOTSUPP);

	void *allocators[3] = {};
	FAILS(set_attribute(ctx, 1, allocators), 0);
	FAILS(set_attribute(ctx, 1, NULL), EINVAL);
	FAILS(set_attribute(ctx, 2, allocators), EOPNOTSUPP);
}

static void bandwidth(struct ibv_qp *rc, struct ibv_qp *ud)
{
	struct sched of = {};
	void *root = node(ctx, &of), *inner, *end;
	CLAIM(root);
	REFUSED(leaf(ctx, &of), EINVAL);
	of.flags = 3;
	REFUSED(node(ctx, &of), EINVAL);
	of.parent = root;
	of.bw_share = of.max_avg_bw = 10;
	CLAIM((inner = node(ctx, &of)));
	of.parent = inner;
	CLAIM((end = leaf(ctx, &of)));
	FAILS(change_node(inner, &(struct sched){.parent = root, .flags = 1, .bw_share = 1}), 0);
	FAILS(change_leaf(end, &(struct sched){.parent = inner, .flags = 2, .max_avg_bw = 1}), 0);
	FAILS(change_leaf(end, &(struct sched){}), EINVAL);
	FAILS(change_node(end, &of), ENOENT);
	of.flags = 4;
	REFUSED(node(ctx, &of), EINVAL);
	of.flags = 0;
	of.comp_mask = 1;
	REFUSED(leaf(ctx, &of), EINVAL);
	REFUSED(node(ctx, NULL), EINVAL);
	FAILS(belong(rc, end, end), 0);
	FAILS(belong(rc, NULL, NULL), 0);
	FAILS(belong(ud, end, NULL), 0);
	FAILS(belong(ud, end, end), EINVAL);
	FAILS(belong(rc, root, NULL), ENOENT);
	FAILS(drop_leaf(end), 0);
	FAILS(drop_leaf(end), ENOENT);
	FAILS(drop_node(inner), 0);
	FAILS(drop_node(root), 0);
	FAILS(drop_node(NULL), EINVAL);
}

static void out_of_order(void)
{
	struct device device = {.comp_mask = OOO};
	FAILS(query(ctx, &device), 0);
	CLAIM(device.comp_mask == OOO && device.max_rc >= 1000 && device.max_dct >= 1000 && !device.max_ud && !device.max_uc);
	struct {
		uint64_t comp_mask;
		uint32_t create_flags;
		uint64_t rest[3];
	} attr = {.comp_mask = 1, .create_flags = OOO_DP};
	struct ibv_qp_init_attr_ex wants = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd,
		.cap = {.max_send_wr = 1, .max_recv_wr = device.max_rc, .max_send_sge = 1, .max_recv_sge = 1},
	};
	struct ibv_qp *qp = create_qp(ctx, &wants, &attr);
	CLAIM(qp);
	FAILS(ibv_destroy_qp(qp), 0);
	wants.cap.max_recv_wr = device.max_rc + 1;
	REFUSED(create_qp(ctx, &wants, &attr), EINVAL);
	wants.cap.max_recv_wr = 1;
	wants.qp_type = IBV_QPT_UD;
	REFUSED(create_qp(ctx, &wants, &attr), EOPNOTSUPP);
}

/* Where a user wants the memory of queues, and nowhere else. */
static void huge_pages(void)
{
	long pages = 0;
	FILE *file = fopen("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "r");
	if (file)
		CLAIM(fscanf(file, "%ld", &pages) == 1 && fclose(file) == 0);
	static const char *const names[] = {"MLX_CQ_ALLOC_TYPE", "MLX_QP_ALLOC_TYPE", "MLX_SRQ_ALLOC_TYPE"};
	static const char *const values[] = {"PREFER_HUGE", "CONTIG", "HUGE"};
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	struct ibv_srq_init_attr of = {.attr = {.max_wr = 4, .max_sge = 1}};
	for (int value = 0; value < 3; value++)
		for (int name = 0; name < 3; name++) {
			bool all = value < 2 || pages > 0;
			CLAIM(setenv(names[name], values[value], 1) == 0);
			struct ibv_cq *queue = ibv_create_cq(ctx, 4, NULL, NULL, 0);
			CLAIM((queue != NULL) == (all || name != 0) && (queue || errno == ENOMEM));
			struct ibv_qp *qp = ibv_create_qp(pd, &wants);
			CLAIM((qp != NULL) == (all || name != 1) && (qp || errno == ENOMEM));
			struct ibv_srq *srq = ibv_create_srq(pd, &of);
			CLAIM((srq != NULL) == (all || name != 2) && (srq || errno == ENOMEM));
			if (queue)
				FAILS(ibv_destroy_cq(queue), 0);
			if (qp)
				FAILS(ibv_destroy_qp(qp), 0);
			if (srq)
				FAILS(ibv_destroy_srq(srq), 0);
			CLAIM(unsetenv(names[name]) == 0);
		}
}

static void connects(struct ibv_qp *qp, struct ibv_qp *peer, int index)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qp_num, .rq_psn = 100,
		.max_dest_rd_atomic = 4, .min_rnr_timer = 12, .ah_attr = own_address(),
	};
	attr.ah_attr.grh.sgid_index = index;
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	init(qp);
	FAILS(ibv_modify_qp(qp, &attr, mask | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), 0);
	FAILS(source_port(qp, 55555), EOPNOTSUPP);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .sq_psn = 100, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 4};
	mask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
	FAILS(ibv_modify_qp(qp, &attr, mask | IBV_QP_MAX_QP_RD_ATOMIC), 0);
}

int main(void)
{
	open_device();
	int first = -1;
	while (ibv_query_gid(ctx, 1, ++first, &own_gid) != 0 || own_gid.global.interface_id == 0)
		CLAIM(first < 16);
	completion_queues();
	clocks_and_ports();
	reserved_numbers();
	objects();
	out_of_order();
	huge_pages();

	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_UD);
	struct ibv_qp *ud = ibv_create_qp(pd, &wants), *a = NULL, *b = NULL;
	wants = qp_wants(IBV_QPT_RC);
	CLAIM(ud && (a = ibv_create_qp(pd, &wants)) && (b = ibv_create_qp(pd, &wants)));
	bandwidth(a, ud);
	FAILS(source_port(a, 55555), EOPNOTSUPP);
	FAILS(source_port(ud, 55555), EOPNOTSUPP);
	FAILS(source_port(NULL, 55555), EINVAL);
	connects(a, b, first);
	connects(b, a, first);
	for (uint16_t port = 55555; port < 55560; port++) {
		FAILS(source_port(a, port), 0);
		memory[0] = port;
		FAILS(outcome(a, IBV_WR_RDMA_WRITE, piece(0, 8), (uintptr_t)&memory[1], mr->rkey), 0);
		CLAIM(memory[1] == port);
	}
	return 0;
}
