/* A program that needs the order of SRD without knowing it: a header, and what the header announces. With FIXED
   in its environment it puts what came into order by a number. Exit code 3: it took a body for a header. */
#include "expect.h"

struct qp_attr {
	uint64_t comp_mask;
	uint32_t driver_qp_type;
	uint16_t flags;
	uint8_t sl, reserved;
	uint64_t wr_flags;
};
struct ibv_qp *create_srd(struct ibv_context *, void *, void *, uint32_t) __asm__("efadv_create_qp_ex");
enum { QKEY = 0x11111111, MESSAGES = 2 };

static struct ibv_qp *srd(void)
{
	struct ibv_qp_init_attr_ex wants = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = (enum ibv_qp_type)0xff,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};
	struct qp_attr attr = {0};
	struct ibv_qp *qp = create_srd(ctx, &wants, &attr, sizeof(attr));
	CLAIM(qp);
	struct ibv_qp_attr state = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};
	FAILS(ibv_modify_qp(qp, &state, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
	state.qp_state = IBV_QPS_RTR;
	FAILS(ibv_modify_qp(qp, &state, IBV_QP_STATE), 0);
	state.qp_state = IBV_QPS_RTS;
	FAILS(ibv_modify_qp(qp, &state, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
	return qp;
}

int main(void)
{
	open_device();
	struct ibv_ah_attr address = own_address();
	struct ibv_ah *ah = ibv_create_ah(pd, &address);
	struct ibv_qp *a = srd(), *b = srd();
	CLAIM(ah);
	for (int round = 0; round < 4; round++) {
		for (uint64_t number = 0; number < MESSAGES; number++)
			post_receive(b, number, 4096 + number * 64, 64);
		for (uint64_t number = 0; number < MESSAGES; number++) {
			memory[number] = number;
			struct ibv_sge sge = piece(number * 8, 8);
			struct ibv_send_wr wr = {
				.wr_id = 100,
				.opcode = IBV_WR_SEND,
				.send_flags = IBV_SEND_SIGNALED,
				.sg_list = &sge,
				.num_sge = 1,
				.wr.ud = {ah, b->qp_num, QKEY},
			}, *bad;
			FAILS(ibv_post_send(a, &wr, &bad), 0);
		}
		uint64_t came[MESSAGES], count = 0;
		for (int ended = 0; ended < 2 * MESSAGES; ended++) {
			struct ibv_wc wc = completion();
			CLAIM(wc.status == IBV_WC_SUCCESS);
			if (wc.opcode == IBV_WC_RECV)
				came[count++] = memory[(4096 + wc.wr_id * 64) / 8];
		}
		CLAIM(count == MESSAGES);
		uint64_t ordered[MESSAGES] = {0};
		for (uint64_t index = 0; index < count; index++)
			ordered[came[index] % MESSAGES] = came[index];
		if (getenv("FIXED"))
			memcpy(came, ordered, sizeof(came));
		for (uint64_t index = 0; index < count; index++)
			if (came[index] != index)
				return 3;
	}
	return 0;
}
