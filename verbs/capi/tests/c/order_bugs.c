/* Programs that rely on an order which the specification does not promise, and the same programs without the mistake.
 *
 *   order_bugs NAME            the program with its mistake: it exits with 1 when it meets what it did not expect
 *   order_bugs NAME careful    the same, right: it passes with every schedule
 *
 * Without --shuffle, all pass. Names are in the table at the end. */
#include "expect.h"

enum { SIZE = 4096, ROUNDS = 12 };

static int careful;
/* Four areas of SIZE bytes in the registered memory. */
static unsigned char *const from = (unsigned char *)memory, *const to = (unsigned char *)memory + SIZE;

/* The mistake showed. */
static void met(const char *what, int round)
{
	fprintf(stderr, "round %d: %s\n", round, what);
	exit(1);
}

static void check_all(const unsigned char *bytes, unsigned char wanted, int count, const char *what, int round)
{
	for (int i = 0; i < count; i++)
		if (bytes[i] != wanted)
			met(what, round);
}

static void spin(const volatile unsigned char *byte, unsigned char wanted)
{
	time_t end = time(NULL) + 60;
	while (*byte != wanted)
		CLAIM(time(NULL) <= end);
	__sync_synchronize();
}

static uint64_t wr_id_of(struct ibv_wc wc)
{
	CLAIM(wc.status == IBV_WC_SUCCESS);
	return wc.wr_id;
}

static void start(struct ibv_qp *qp, enum ibv_wr_opcode opcode, uint64_t wr_id, unsigned offset, uint32_t length, unsigned remote,
		  int flags)
{
	struct ibv_sge sge = piece(offset, length);
	struct ibv_send_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = flags};
	wr.wr.rdma.remote_addr = (uintptr_t)memory + remote;
	wr.wr.rdma.rkey = mr->rkey;
	post(qp, &wr);
}

/* Takes the end of a WRITE for the whole of it. The careful one waits for the completion of an immediate. */
static void last_byte_of_write(void)
{
	struct ibv_qp *other, *one = pair(IBV_QPT_RC, &other);
	for (int round = 1; round <= ROUNDS; round++) {
		memset(from, round, SIZE);
		if (careful) {
			post_receive(other, 1, 0, 0);
			start(one, IBV_WR_RDMA_WRITE_WITH_IMM, 2, 0, SIZE, SIZE, IBV_SEND_SIGNALED);
			completions(2);
		} else {
			start(one, IBV_WR_RDMA_WRITE, 2, 0, SIZE, SIZE, IBV_SEND_SIGNALED);
			spin(&to[SIZE - 1], round);
		}
		check_all(to, round, SIZE, "the last byte of a WRITE was there before the rest", round);
		if (!careful)
			completions(1);
	}
}

/* Writes data, then a flag, and takes the flag for the data. */
static void flag_after_data(void)
{
	struct ibv_qp *other, *one = pair(IBV_QPT_RC, &other);
	for (int round = 1; round <= ROUNDS; round++) {
		memset(from, round, SIZE);
		start(one, IBV_WR_RDMA_WRITE, 1, 0, 1024, SIZE, 0);
		if (careful) {
			post_receive(other, 1, 0, 0);
			start(one, IBV_WR_RDMA_WRITE_WITH_IMM, 2, 0, 1, SIZE + 2048, IBV_SEND_SIGNALED);
			completions(2);
		} else {
			start(one, IBV_WR_RDMA_WRITE, 2, 0, 1, SIZE + 2048, IBV_SEND_SIGNALED);
			spin(&to[2048], round);
		}
		check_all(to, round, 1024, "a flag was there before the data written before it", round);
		if (!careful)
			completions(1);
	}
}

/* Uses what a READ brings when its end is there. */
static void read_before_completion(void)
{
	struct ibv_qp *other, *one = pair(IBV_QPT_RC, &other);
	for (int round = 1; round <= ROUNDS; round++) {
		memset(from, round, SIZE);
		start(one, IBV_WR_RDMA_READ, 1, SIZE, SIZE, 0, IBV_SEND_SIGNALED);
		if (careful)
			completions(1);
		else
			spin(&to[SIZE - 1], round);
		check_all(to, round, SIZE, "the end of a READ was there before the rest", round);
		if (!careful)
			completions(1);
	}
}

/* Reads a receive buffer when its end is there. */
static void receive_before_completion(void)
{
	struct ibv_qp *other, *one = pair(IBV_QPT_RC, &other);
	for (int round = 1; round <= ROUNDS; round++) {
		memset(from, round, SIZE);
		post_receive(other, 1, SIZE, SIZE);
		start(one, IBV_WR_SEND, 2, 0, SIZE, 0, IBV_SEND_SIGNALED);
		if (careful)
			completions(2);
		else
			spin(&to[SIZE - 1], round);
		check_all(to, round, SIZE, "the end of a message was in its buffer before the rest", round);
		if (!careful)
			completions(2);
	}
}

