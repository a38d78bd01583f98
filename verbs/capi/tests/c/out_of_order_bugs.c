/* Programs that rely on an order which queue pairs with out-of-order data placement do not promise, and the same programs without the mistake.
 *
 *   out_of_order_bugs NAME            the program with its mistake: it exits with 1 when it meets what it did not expect
 *   out_of_order_bugs NAME careful    the same, right: it passes with every schedule
 *
 * The device has to look like a ConnectX-7, which stores in order otherwise. Without --shuffle, all pass. */
#include "expect.h"

enum { SIZE = 4096, ROUNDS = 12, FLAG = 2 * SIZE, BESIDE = 3 * SIZE, OOO_DP = 1 << 7 };

struct ibv_qp *create_qp(struct ibv_context *, void *, void *) __asm__("mlx5dv_create_qp");

static int careful;
static unsigned char *const from = (unsigned char *)memory, *const to = (unsigned char *)memory + SIZE;
static struct ibv_qp *one, *other;

static void met(const char *what, int round)
{
	fprintf(stderr, "round %d: %s\n", round, what);
	exit(1);
}

static void check_all(unsigned char wanted, int count, const char *what, int round)
{
	for (int i = 0; i < count; i++)
		if (((volatile unsigned char *)to)[i] != wanted)
			met(what, round);
}

static void spin(volatile unsigned char *byte, unsigned char wanted)
{
	time_t end = time(NULL) + 60;
	while (*byte != wanted)
		CLAIM(time(NULL) <= end);
	__sync_synchronize();
}

static void start(enum ibv_wr_opcode opcode, unsigned offset, uint32_t length, unsigned remote)
{
	struct ibv_sge sge = piece(offset, length);
	struct ibv_send_wr wr = {.wr_id = opcode, .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED};
	wr.wr.rdma.remote_addr = (uintptr_t)memory + remote;
	wr.wr.rdma.rkey = mr->rkey;
	post(one, &wr);
}

static struct ibv_qp *out_of_order(void)
{
	struct {
		uint64_t comp_mask;
		uint32_t create_flags;
		uint64_t rest[3];
	} attr = {.comp_mask = 1, .create_flags = OOO_DP};
	struct ibv_qp_init_attr_ex wants = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd,
		.cap = {.max_send_wr = 20, .max_recv_wr = 20, .max_send_sge = 1, .max_recv_sge = 1},
	};
	struct ibv_qp *qp = create_qp(ctx, &wants, &attr);
	CLAIM(qp);
	init(qp);
	return qp;
}

/* Takes the end of a WRITE for the whole of it. */
static void last_byte(void)
{
	for (int round = 1; round <= ROUNDS; round++) {
		memset(from, round, SIZE);
		if (careful)
			post_receive(other, 9, 0, 0);
		start(careful ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE, 0, SIZE, SIZE);
		if (careful)
			completions(2);
		else
			spin(&to[SIZE - 1], round);
		check_all(round, SIZE, "the last byte of a WRITE was there before the rest", round);
		if (!careful)
			completions(1);
	}
}

/* Two WRITEs to one place. The careful one waits for the first. */
static void writes_overlap(void)
{
	for (int round = 1; round <= ROUNDS; round++) {
		memset(from, round, SIZE);
		start(IBV_WR_RDMA_WRITE, 0, SIZE, SIZE);
		if (careful)
			completions(1);
		memset(from + BESIDE, round + 100, 2048);
		start(IBV_WR_RDMA_WRITE, BESIDE, 2048, SIZE);
		completions(careful ? 1 : 2);
		check_all(round + 100, 2048, "the later of two WRITEs to one place was replaced by the earlier one", round);
	}
}

/* Takes the first receive for that of the first message. The careful one goes by the identifier of the receive. */
static void receive_by_position(void)
{
	for (int round = 1; round <= ROUNDS; round++) {
		for (int i = 0; i < 4; i++)
			post_receive(other, 1 + i, SIZE + 64 * i, 64);
		int messages = 0, left = 8;
		for (int i = 0; i < 4; i++) {
			memset(from + 64 * i, 10 * round + i, 64);
			start(IBV_WR_SEND, 64 * i, 64, 0);
		}
		while (left--) {
			struct ibv_wc wc = completion();
			CLAIM(wc.status == IBV_WC_SUCCESS);
			if (!(wc.opcode & IBV_WC_RECV))
				continue;
			int position = careful ? (int)wc.wr_id - 1 : messages;
			if (to[64 * position] != (unsigned char)(10 * round + messages))
				met("a message was not in the receive that was posted for it", round);
			messages++;
		}
	}
}

int main(int count, char **arguments)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} programs[] = {
		{"last_byte", last_byte},
		{"writes_overlap", writes_overlap},
		{"receive_by_position", receive_by_position},
	};
	careful = count > 2 && !strcmp(arguments[2], "careful");
	for (unsigned i = 0; i < sizeof(programs) / sizeof(*programs); i++) {
		if (count < 2) {
			puts(programs[i].name);
		} else if (!strcmp(programs[i].name, arguments[1])) {
			open_device();
			one = out_of_order();
			other = out_of_order();
			connect_to(one, other->qp_num);
			connect_to(other, one->qp_num);
			programs[i].run();
			return 0;
		}
	}
	return count < 2 ? 0 : 2;
}
