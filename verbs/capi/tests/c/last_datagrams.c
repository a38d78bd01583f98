/* A process sends datagrams, sees all of them complete, and ends without destroying anything. They have left: the
 * process that receives gets each of them. Half of the requests make no completion of their own. */
#include "expect.h"
#include <sys/wait.h>

enum { MESSAGES = 8, QKEY = 7 };

struct peer {
	union ibv_gid gid;
	uint32_t qpn;
};

static struct ibv_qp *datagram_qp(void)
{
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_UD);
	struct ibv_qp *qp = ibv_create_qp(pd, &wants);
	CLAIM(qp);
	init(qp);
	connect_to(qp, 0);
	return qp;
}

static void send_all_and_end(int from)
{
	struct peer peer;
	CLAIM(read(from, &peer, sizeof(peer)) == sizeof(peer));
	open_device();
	struct ibv_qp *qp = datagram_qp();
	struct ibv_ah_attr to = own_address();
	to.grh.dgid = peer.gid;
	struct ibv_ah *ah = ibv_create_ah(pd, &to);
	CLAIM(ah);
	for (uint32_t number = 0; number < MESSAGES; number++) {
		struct ibv_sge sge = piece(0, 64);
		struct ibv_send_wr wr = {.sg_list = &sge,
					 .num_sge = 1,
					 .opcode = IBV_WR_SEND_WITH_IMM,
					 .imm_data = number,
					 .send_flags = number % 2 ? IBV_SEND_SIGNALED : 0,
					 .wr.ud = {.ah = ah, .remote_qpn = peer.qpn, .remote_qkey = QKEY}};
		post(qp, &wr);
		if (number % 2)
			completions(1);
	}
	_exit(0);
}

int main(void)
{
	int pipes[2];
	CLAIM(pipe(pipes) == 0);
	pid_t child = fork();
	CLAIM(child >= 0);
	if (child == 0)
		send_all_and_end(pipes[0]);
	open_device();
	struct ibv_qp *qp = datagram_qp();
	for (uint64_t number = 0; number < MESSAGES; number++)
		post_receive(qp, number, 1024 * (unsigned)number, 512);
	struct peer own = {.gid = own_gid, .qpn = qp->qp_num};
	CLAIM(write(pipes[1], &own, sizeof(own)) == sizeof(own));
	unsigned seen = 0;
	while (seen != (1u << MESSAGES) - 1) {
		struct ibv_wc wc = completion();
		CLAIM(wc.status == IBV_WC_SUCCESS && wc.imm_data < MESSAGES && !(seen & 1u << wc.imm_data));
		seen |= 1u << wc.imm_data;
	}
	int status;
	CLAIM(waitpid(child, &status, 0) == child && status == 0);
	return 0;
}
