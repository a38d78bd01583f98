/* Memory of send requests that are complete: the program cannot know that before it polls. */
#include "ends.h"

enum { BYTES = 64 };

struct part {
	char *buffer;
	struct ibv_mr *mr;
	struct ibv_sge sge;
};

static struct part make_part(struct ends *ends)
{
	struct part part = {.buffer = calloc(1, BYTES)};
	MUST(part.buffer);
	MUST(part.mr = ibv_reg_mr(ends->pd, part.buffer, BYTES, IBV_ACCESS_LOCAL_WRITE));
	part.sge = (struct ibv_sge){.addr = (uintptr_t)part.buffer, .length = 8, .lkey = part.mr->lkey};
	return part;
}

static struct ibv_send_wr send_of(struct part *part)
{
	return (struct ibv_send_wr){
		.sg_list = &part->sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
}

/* The message has arrived, and its completion is or will be in the queue of sends. */
static void arrives(struct ends *ends)
{
	poll_one(ends->recv_cq);
#ifdef FIXED
	poll_one(ends->send_cq);
#endif
}

static void is_polled(struct ibv_cq *cq)
{
	(void)cq;
#ifndef FIXED
	poll_one(cq);
#endif
}

int main(void)
{
	struct ends ends;
	struct ibv_send_wr *bad;
	open_device(&ends);
	make_ends(&ends, 8);
	connect_ends(&ends);
	struct part changed = make_part(&ends), ended = make_part(&ends), freed = make_part(&ends);
	struct ibv_send_wr of_changed = send_of(&changed), of_ended = send_of(&ended), of_freed = send_of(&freed);

	MUST(!post_receive(&ends, ends.there));
	MUST(!ibv_post_send(ends.here, &of_changed, &bad)); // BUG: send-buffer-changed
	arrives(&ends);
	changed.buffer[3] = 1;
	is_polled(ends.send_cq);

	MUST(!post_receive(&ends, ends.there));
	MUST(!ibv_post_send(ends.here, &of_ended, &bad));
	arrives(&ends);
	MUST(!ibv_dereg_mr(ended.mr)); // BUG: deregistered-while-in-use
	is_polled(ends.send_cq);

	MUST(!post_receive(&ends, ends.there));
	MUST(!ibv_post_send(ends.here, &of_freed, &bad));
	arrives(&ends);
	free(freed.buffer); // BUG: freed-while-in-use
	is_polled(ends.send_cq);

	MUST(!ibv_dereg_mr(changed.mr) && !ibv_dereg_mr(freed.mr));
	free(changed.buffer);
	free(ended.buffer);
	close_device(&ends);
	return 0;
}
