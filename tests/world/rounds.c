/* Rounds of SENDs between two queue pairs of one process. The words of the command line are what a program may do
 * to be slower: "each" posts requests one by one, "copied" not inline, "late" posts receives when messages have come,
 * "registers" registers memory in each round, "waits" waits for each request before it posts the next. "computes"
 * says that each round takes 100 us. */
#include "../check/ends.h"

#include <stdbool.h>

#include "../../verbs/capi/include/pumice/world.h"

enum { ROUNDS = 20, REQUESTS = 4, BYTES = 8 };

static bool has(char **words, const char *word)
{
	for (; *words; words++)
		if (!strcmp(*words, word))
			return true;
	return false;
}

static void post_list(struct ends *ends, int count, int flags)
{
	struct ibv_sge sge[REQUESTS];
	struct ibv_send_wr wr[REQUESTS], *bad;
	for (int k = 0; k < count; k++) {
		wr[k] = request(ends, &sge[k], IBV_WR_SEND, IBV_SEND_SIGNALED | flags);
		wr[k].next = k + 1 < count ? &wr[k + 1] : NULL;
	}
	MUST(!ibv_post_send(ends->here, wr, &bad));
}

static void wait_for(struct ibv_cq *cq, int count)
{
	for (; count; count--)
		MUST(poll_one(cq).status == IBV_WC_SUCCESS);
}

static void post_receives(struct ends *ends)
{
	for (int k = 0; k < REQUESTS; k++)
		MUST(!post_receive(ends, ends->there));
}

static void run_round(struct ends *ends, char **words)
{
	int flags = has(words, "copied") ? 0 : IBV_SEND_INLINE;
	bool waits = has(words, "waits"), is_late = has(words, "late");
	struct ibv_wc wc;
	if (!is_late)
		post_receives(ends);
	if (has(words, "registers")) {
		struct ibv_mr *mr = ibv_reg_mr(ends->pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
		MUST(mr && !ibv_dereg_mr(mr));
	}
	if (has(words, "each") || waits) {
		for (int k = 0; k < REQUESTS; k++) {
			post_list(ends, 1, flags);
			if (waits)
				wait_for(ends->send_cq, 1);
		}
	} else {
		post_list(ends, REQUESTS, flags);
	}
	if (is_late) {
		/* The messages come, and go back. */
		for (int k = 0; k < REQUESTS; k++)
			MUST(!ibv_poll_cq(ends->recv_cq, 1, &wc));
		post_receives(ends);
	}
	if (!waits)
		wait_for(ends->send_cq, REQUESTS);
	wait_for(ends->recv_cq, REQUESTS);
	if (has(words, "computes"))
		PUMICE_COMPUTE(100000);
}

int main(int count, char **words)
{
	struct ends ends;
	(void)count;
	open_device(&ends);
	MUST(ends.channel = ibv_create_comp_channel(ends.context));
	MUST(ends.send_cq = ibv_create_cq(ends.context, 64, NULL, ends.channel, 0));
	MUST(ends.recv_cq = ibv_create_cq(ends.context, 64, NULL, NULL, 0));
	struct ibv_qp_init_attr wants = {
		.send_cq = ends.send_cq,
		.recv_cq = ends.recv_cq,
		.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 64},
		.qp_type = IBV_QPT_RC,
	};
	MUST(ends.here = ibv_create_qp(ends.pd, &wants));
	MUST(ends.there = ibv_create_qp(ends.pd, &wants));
	connect_ends(&ends);
	for (int number = 0; number < ROUNDS; number++)
		run_round(&ends, words + 1);
	return 0;
}
