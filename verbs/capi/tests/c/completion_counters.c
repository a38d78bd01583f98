/* Completion counters of rdma-core 66, which the system's headers need not have. The argument: "all" operations are counted, "some": all but
 * READs of a peer, or "none". */
#include "expect.h"

struct counter;
struct capabilities {
	uint64_t max_value;
	uint32_t max_counters, operations;
};
struct wanted {
	uint32_t comp_mask, type, flags;
};
struct attached {
	uint32_t comp_mask, op_mask;
};
enum { SEND = 1, RECEIVE = 2, READ = 4, REMOTE_READ = 8, WRITE = 16, REMOTE_WRITE = 32, ALL = 63 };

int query(struct ibv_context *, struct capabilities *, size_t) __asm__("_ibv_query_comp_cntr_caps");
struct counter *create(struct ibv_context *, struct wanted *) __asm__("ibv_create_comp_cntr");
int destroy(struct counter *) __asm__("ibv_destroy_comp_cntr");
int set(struct counter *, uint64_t) __asm__("ibv_set_comp_cntr");
int set_errors(struct counter *, uint64_t) __asm__("ibv_set_err_comp_cntr");
int increase(struct counter *, uint64_t) __asm__("ibv_inc_comp_cntr");
int increase_errors(struct counter *, uint64_t) __asm__("ibv_inc_err_comp_cntr");
int read_number(struct counter *, uint64_t *) __asm__("ibv_read_comp_cntr");
int read_errors(struct counter *, uint64_t *) __asm__("ibv_read_err_comp_cntr");
int attach(struct ibv_qp *, struct counter *, struct attached *) __asm__("ibv_qp_attach_comp_cntr");

static struct counter *made(void)
{
	struct wanted plain = {0};
	struct counter *counter = create(ctx, &plain);
	CLAIM(counter);
	return counter;
}

static void attach_to(struct ibv_qp *qp, struct counter *counter, uint32_t operations)
{
	struct attached attr = {.op_mask = operations};
	FAILS(attach(qp, counter, &attr), 0);
}

/* Waits, at most a minute, until a counter has a number. */
static void reaches(struct counter *counter, uint64_t number)
{
	uint64_t now;
	time_t end = time(NULL) + 60;
	do {
		FAILS(read_number(counter, &now), 0);
		CLAIM(now <= number && time(NULL) <= end);
	} while (now < number);
}

static uint64_t errors_of(struct counter *counter)
{
	uint64_t now;
	FAILS(read_errors(counter, &now), 0);
	return now;
}

static void capabilities_are(uint32_t operations)
{
	struct capabilities caps = {0};
	FAILS(query(ctx, &caps, sizeof(caps)), 0);
	CLAIM(caps.max_value == UINT64_MAX && caps.max_counters >= 1024 && caps.operations == operations);
	memset(&caps, 0xff, sizeof(caps));
	FAILS(query(ctx, &caps, 8), 0);
	CLAIM(caps.max_value == UINT64_MAX && caps.operations == UINT32_MAX);
	FAILS(query(ctx, NULL, 16), EINVAL);
}

static void refusals(struct ibv_qp *qp)
{
	struct wanted bytes = {.type = 1}, flags = {.flags = 1}, mask = {.comp_mask = 1};
	struct attached nothing = {0}, unknown = {.op_mask = 64}, masked = {.comp_mask = 1, .op_mask = SEND};
	struct counter *counter = made();
	REFUSED(create(ctx, NULL), EINVAL);
	REFUSED(create(ctx, &bytes), EOPNOTSUPP);
	REFUSED(create(ctx, &flags), EOPNOTSUPP);
	REFUSED(create(ctx, &mask), EOPNOTSUPP);
	FAILS(attach(qp, counter, NULL), EINVAL);
	FAILS(attach(qp, counter, &nothing), EINVAL);
	FAILS(attach(qp, counter, &unknown), EOPNOTSUPP);
	FAILS(attach(qp, counter, &masked), EOPNOTSUPP);
	FAILS(attach(qp, NULL, &nothing), EINVAL);
	FAILS(read_number(counter, NULL), EINVAL);
	FAILS(destroy(counter), 0);
	FAILS(destroy(counter), ENOENT);
}

