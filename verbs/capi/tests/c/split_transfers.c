/* Transfers as collective libraries make them (NCCL's net_ib): the receiver writes where data may go into a list of the sender's; the sender
 * writes the data in parts over two queue pairs into regions with relaxed ordering, and ends each part with an immediate; the receiver
 * waits for all immediates, and then reads a word over a queue pair of its own that leads back to it. Nothing here is wrong: the data is
 * right with every schedule. */
#include "expect.h"

enum { LANES = 2, PART = 8192, TURNS = 40, TARGET = 16384, LIST = 49152, WORD = 49152 + 64 };

int main(void)
{
	open_device();
	unsigned char *bytes = (unsigned char *)memory;
	struct ibv_mr *relaxed = ibv_reg_mr(pd, memory, sizeof(memory), RIGHTS | IBV_ACCESS_RELAXED_ORDERING);
	CLAIM(relaxed);
	struct ibv_qp *sends[LANES], *receives[LANES], *back, *flush = pair(IBV_QPT_RC, &back);
	for (int lane = 0; lane < LANES; lane++)
		sends[lane] = pair(IBV_QPT_RC, &receives[lane]);
	for (uint64_t turn = 1; turn <= TURNS; turn++) {
		/* The receiver is ready: its word is a flag of 8 bytes, and each turn waits for the one before. */
		for (int lane = 0; lane < LANES; lane++)
			post_receive(receives[lane], 100 + lane, 0, 0);
		*(volatile uint64_t *)(bytes + WORD) = turn;
		struct ibv_sge word = piece(WORD, 8);
		struct ibv_send_wr ready = {.wr_id = 1, .sg_list = &word, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
					    .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE};
		ready.wr.rdma.remote_addr = (uintptr_t)bytes + LIST;
		ready.wr.rdma.rkey = mr->rkey;
		post(receives[0], &ready);
		time_t end = time(NULL) + 60;
		while (*(volatile uint64_t *)(bytes + LIST) != turn)
			CLAIM(time(NULL) <= end);
		completions(1);

		memset(bytes, (int)turn, 2 * PART);
		for (int lane = 0; lane < LANES; lane++) {
			struct ibv_sge part = piece(lane * PART, PART);
			struct ibv_send_wr last = {.wr_id = 3, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .send_flags = IBV_SEND_SIGNALED};
			struct ibv_send_wr data = {.wr_id = 2, .sg_list = &part, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .next = &last};
			data.wr.rdma.remote_addr = (uintptr_t)bytes + TARGET + lane * PART;
			data.wr.rdma.rkey = relaxed->rkey;
			post(sends[lane], &data);
		}
		/* For each lane the completion of a receive and that of a send. */
		completions(2 * LANES);
		for (int i = 0; i < LANES * PART; i++)
			CLAIM(bytes[TARGET + i] == (unsigned char)turn);
		/* The device in front of the memory is done as well, where memory is that of a GPU. */
		struct ibv_sge into = piece(WORD + 64, 8);
		struct ibv_send_wr read = {.wr_id = 4, .sg_list = &into, .num_sge = 1, .opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED};
		read.wr.rdma.remote_addr = (uintptr_t)bytes + TARGET;
		read.wr.rdma.rkey = relaxed->rkey;
		post(flush, &read);
		completions(1);
		CLAIM(bytes[WORD + 64] == (unsigned char)turn);
	}
	return 0;
}
