/* The payload is on the stack of a function that returns before the request is complete. */
#include "ends.h"

static struct ibv_mr *stack;

__attribute__((noinline)) static void send_local(struct ends *ends, struct ibv_mr *mr)
{
	char message[64];
	memset(message, 7, sizeof(message));
	struct ibv_sge sge = {.addr = (uintptr_t)message, .length = sizeof(message), .lkey = mr->lkey};
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
#ifdef FIXED
	wr.send_flags |= IBV_SEND_INLINE;
#endif
	MUST(!ibv_post_send(ends->here, &wr, &bad)); // BUG: send-buffer-changed
}

__attribute__((noinline)) static void use_stack(void)
{
	volatile char other[4096];
	for (size_t k = 0; k < sizeof(other); k++)
		other[k] = 9;
}

int main(void)
{
	struct ends ends;
	char here;
	open_device(&ends);
	MUST(ends.send_cq = ibv_create_cq(ends.context, 8, NULL, NULL, 0));
	MUST(ends.recv_cq = ibv_create_cq(ends.context, 64, NULL, NULL, 0));
	struct ibv_qp_init_attr wants = {
		.send_cq = ends.send_cq,
		.recv_cq = ends.send_cq,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 64},
		.qp_type = IBV_QPT_RC,
	};
	MUST(ends.here = ibv_create_qp(ends.pd, &wants));
	ends.there = make_qp(&ends, IBV_QPT_RC, ends.recv_cq);
	connect_ends(&ends);
	MUST(stack = ibv_reg_mr(ends.pd, (void *)((uintptr_t)&here - 8192), 8192, IBV_ACCESS_LOCAL_WRITE));
	send_local(&ends, stack);
	use_stack();
	struct ibv_sge sge = {.addr = (uintptr_t)memory, .length = 64, .lkey = ends.mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
	MUST(!ibv_post_recv(ends.there, &wr, &bad));
	poll_one(ends.send_cq);
	poll_one(ends.recv_cq);
	MUST(!ibv_dereg_mr(stack));
	close_device(&ends);
	return 0;
}
