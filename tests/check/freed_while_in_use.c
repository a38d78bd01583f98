/* Buffers that go while the peer has no receive yet, so that their requests are under way. */
#include "ends.h"

enum { BYTES = 64, MORE = 1 << 20 };

static struct ibv_mr *send_from(struct ends *ends, char *buffer)
{
	struct ibv_mr *mr = ibv_reg_mr(ends->pd, buffer, BYTES, IBV_ACCESS_LOCAL_WRITE);
	MUST(mr);
	struct ibv_sge sge = {.addr = (uintptr_t)buffer, .length = 8, .lkey = mr->lkey};
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
	MUST(!ibv_post_send(ends->here, &wr, &bad));
	return mr;
}

int main(void)
{
	struct ends ends;
	open_device(&ends);
	make_ends(&ends, 8);
	connect_ends(&ends);
	char *one = malloc(BYTES), *other = malloc(BYTES), *behind = malloc(BYTES);
	MUST(one && other && behind);
	memset(one, 1, BYTES);
	memset(other, 2, BYTES);
	struct ibv_mr *of_one = send_from(&ends, one), *of_other = send_from(&ends, other);
	free(behind);
#ifndef FIXED
	free(one); // BUG: freed-while-in-use
	char *larger = realloc(other, MORE); // BUG: freed-while-in-use
#endif
	for (int k = 0; k < 2; k++) {
		MUST(!post_receive(&ends, ends.there));
		poll_one(ends.send_cq);
		poll_one(ends.recv_cq);
	}
	MUST(!ibv_dereg_mr(of_one) && !ibv_dereg_mr(of_other));
#ifdef FIXED
	free(one);
	char *larger = realloc(other, MORE);
#endif
	MUST(larger);
	free(larger);
	close_device(&ends);
	return 0;
}
