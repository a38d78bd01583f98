/* Programs that rely on an order of WRITEs which regions with relaxed ordering do not promise, and the same programs without the mistake.
 *
 *   relaxed_bugs NAME            the program with its mistake: it exits with 1 when it meets what it did not expect
 *   relaxed_bugs NAME careful    the same, right: it passes with every schedule
 *
 * Without --shuffle, all pass. Names are in the table at the end. */
#include "expect.h"

enum { SIZE = 4096, ROUNDS = 12, FLAG = 2 * SIZE, BESIDE = 3 * SIZE };

static int careful;
static unsigned char *const from = (unsigned char *)memory, *const to = (unsigned char *)memory + SIZE;
/* The same memory again, with relaxed ordering; the flag and the counter have the strict key. */
static struct ibv_mr *relaxed;
static struct ibv_qp *one, *other, *third, *fourth;

/* The mistake showed. */
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

static void spin(volatile uint64_t *word, uint64_t wanted)
{
	time_t end = time(NULL) + 60;
	while (*word != wanted)
		CLAIM(time(NULL) <= end);
	__sync_synchronize();
}

static void start(struct ibv_qp *qp, enum ibv_wr_opcode opcode, unsigned offset, uint32_t length, unsigned remote, uint32_t rkey)
{
	struct ibv_sge sge = piece(offset, length);
	struct ibv_send_wr wr = {.wr_id = opcode, .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED};
	wr.wr.rdma.remote_addr = (uintptr_t)memory + remote;
	wr.wr.rdma.rkey = rkey;
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)memory + remote;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = 1;
	}
	post(qp, &wr);
}

static void write_data(int round)
{
	memset(from, round, SIZE);
	start(one, IBV_WR_RDMA_WRITE, 0, SIZE, SIZE, relaxed->rkey);
}

/* A WRITE, its completion, and then a message on another queue pair. The careful one sends it on the queue pair of the WRITE. */
static void message_on_other(void)
{
	for (int round = 1; round <= ROUNDS; round++) {
		post_receive(careful ? other : fourth, 9, BESIDE, 64);
		write_data(round);
		completions(1);
		start(careful ? one : third, IBV_WR_SEND, 0, 8, 0, 0);
		completions(2);
		check_all(round, SIZE, "a message on another queue pair came before the data of a WRITE that had completed", round);
	}
}

/* The same, and the message is a flag in a region of its own. The careful one writes with an immediate. */
static void flag_on_other(void)
{
	for (int round = 1; round <= ROUNDS; round++) {
		write_data(round);
		completions(1);
		*(uint64_t *)(from + 2048) = round;
		if (careful) {
			post_receive(other, 9, 0, 0);
			start(one, IBV_WR_RDMA_WRITE_WITH_IMM, 2048, 8, FLAG, mr->rkey);
			completions(2);
		} else {
			start(third, IBV_WR_RDMA_WRITE, 2048, 8, FLAG, mr->rkey);
			spin(&memory[FLAG / 8], round);
		}
		check_all(round, 2048, "a flag written by another queue pair was there before the data", round);
		if (!careful)
			completions(1);
	}
}

/* A WRITE's completion, and the reader is told by other means. The careful one lets a READ on that queue pair follow. */
static void completion_is_all(void)
{
	for (int round = 1; round <= ROUNDS; round++) {
		write_data(round);
		completions(1);
		if (careful) {
			start(one, IBV_WR_RDMA_READ, BESIDE, 8, FLAG, mr->rkey);
			completions(1);
		}
		check_all(round, SIZE, "the completion of a WRITE came before its data was in memory", round);
	}
}

/* A READ that is to flush, on another queue pair than the WRITE. */
static void flush_on_other(void)
{
	for (int round = 1; round <= ROUNDS; round++) {
		write_data(round);
		completions(1);
		start(careful ? one : third, IBV_WR_RDMA_READ, BESIDE, 8, FLAG, mr->rkey);
		completions(1);
		check_all(round, SIZE, "a READ on another queue pair did not bring the data to memory", round);
	}
}

/* Two WRITEs of one queue pair to one place. The careful one waits for the first. */
static void writes_overlap(void)
{
	for (int round = 1; round <= ROUNDS; round++) {
		write_data(round);
		if (careful)
			completions(1);
		memset(from + BESIDE + 64, round + 100, 2048);
		start(one, IBV_WR_RDMA_WRITE, BESIDE + 64, 2048, SIZE, relaxed->rkey);
		completions(careful ? 1 : 2);
		post_receive(other, 9, 0, 0);
		start(one, IBV_WR_RDMA_WRITE_WITH_IMM, 0, 0, 0, 0);
		completions(2);
		check_all(round + 100, 2048, "the later of two WRITEs to one place was replaced by the earlier one", round);
	}
}

/* Data, and a flag behind it on the same queue pair. The careful one adds to a counter instead. */
static void flag_after_data(void)
{
	for (int round = 1; round <= ROUNDS; round++) {
		write_data(round);
		*(uint64_t *)(from + 2048) = round;
		if (careful)
			start(one, IBV_WR_ATOMIC_FETCH_AND_ADD, BESIDE, 8, FLAG, mr->rkey);
		else
			start(one, IBV_WR_RDMA_WRITE, 2048, 8, FLAG, mr->rkey);
		spin(&memory[FLAG / 8], round);
		check_all(round, 2048, "a flag was there before the data written before it", round);
		completions(2);
	}
}

/* A WRITE, its completion, and a counter that another queue pair adds to. */
static void counter_on_other(void)
{
	for (int round = 1; round <= ROUNDS; round++) {
		write_data(round);
		completions(1);
		start(careful ? one : third, IBV_WR_ATOMIC_FETCH_AND_ADD, BESIDE, 8, FLAG, mr->rkey);
		spin(&memory[FLAG / 8], round);
		check_all(round, SIZE, "a counter was added to by another queue pair before the data was there", round);
		completions(1);
	}
}

/* A READ on another queue pair of what a WRITE may not have brought yet. The careful one waits for the WRITE: adapters see their own data. */
static void read_on_other(void)
{
	for (int round = 1; round <= ROUNDS; round++) {
		write_data(round);
		if (careful)
			completions(1);
		start(third, IBV_WR_RDMA_READ, BESIDE, SIZE, SIZE, relaxed->rkey);
		completions(careful ? 1 : 2);
		for (int i = 0; i < SIZE; i++)
			if (from[BESIDE + i] != round)
				met("a READ on another queue pair brought what was there before the WRITE", round);
	}
}

int main(int count, char **arguments)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} programs[] = {
		{"message_on_other", message_on_other},
		{"flag_on_other", flag_on_other},
		{"completion_is_all", completion_is_all},
		{"flush_on_other", flush_on_other},
		{"writes_overlap", writes_overlap},
		{"flag_after_data", flag_after_data},
		{"counter_on_other", counter_on_other},
		{"read_on_other", read_on_other},
	};
	careful = count > 2 && !strcmp(arguments[2], "careful");
	for (unsigned i = 0; i < sizeof(programs) / sizeof(*programs); i++) {
		if (count < 2) {
			puts(programs[i].name);
		} else if (!strcmp(programs[i].name, arguments[1])) {
			open_device();
			CLAIM((relaxed = ibv_reg_mr(pd, memory, sizeof(memory), RIGHTS | IBV_ACCESS_RELAXED_ORDERING)));
			one = pair(IBV_QPT_RC, &other);
			third = pair(IBV_QPT_RC, &fourth);
			programs[i].run();
			return 0;
		}
	}
	return count < 2 ? 0 : 2;
}
