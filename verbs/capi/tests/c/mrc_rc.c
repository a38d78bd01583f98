/*
 * RC queue pairs that write, with immediate data too, by ibv_post_send and by ibv_wr_*, and then send: a program that
 * knows nothing of MRC.
 */
#include "expect.h"

enum { ROUNDS = 64 };

static void write_rounds(struct ibv_qp *one, struct ibv_qp *other, unsigned length)
{
	for (unsigned round = 0; round < ROUNDS; round++) {
		int has_imm = round % 4 == 3;
		for (unsigned word = 0; word < length / 8; word++)
			memory[word] = word * 77 + round + length;
		if (has_imm)
			post_receive(other, round, 0, 0);
		struct ibv_sge sge = piece(0, length);
		struct ibv_send_wr wr = {.wr_id = round,
					 .sg_list = &sge,
					 .num_sge = 1,
					 .opcode = has_imm ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE,
					 .imm_data = round,
					 .send_flags = IBV_SEND_SIGNALED,
					 .wr.rdma = {(uintptr_t)(memory + 4096), mr->rkey}};
		post(one, &wr);
		CLAIM(completions(has_imm ? 2 : 1) == (has_imm ? round : 0));
		CLAIM(memcmp(memory, memory + 4096, length) == 0);
	}
}

/* What MRC lacks comes behind what was written, and the queue pair goes on. */
static void send_and_go_on(struct ibv_qp *one, struct ibv_qp *other)
{
	post_receive(other, 5, 8192 * 2, 64);
	memory[0] = 0x1234567890;
	struct ibv_sge sge = piece(0, 64);
	struct ibv_send_wr send = {.wr_id = 1,
				   .sg_list = &sge,
				   .num_sge = 1,
				   .opcode = IBV_WR_SEND,
				   .send_flags = IBV_SEND_SIGNALED};
	post(one, &send);
	CLAIM(completions(2) == 5);
	CLAIM(memory[2048] == 0x1234567890);
	struct ibv_sge whole = piece(0, 8);
	CLAIM(outcome(one, IBV_WR_RDMA_READ, whole, (uintptr_t)(memory + 2048), mr->rkey) == IBV_WC_SUCCESS);
}

static void by_extended_calls(void)
{
	struct ibv_qp_init_attr_ex wants = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 20, .max_recv_wr = 20, .max_send_sge = 2, .max_recv_sge = 2},
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND,
	};
	struct ibv_qp *one = ibv_create_qp_ex(ctx, &wants), *other = ibv_create_qp_ex(ctx, &wants);
	CLAIM(one && other);
	init(one);
	init(other);
	connect_to(one, other->qp_num);
	connect_to(other, one->qp_num);
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(one);
	CLAIM(ex);
	for (unsigned round = 0; round < 8; round++) {
		memory[0] = round + 1;
		ibv_wr_start(ex);
		for (unsigned part = 0; part < 2; part++) {
			ex->wr_id = part;
			ex->wr_flags = part ? IBV_SEND_SIGNALED : 0;
			ibv_wr_rdma_write(ex, mr->rkey, (uintptr_t)(memory + 4096 + part));
			ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)memory, 8);
		}
		FAILS(ibv_wr_complete(ex), 0);
		completions(1);
		CLAIM(memory[4096] == round + 1 && memory[4097] == round + 1);
	}
	post_receive(other, 9, 8192 * 2, 64);
	ibv_wr_start(ex);
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(ex);
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)memory, 8);
	FAILS(ibv_wr_complete(ex), 0);
	CLAIM(completions(2) == 9);
	FAILS(ibv_destroy_qp(one), 0);
	FAILS(ibv_destroy_qp(other), 0);
}

int main(void)
{
	open_device();
	struct ibv_qp *other, *one = pair(IBV_QPT_RC, &other);
	write_rounds(one, other, 8);
	write_rounds(one, other, 16384);
	send_and_go_on(one, other);
	/* A new connection begins anew. */
	reconnect(one, other);
	FAILS(ibv_destroy_qp(one), 0);
	FAILS(ibv_destroy_qp(other), 0);
	by_extended_calls();
	return 0;
}
