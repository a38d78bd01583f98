/* Two processes, each with an end of a connection. The second one is a child that was forked before the device was
 * opened; both tell each other their queue pairs. */
#include "ends.h"
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>

struct side {
	struct ends ends;
	struct ibv_qp *qp;
	/* To the other process. */
	int wire;
	/* Of the parent; 0 in the child. */
	pid_t child;
};

UNUSED static void tell(struct side *side, const void *what, size_t bytes)
{
	MUST(write(side->wire, what, bytes) == (ssize_t)bytes);
}

UNUSED static void hear(struct side *side, void *what, size_t bytes)
{
	MUST(read(side->wire, what, bytes) == (ssize_t)bytes);
}

/* Forks. Both have a queue pair in INIT afterwards, whose completions all go to recv_cq, and the other's number. */
UNUSED static uint32_t two_sides(struct side *side)
{
	int wires[2];
	uint32_t number;
	memset(side, 0, sizeof(*side));
	MUST(!socketpair(AF_UNIX, SOCK_STREAM, 0, wires));
	MUST((side->child = fork()) >= 0);
	side->wire = wires[side->child == 0];
	close(wires[side->child != 0]);
	if (!side->child)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	open_device(&side->ends);
	MUST(side->ends.recv_cq = ibv_create_cq(side->ends.context, 64, NULL, NULL, 0));
	MUST(side->qp = make_qp(&side->ends, IBV_QPT_RC, side->ends.recv_cq));
	MUST(!to_init(side->qp));
	tell(side, &side->qp->qp_num, sizeof(number));
	hear(side, &number, sizeof(number));
	return number;
}

/* Brings an end to RTS; the timer never expires with timeout 0. */
UNUSED static void connect_side(struct side *side, uint32_t peer, int timeout)
{
	struct ibv_qp_attr attr = rts_attributes();
	attr.timeout = timeout;
	MUST(!to_rtr(side->qp, peer) && !ibv_modify_qp(side->qp, &attr, RTS_MASK));
}

/* Both have come here. */
UNUSED static void meet(struct side *side)
{
	char one = 1;
	tell(side, &one, 1);
	hear(side, &one, 1);
}

UNUSED static void send_one(struct side *side)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = request(&side->ends, &sge, IBV_WR_SEND, IBV_SEND_SIGNALED), *bad;
	MUST(!ibv_post_send(side->qp, &wr, &bad));
}

UNUSED static void close_side(struct side *side)
{
	MUST(!ibv_destroy_qp(side->qp) && !ibv_destroy_cq(side->ends.recv_cq));
	side->ends.recv_cq = NULL;
	MUST(!ibv_dereg_mr(side->ends.mr) && !ibv_dealloc_pd(side->ends.pd) && !ibv_close_device(side->ends.context));
	if (side->child)
		MUST(waitpid(side->child, NULL, 0) == side->child);
}
