/* Calls that the rules of tests/call_faults.rs make fail: each as its manual page says, and at its ordinal. */
#include "expect.h"

static struct ibv_qp *queue_pair(void)
{
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	struct ibv_qp *qp = ibv_create_qp(pd, &wants);
	CLAIM(qp);
	init(qp);
	return qp;
}

static long milliseconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int main(void)
{
	open_device();
	/* The first was that of open_device. */
	REFUSED(ibv_reg_mr(pd, memory, 8, 0), ENOSPC);
	struct ibv_mr *third = ibv_reg_mr(pd, memory, 8, 0);
	CLAIM(third);
	FAILS(ibv_dereg_mr(third), EBUSY);
	FAILS(ibv_dereg_mr(third), 0);

	struct ibv_qp *one = queue_pair(), *other = queue_pair();
	connect_to(one, other->qp_num);
	connect_to(other, one->qp_num);
	struct ibv_sge sge = piece(0, 8);
	struct ibv_recv_wr second_recv = {.wr_id = 2, .sg_list = &sge, .num_sge = 1};
	struct ibv_recv_wr recv = {.wr_id = 1, .next = &second_recv, .sg_list = &sge, .num_sge = 1}, *bad_recv = NULL;
	FAILS(ibv_post_recv(other, &recv, &bad_recv), ENOMEM);
	CLAIM(bad_recv == &recv);
	FAILS(ibv_post_recv(other, &recv, &bad_recv), 0);
	struct ibv_send_wr send = {.wr_id = 3, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad_send = NULL;
	/* The rule is about the second request of the queue pair of ordinal 0. */
	FAILS(ibv_post_send(one, &send, &bad_send), 0);
	FAILS(ibv_post_send(one, &send, &bad_send), EIO);
	CLAIM(bad_send == &send && errno == EIO);
	FAILS(ibv_post_send(one, &send, &bad_send), 0);
	/* Polls that find nothing do not count: the first completion comes, and the next poll fails. */
	struct ibv_wc first = completion(), wc;
	CLAIM(first.status == IBV_WC_SUCCESS);
	CLAIM(ibv_poll_cq(cq, 1, &wc) < 0);
	completions(3);
	CLAIM(ibv_poll_cq(cq, 1, &wc) == 0);

	FAILS(ibv_query_gid(ctx, 1, 0, &own_gid), -1);
	long begin = milliseconds();
	FAILS(ibv_req_notify_cq(cq, 0), 0);
	CLAIM(milliseconds() - begin >= 50);
	FAILS(ibv_destroy_qp(one), EBUSY);
	FAILS(ibv_destroy_qp(one), EBUSY);
	FAILS(ibv_destroy_qp(one), 0);
	/* `other`, `mr`, `cq`, `channel`, `pd` and `ctx` are left: the report names them. */
	return 0;
}