/* Writes the next message over one that has not completed. */
static void buffer_reused(void)
{
	struct ibv_qp *other, *one = pair(IBV_QPT_RC, &other);
	for (int round = 1; round <= ROUNDS; round++) {
		memset(from, round, 64);
		post_receive(other, 1, SIZE, 64);
		start(one, IBV_WR_SEND, 2, 0, 64, 0, IBV_SEND_SIGNALED);
		if (careful)
			completions(2);
		memset(from, 0xee, 64);
		if (!careful)
			completions(2);
		check_all(to, round, 64, "the buffer was read after ibv_post_send had returned", round);
	}
}

/* Sends from a buffer that is gone when the function returns. */
static __attribute__((noinline)) struct ibv_mr *send_from_stack(struct ibv_qp *qp, int round, struct ibv_mr *kept)
{
	unsigned char message[64];
	unsigned char *text = careful ? from : message;
	memset(text, round, 64);
	struct ibv_mr *own = careful ? mr : ibv_reg_mr(pd, message, sizeof(message), IBV_ACCESS_LOCAL_WRITE);
	CLAIM(own && !kept);
	struct ibv_sge sge = {.addr = (uintptr_t)text, .length = 64, .lkey = own->lkey};
	struct ibv_send_wr wr = {.wr_id = 2, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
	post(qp, &wr);
	return own;
}

static __attribute__((noinline)) void use_stack(void)
{
	volatile unsigned char other_things[4096];
	for (unsigned i = 0; i < sizeof(other_things); i++)
		other_things[i] = 0xee;
}

static void stack_buffer(void)
{
	struct ibv_qp *other, *one = pair(IBV_QPT_RC, &other);
	for (int round = 1; round <= ROUNDS; round++) {
		post_receive(other, 1, SIZE, 64);
		struct ibv_mr *own = send_from_stack(one, round, NULL);
		use_stack();
		completions(2);
		check_all(to, round, 64, "the buffer was read after its function had returned", round);
		if (own != mr)
			FAILS(ibv_dereg_mr(own), 0);
	}
}

/* Takes completions of two queue pairs for those of one. */
static void order_across_queue_pairs(void)
{
	struct ibv_qp *other, *one = pair(IBV_QPT_RC, &other), *fourth, *third = pair(IBV_QPT_RC, &fourth);
	for (int round = 1; round <= ROUNDS; round++) {
		start(one, IBV_WR_RDMA_WRITE, 1, 0, 8, SIZE, IBV_SEND_SIGNALED);
		start(third, IBV_WR_RDMA_WRITE, 2, 0, 8, SIZE, IBV_SEND_SIGNALED);
		uint64_t first = wr_id_of(completion()), second = wr_id_of(completion());
		if (!careful && (first != 1 || second != 2))
			met("the later of two requests completed first, on another queue pair", round);
		CLAIM(first + second == 3);
	}
}

/* Writes over one queue pair, tells of it over another. */
static void told_by_another_queue_pair(void)
{
	struct ibv_qp *other, *one = pair(IBV_QPT_RC, &other), *fourth, *third = pair(IBV_QPT_RC, &fourth);
	for (int round = 1; round <= ROUNDS; round++) {
		memset(from, round, 64);
		post_receive(fourth, 9, 2 * SIZE, 64);
		start(one, IBV_WR_RDMA_WRITE, 1, 0, 64, SIZE, IBV_SEND_SIGNALED);
		int left = 3;
		if (careful) {
			CLAIM(wr_id_of(completion()) == 1);
			left--;
		}
		start(third, IBV_WR_SEND, 2, 0, 8, 0, IBV_SEND_SIGNALED);
		while (left--)
			if (wr_id_of(completion()) == 9)
				check_all(to, round, 64, "a message of another queue pair came before the WRITE", round);
	}
}

/* Takes one poll for all that there is. */
static void one_poll_is_all(void)
{
	struct ibv_qp *other, *one = pair(IBV_QPT_RC, &other);
	for (int round = 1; round <= ROUNDS; round++) {
		for (int i = 0; i < 4; i++)
			start(one, IBV_WR_RDMA_WRITE, i, 0, 8, SIZE, IBV_SEND_SIGNALED);
		struct ibv_wc wc[8];
		int count = 0;
		time_t end = time(NULL) + 60;
		/* Long enough for four WRITEs of eight bytes, the author thought. */
		usleep(20000);
		do {
			int more = ibv_poll_cq(cq, 8, wc);
			CLAIM(more >= 0 && time(NULL) <= end);
			count += more;
		} while (careful ? count < 4 : count == 0);
		if (count != 4)
			met("a poll did not return all completions", round);
	}
}

static int event_comes(int milliseconds)
{
	struct pollfd waits = {.fd = channel->fd, .events = POLLIN};
	if (poll(&waits, 1, milliseconds) != 1)
		return 0;
	struct ibv_cq *of;
	void *context;
	CLAIM(ibv_get_cq_event(channel, &of, &context) == 0 && of == cq);
	ibv_ack_cq_events(of, 1);
	return 1;
}

/* Takes an event for a completion. */
static void one_event_is_one_completion(void)
{
	struct ibv_qp *other, *one = pair(IBV_QPT_RC, &other);
	for (int round = 1; round <= ROUNDS; round++) {
		struct ibv_wc wc;
		FAILS(ibv_req_notify_cq(cq, 0), 0);
		start(one, IBV_WR_RDMA_WRITE, 1, 0, 8, SIZE, IBV_SEND_SIGNALED);
		int count = 0;
		while (!count) {
			CLAIM(event_comes(60000));
			if (careful)
				FAILS(ibv_req_notify_cq(cq, 0), 0);
			count = ibv_poll_cq(cq, 1, &wc);
			if (!count && !careful)
				met("an event came without a completion", round);
		}
		CLAIM(wr_id_of(wc) == 1);
		/* What the last arming made. */
		while (careful && event_comes(0))
			;
	}
}

/* Polls, arms, sleeps, without a poll between the last two. */
static void arms_without_polling_again(void)
{
	struct ibv_qp *other, *one = pair(IBV_QPT_RC, &other), *fourth, *third = pair(IBV_QPT_RC, &fourth);
	for (int round = 1; round <= ROUNDS; round++) {
		int left = 4, count;
		struct ibv_wc wc[4];
		for (int i = 0; i < 2; i++) {
			start(one, IBV_WR_RDMA_WRITE, 1, 0, 8, SIZE, IBV_SEND_SIGNALED);
			start(third, IBV_WR_RDMA_WRITE, 2, 0, 8, SIZE, IBV_SEND_SIGNALED);
		}
		usleep(20000);
		while (left) {
			while (left && (count = ibv_poll_cq(cq, 4, wc)) > 0)
				left -= count;
			if (!left)
				break;
			FAILS(ibv_req_notify_cq(cq, 0), 0);
			while (careful && left && (count = ibv_poll_cq(cq, 4, wc)) > 0)
				left -= count;
			if (left && !event_comes(1000))
				met("a completion came between the last poll and the arming, without an event", round);
		}
		while (event_comes(0))
			;
	}
}

/* Expects datagrams of two senders in the order in which they were sent. */
static void order_of_datagrams(void)
{
	struct ibv_qp *second, *first = pair(IBV_QPT_UD, &second), *other, *receiver = pair(IBV_QPT_UD, &other);
	struct ibv_ah_attr address = own_address();
	struct ibv_ah *ah = ibv_create_ah(pd, &address);
	CLAIM(ah);
	for (int round = 1; round <= ROUNDS; round++) {
		post_receive(receiver, 11, SIZE, 128);
		post_receive(receiver, 12, SIZE + 128, 128);
		for (int i = 0; i < 2; i++) {
			from[i] = 1 + i;
			struct ibv_sge sge = piece(i, 1);
			struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
			wr.wr.ud.ah = ah;
			wr.wr.ud.remote_qpn = receiver->qp_num;
			wr.wr.ud.remote_qkey = 7;
			post(i ? second : first, &wr);
		}
		CLAIM(completions(4) == 23);
		/* Behind 40 bytes of GRH. */
		if (!careful && (to[40] != 1 || to[128 + 40] != 2))
			met("the later datagram came first", round);
		CLAIM(to[40] + to[128 + 40] == 3);
	}
	FAILS(ibv_destroy_ah(ah), 0);
}

int main(int count, char **arguments)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} programs[] = {
		{"last_byte_of_write", last_byte_of_write},
		{"flag_after_data", flag_after_data},
		{"read_before_completion", read_before_completion},
		{"receive_before_completion", receive_before_completion},
		{"buffer_reused", buffer_reused},
		{"stack_buffer", stack_buffer},
		{"order_across_queue_pairs", order_across_queue_pairs},
		{"told_by_another_queue_pair", told_by_another_queue_pair},
		{"one_poll_is_all", one_poll_is_all},
		{"one_event_is_one_completion", one_event_is_one_completion},
		{"arms_without_polling_again", arms_without_polling_again},
		{"order_of_datagrams", order_of_datagrams},
	};
	careful = count > 2 && !strcmp(arguments[2], "careful");
	for (unsigned i = 0; i < sizeof(programs) / sizeof(*programs); i++) {
		if (count < 2) {
			puts(programs[i].name);
		} else if (!strcmp(programs[i].name, arguments[1])) {
			open_device();
			programs[i].run();
			return 0;
		}
	}
	return count < 2 ? 0 : 2;
}
