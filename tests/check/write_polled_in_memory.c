/* Two processes answer each other's WRITEs as soon as the last byte has changed. */
#include "ends.h"

#define LENGTH 256
#define TURNS 200

struct address {
	uint32_t number, rkey;
	uint64_t memory;
};

static void exchange(int to, int from, const struct address *own, struct address *peer)
{
	MUST(write(to, own, sizeof(*own)) == sizeof(*own));
	MUST(read(from, peer, sizeof(*peer)) == sizeof(*peer));
}

static void answer(struct ends *ends, const struct address *peer, int turn)
{
	memory[LENGTH - 1] = (char)turn;
	struct ibv_sge sge;
#ifdef FIXED
	struct ibv_send_wr wr = request(ends, &sge, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_SEND_SIGNALED), *bad;
#else
	struct ibv_send_wr wr = request(ends, &sge, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED), *bad;
#endif
	sge.length = LENGTH;
	wr.wr.rdma.remote_addr = peer->memory + 1024;
	wr.wr.rdma.rkey = peer->rkey;
	MUST(!ibv_post_send(ends->here, &wr, &bad)); // BUG: write-polled-in-memory
	poll_one(ends->send_cq);
}

static void wait_for(struct ends *ends, int turn)
{
#ifdef FIXED
	poll_one(ends->recv_cq);
	MUST(!post_receive(ends, ends->here));
	(void)turn;
#else
	volatile char *last = memory + 1024 + LENGTH - 1;
	while (*last != (char)turn)
		;
	(void)ends;
#endif
}

int main(void)
{
	int there[2], back[2];
	MUST(!pipe(there) && !pipe(back));
	pid_t child = fork();
	MUST(child >= 0);
	int to = child ? there[1] : back[1], from = child ? back[0] : there[0];
	struct ends ends;
	open_device(&ends);
	MUST(ends.send_cq = ibv_create_cq(ends.context, 8, NULL, NULL, 0));
	MUST(ends.recv_cq = ibv_create_cq(ends.context, 8, NULL, NULL, 0));
	struct ibv_qp_init_attr wants = {
		.send_cq = ends.send_cq,
		.recv_cq = ends.recv_cq,
		.cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
	MUST(ends.here = ibv_create_qp(ends.pd, &wants));
	MUST(!to_init(ends.here));
#ifdef FIXED
	MUST(!post_receive(&ends, ends.here) && !post_receive(&ends, ends.here));
#endif
	struct address own = {ends.here->qp_num, ends.mr->rkey, (uintptr_t)memory}, peer;
	exchange(to, from, &own, &peer);
	MUST(!to_rtr(ends.here, peer.number) && !to_rts(ends.here));
	exchange(to, from, &own, &peer); /* Both are in RTS. */
	for (int turn = 1; turn <= TURNS; turn++) {
		if (child)
			answer(&ends, &peer, turn);
		wait_for(&ends, turn);
		if (!child)
			answer(&ends, &peer, turn);
	}
	exchange(to, from, &own, &peer); /* Nothing is under way. */
	close_device(&ends);
	int status = 0;
	if (child)
		MUST(waitpid(child, &status, 0) == child);
	return status != 0;
}
