/* However a program polls, it finds every completion that is there: by ibv_poll_cq, by batches of ibv_start_poll, or by
 * staying in ibv_next_poll until the last one. */
#include "expect.h"

enum { REQUESTS = 18 };

static struct ibv_cq_ex *extended;

static int by_poll_cq(int most)
{
	struct ibv_wc wc[REQUESTS];
	int found = ibv_poll_cq(ibv_cq_ex_to_cq(extended), most, wc);
	CLAIM(found >= 0);
	return found;
}

static int one_by_one(void)
{
	return by_poll_cq(1);
}

static int many(void)
{
	return by_poll_cq(REQUESTS);
}

/* A batch for each completion. */
static int short_batch(void)
{
	struct ibv_poll_cq_attr attr = {0};
	int none = ibv_start_poll(extended, &attr);
	CLAIM(none == 0 || none == ENOENT);
	if (none)
		return 0;
	CLAIM(extended->status == IBV_WC_SUCCESS);
	ibv_end_poll(extended);
	return 1;
}

/* One batch for all: a look at the queue, again and again, without an end. */
static int is_inside;
static int endless_batch(void)
{
	struct ibv_poll_cq_attr attr = {0};
	int none = is_inside ? ibv_next_poll(extended) : ibv_start_poll(extended, &attr);
	CLAIM(none == 0 || none == ENOENT);
	if (!none)
		is_inside = 1;
	return !none;
}

int main(void)
{
	static int (*const ways[])(void) = {one_by_one, many, short_batch, endless_batch};
	open_device();
	for (unsigned way = 0; way < sizeof(ways) / sizeof(ways[0]); way++) {
		struct ibv_cq_init_attr_ex wants = {.cqe = 64};
		CLAIM((extended = ibv_create_cq_ex(ctx, &wants)));
		struct ibv_qp_init_attr init_attr = qp_wants(IBV_QPT_RC);
		init_attr.send_cq = init_attr.recv_cq = ibv_cq_ex_to_cq(extended);
		struct ibv_qp *one = ibv_create_qp(pd, &init_attr), *other = ibv_create_qp(pd, &init_attr);
		CLAIM(one && other);
		init(one);
		init(other);
		connect_to(one, other->qp_num);
		connect_to(other, one->qp_num);
		struct ibv_sge sge = piece(0, 8);
		struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
		for (int k = 0; k < REQUESTS; k++) {
			post_receive(other, k, 1024, 64);
			post(one, &wr);
		}
		time_t end = time(NULL) + 60;
		for (int found = 0; found < 2 * REQUESTS; found += ways[way]())
			CLAIM(time(NULL) <= end);
		if (is_inside)
			ibv_end_poll(extended);
		FAILS(ibv_destroy_qp(one), 0);
		FAILS(ibv_destroy_qp(other), 0);
		FAILS(ibv_destroy_cq(ibv_cq_ex_to_cq(extended)), 0);
	}
	FAILS(ibv_close_device(ctx), 0);
	return 0;
}
