/* Two processes write to one place of a third one at the same time. The plan of the test loses the last packet of the
 * first WRITE, so that the second one comes before the first has ended. */
#include "ends.h"

#define LENGTH 2048 /* Eight packets. */

struct address {
	uint32_t number, rkey;
	uint64_t memory;
};

static struct ends ends;

static struct ibv_qp *new_qp(void)
{
	struct ibv_qp *qp = make_qp(&ends, IBV_QPT_RC, ends.send_cq); // BUG: remote-race
	MUST(!to_init(qp));
	return qp;
}

static void connect_to(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr rtr = rtr_attributes(qp, peer), rts = rts_attributes();
	rtr.path_mtu = IBV_MTU_256;
	rts.timeout = 22; /* 17 s: the first WRITE goes on when the NAK of its successor asks for that. */
	MUST(!ibv_modify_qp(qp, &rtr, RTR_MASK) && !ibv_modify_qp(qp, &rts, RTS_MASK));
}

static void put(int to, const void *bytes, size_t count)
{
	MUST(write(to, bytes, count) == (ssize_t)count);
}

static void get(int from, void *bytes, size_t count)
{
	MUST(read(from, bytes, count) == (ssize_t)count);
}

static void write_to(struct ibv_qp *qp, const struct address *peer, int offset)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = request(&ends, &sge, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED), *bad;
	sge.length = LENGTH;
	wr.wr.rdma.remote_addr = peer->memory + offset;
	wr.wr.rdma.rkey = peer->rkey;
	MUST(!ibv_post_send(qp, &wr, &bad));
}

static void open_all(void)
{
	open_device(&ends);
	MUST(ends.send_cq = ibv_create_cq(ends.context, 8, NULL, NULL, 0));
}

/* The first writer posts on queue pair 0 of its process, the second one on queue pair 1. */
static int writer(int is_second, int from, int to, int told, int tell)
{
	struct address own = {0}, peer;
	char word = 0;
	open_all();
	struct ibv_qp *unused = is_second ? make_qp(&ends, IBV_QPT_RC, ends.send_cq) : NULL;
	ends.here = new_qp();
	own.number = ends.here->qp_num;
	put(to, &own, sizeof(own));
	get(from, &peer, sizeof(peer));
	connect_to(ends.here, peer.number);
	put(to, &word, 1);
	get(from, &word, 1); /* All ends are in RTS. */
	if (is_second) {
		get(told, &word, 1);
		write_to(ends.here, &peer, 1024);
		poll_one(ends.send_cq);
		put(tell, &word, 1);
	} else {
		write_to(ends.here, &peer, 0);
#ifdef FIXED
		write_to(ends.here, &peer, 0);
		poll_one(ends.send_cq);
		poll_one(ends.send_cq);
		put(tell, &word, 1);
#endif
		get(told, &word, 1);
#ifndef FIXED
		write_to(ends.here, &peer, 0);
		poll_one(ends.send_cq);
		poll_one(ends.send_cq);
#endif
	}
	put(to, &word, 1);
	if (unused)
		MUST(!ibv_destroy_qp(unused));
	close_device(&ends);
	return 0;
}

#ifndef FIXED
/* Waits until all packets before the lost one are there: the expected PSN is that of the lost one, which is the eighth. */
static void await_begin(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attributes = {0};
	while (attributes.rq_psn != 7)
		MUST(!ibv_query_qp(qp, &attributes, IBV_QP_RQ_PSN, &init));
}
#endif

int main(void)
{
	int up[2][2], down[2][2], across[2][2];
	pid_t children[2];
	for (int k = 0; k < 2; k++)
		MUST(!pipe(up[k]) && !pipe(down[k]) && !pipe(across[k]));
	for (int k = 0; k < 2; k++) {
		MUST((children[k] = fork()) >= 0);
		if (!children[k])
			return writer(k, down[k][0], up[k][1], across[k][0], across[1 - k][1]);
	}
	open_all();
	struct ibv_qp *qps[2] = {new_qp(), new_qp()};
	for (int k = 0; k < 2; k++) {
		struct address own = {qps[k]->qp_num, ends.mr->rkey, (uintptr_t)memory}, peer;
		get(up[k][0], &peer, sizeof(peer));
		connect_to(qps[k], peer.number);
		put(down[k][1], &own, sizeof(own));
	}
	char word = 0;
	for (int round = 0; round < 2; round++) {
		for (int k = 0; k < 2; k++)
			get(up[k][0], &word, 1);
		for (int k = 0; k < 2 && !round; k++)
			put(down[k][1], &word, 1);
#ifndef FIXED
		if (!round) {
			await_begin(qps[0]);
			put(across[1][1], &word, 1);
		}
#endif
	}
	for (int k = 0; k < 2; k++) {
		int status;
		MUST(!ibv_destroy_qp(qps[k]));
		MUST(waitpid(children[k], &status, 0) == children[k] && status == 0);
	}
	close_device(&ends);
	return 0;
}