static void numbers_are_the_programs(void)
{
	struct counter *counter = made();
	reaches(counter, 0);
	FAILS(set(counter, 40), 0);
	FAILS(increase(counter, 2), 0);
	FAILS(set_errors(counter, UINT64_MAX), 0);
	FAILS(increase_errors(counter, 8), 0);
	reaches(counter, 42);
	CLAIM(errors_of(counter) == 7);
	FAILS(destroy(counter), 0);
}

static void post_one(struct ibv_qp *qp, enum ibv_wr_opcode opcode, int flags)
{
	struct ibv_sge sge = piece(0, 8);
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = flags};
	wr.wr.rdma.remote_addr = (uintptr_t)&memory[100];
	wr.wr.rdma.rkey = mr->rkey;
	post(qp, &wr);
}

/* Each operation counts on its own side, without completions; what fails counts apart. */
static void operations_count(void)
{
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	struct ibv_qp *one = ibv_create_qp(pd, &wants), *other = ibv_create_qp(pd, &wants);
	struct counter *sends = made(), *memory_of = made(), *there = made(), *received = made();
	struct attached again = {.op_mask = SEND | RECEIVE};
	CLAIM(one && other);
	attach_to(one, sends, SEND);
	FAILS(attach(one, received, &again), EBUSY);
	init(one);
	init(other);
	attach_to(one, memory_of, READ | WRITE);
	attach_to(other, there, REMOTE_READ | REMOTE_WRITE);
	attach_to(other, received, RECEIVE);
	connect_to(one, other->qp_num);
	connect_to(other, one->qp_num);
	again.op_mask = RECEIVE;
	FAILS(attach(one, received, &again), EINVAL);
	for (int n = 0; n < 3; n++) {
		post_receive(other, n, 8000, 8);
		post_one(one, IBV_WR_SEND, 0);
		post_one(one, IBV_WR_RDMA_WRITE, 0);
		post_one(one, IBV_WR_RDMA_READ, 0);
	}
	reaches(sends, 3);
	reaches(memory_of, 6);
	reaches(there, 6);
	reaches(received, 3);
	completions(3);
	CLAIM(outcome(one, IBV_WR_RDMA_READ, piece(0, 8), 0, mr->rkey + 1) == IBV_WC_REM_ACCESS_ERR);
	post_one(one, IBV_WR_SEND, 0);
	CLAIM(completion().status == IBV_WC_WR_FLUSH_ERR);
	CLAIM(errors_of(memory_of) == 1 && errors_of(sends) == 1 && errors_of(there) == 0);
	reaches(sends, 3);
	FAILS(destroy(sends), EBUSY);
	FAILS(ibv_destroy_qp(one), 0);
	FAILS(destroy(sends), 0);
	FAILS(destroy(memory_of), 0);
	FAILS(destroy(there), EBUSY);
	FAILS(ibv_destroy_qp(other), 0);
	FAILS(destroy(there), 0);
	FAILS(destroy(received), 0);
}

/* Several queue pairs count in one counter. */
static void a_counter_of_all(void)
{
	struct ibv_qp_init_attr wants = {.send_cq = cq, .recv_cq = cq, .cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_UD};
	struct counter *counter = made();
	struct ibv_ah_attr address = own_address();
	struct ibv_ah *ah = ibv_create_ah(pd, &address);
	CLAIM(ah);
	for (uint64_t n = 1; n <= 2; n++) {
		struct ibv_qp *qp = ibv_create_qp(pd, &wants);
		CLAIM(qp);
		attach_to(qp, counter, SEND | RECEIVE);
		init(qp);
		connect_to(qp, 0);
		post_receive(qp, n, 4096, 48);
		struct ibv_sge sge = piece(0, 8);
		struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = qp->qp_num;
		wr.wr.ud.remote_qkey = 7;
		post(qp, &wr);
		reaches(counter, 2 * n);
		completions(2);
	}
}

int main(int argc, char **argv)
{
	struct wanted plain = {0};
	struct capabilities caps;
	CLAIM(argc == 2);
	open_device();
	if (!strcmp(argv[1], "none")) {
		REFUSED(create(ctx, &plain), EOPNOTSUPP);
		FAILS(query(ctx, &caps, sizeof(caps)), EOPNOTSUPP);
		return 0;
	}
	capabilities_are(strcmp(argv[1], "some") ? ALL : ALL & ~REMOTE_READ);
	numbers_are_the_programs();
	a_counter_of_all();
	if (strcmp(argv[1], "all"))
		return 0;
	struct ibv_qp *other, *one = pair(IBV_QPT_RC, &other);
	refusals(one);
	operations_count();
	return 0;
}
