/* XRC by today's calls: ibv_open_xrcd, ibv_create_srq_ex, ibv_get_srq_num, XRC_SEND, XRC_RECV, ibv_open_qp. */
#include "xrc_kit.h"

static struct ibv_xrcd *opened_in(struct ibv_context *context, int fd, int oflags)
{
	struct ibv_xrcd_init_attr init = {.comp_mask = XRC_INIT_ATTR_FULL, .fd = fd, .oflags = oflags};
	return ibv_open_xrcd(context, &init);
}

static struct ibv_xrcd *opened(int fd, int oflags)
{
	return opened_in(ctx, fd, oflags);
}

static void domains(void)
{
	struct ibv_xrcd_init_attr init = {.comp_mask = XRC_INIT_ATTR_FULL, .fd = -1, .oflags = O_CREAT};
	for (unsigned mask = 0; mask < XRC_INIT_ATTR_FULL; mask++) {
		init.comp_mask = mask;
		REFUSED(ibv_open_xrcd(ctx, &init), EINVAL);
	}
	/* fd -1: a domain of its own each time. */
	struct ibv_xrcd *own = opened(-1, O_CREAT), *other = opened(-1, O_CREAT | O_EXCL);
	CLAIM(own && other && own != other && own->context == ctx);
	FAILS(ibv_close_xrcd(own), 0);
	FAILS(ibv_close_xrcd(other), 0);
	/* A file: O_CREAT makes it, without it there has to be one, O_EXCL refuses one. */
	int fd = new_file(), same = opened_again(fd), different = new_file();
	REFUSED(opened(fd, 0), EAGAIN);
	REFUSED(opened(fd, O_EXCL), EAGAIN);
	struct ibv_xrcd *first = opened(fd, O_CREAT | O_EXCL), *second = opened(same, 0), *third = opened(same, O_CREAT);
	CLAIM(first && second && third && first != second);
	REFUSED(opened(same, O_EXCL), EINVAL);
	REFUSED(opened(same, O_CREAT | O_EXCL), EINVAL);
	REFUSED(opened(different, 0), EAGAIN);
	REFUSED(opened(9999, O_CREAT), EBADF);
	REFUSED(opened(-2, O_CREAT), EBADF);
	REFUSED(opened(fd, O_TRUNC), EINVAL);
	/* The descriptor is not needed any more; the domain lives until the last close. */
	close(same);
	FAILS(ibv_close_xrcd(first), 0);
	FAILS(ibv_close_xrcd(second), 0);
	CLAIM((first = opened(fd, 0)));
	FAILS(ibv_close_xrcd(first), 0);
	FAILS(ibv_close_xrcd(third), 0);
	REFUSED(opened(fd, 0), EAGAIN);
	close(fd);
	close(different);
}

static struct ibv_srq *xrc_srq(struct ibv_xrcd *xrcd, struct ibv_cq *on, uint32_t *number)
{
	struct ibv_srq_init_attr_ex init = {
		.attr = {.max_wr = 16, .max_sge = 1},
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
		.pd = pd,
		.xrcd = xrcd,
		.cq = on,
	};
	struct ibv_srq *srq = ibv_create_srq_ex(ctx, &init);
	CLAIM(srq);
	FAILS(ibv_get_srq_num(srq, number), 0);
	return srq;
}

static struct ibv_qp *target(struct ibv_xrcd *xrcd)
{
	struct ibv_qp_init_attr_ex wants = {
		.qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = xrcd};
	struct ibv_qp *qp = ibv_create_qp_ex(ctx, &wants);
	CLAIM(qp && qp->qp_type == IBV_QPT_XRC_RECV && !qp->pd && !qp->srq && !qp->send_cq && !qp->recv_cq);
	return qp;
}

static struct ibv_qp *again(struct ibv_context *context, struct ibv_xrcd *xrcd, uint32_t number)
{
	struct ibv_qp_open_attr attr = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE | IBV_QP_OPEN_ATTR_CONTEXT,
		.qp_num = number,
		.xrcd = xrcd,
		.qp_context = &memory,
		.qp_type = IBV_QPT_XRC_RECV,
	};
	return ibv_open_qp(context, &attr);
}

static void request(struct ibv_qp *qp, uint64_t wr_id, uint32_t srqn, enum ibv_wr_opcode opcode, uint64_t remote)
{
	struct ibv_sge sge = piece(0, 8);
	struct ibv_send_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED}, *bad;
	wr.qp_type.xrc.remote_srqn = srqn;
	wr.wr.rdma.remote_addr = remote;
	wr.wr.rdma.rkey = mr->rkey;
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = remote;
		wr.wr.atomic.rkey = mr->rkey;
		wr.wr.atomic.compare_add = 5;
	}
	FAILS(ibv_post_send(qp, &wr, &bad), 0);
}

static struct ibv_qp *initiator(void)
{
	struct ibv_qp_init_attr_ex wants = {
		.send_cq = cq,
		.cap = {.max_send_wr = 16, .max_send_sge = 1},
		.qp_type = IBV_QPT_XRC_SEND,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(ctx, &wants);
	CLAIM(qp);
	return qp;
}

int main(void)
{
	open_device();
	domains();

	int fd = new_file();
	struct ibv_xrcd *xrcd = opened(fd, O_CREAT), *other = opened(-1, O_CREAT);
	CLAIM(xrcd && other);
	struct ibv_cq *srq_cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	uint32_t n1, n2, n3;
	struct ibv_srq *srq1 = xrc_srq(xrcd, srq_cq, &n1), *srq2 = xrc_srq(xrcd, srq_cq, &n2), *srq3 = xrc_srq(other, srq_cq, &n3);
	CLAIM(n1 && n1 != n2 && n1 != n3 && n1 <= 0xffffff);
	struct ibv_qp *receiver = target(xrcd), *sender = initiator();
	struct ibv_recv_wr none = {0}, *bad_receive;
	FAILS(ibv_post_recv(receiver, &none, &bad_receive), EINVAL);
	struct ibv_send_wr nothing = {0}, *bad_send;
	FAILS(ibv_post_send(receiver, &nothing, &bad_send), EINVAL);

	/* Who uses a domain keeps it open. */
	FAILS(ibv_close_xrcd(xrcd), EBUSY);
	FAILS(ibv_close_xrcd(other), EBUSY);
	FAILS(ibv_destroy_cq(srq_cq), EBUSY);

	/* Opening by number: in its domain, of its type. */
	struct ibv_context *second_ctx = ibv_open_device(ctx->device);
	CLAIM(second_ctx);
	REFUSED(again(ctx, other, receiver->qp_num), EINVAL);
	REFUSED(again(ctx, xrcd, sender->qp_num), EINVAL);
	REFUSED(again(ctx, xrcd, 0xfffff), EINVAL);
	struct ibv_qp_open_attr incomplete = {.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD, .qp_num = receiver->qp_num, .xrcd = xrcd};
	REFUSED(ibv_open_qp(ctx, &incomplete), EINVAL);
	/* Through another context: by the domain as that context has opened it. */
	struct ibv_xrcd *theirs = opened_in(second_ctx, fd, 0);
	CLAIM(theirs);
	close(fd);
	REFUSED(again(second_ctx, xrcd, receiver->qp_num), EINVAL);
	struct ibv_qp *shared = again(second_ctx, theirs, receiver->qp_num);
	CLAIM(shared && shared != receiver && shared->qp_num == receiver->qp_num && shared->qp_context == &memory);
	CLAIM(shared->context == second_ctx && shared->qp_type == IBV_QPT_XRC_RECV);

	/* Any of them may modify and query; RTR is enough to receive. */
	init(shared);
	init(sender);
	struct ibv_qp_attr attr = receiving(sender->qp_num);
	FAILS(ibv_modify_qp(receiver, &attr, RTR_MASK), 0);
	connect_to(sender, receiver->qp_num);
	struct ibv_qp_init_attr told;
	FAILS(ibv_query_qp(shared, &attr, IBV_QP_STATE, &told), 0);
	CLAIM(attr.qp_state == IBV_QPS_RTR && attr.dest_qp_num == sender->qp_num && told.qp_type == IBV_QPT_XRC_RECV);

	/* Each message names its SRQ, and completes on the SRQ's queue with the target's number. */
	memory[0] = 0x1122334455667788;
	post_to_srq(srq1, 11, 4096, 64);
	post_to_srq(srq2, 22, 8192, 64);
	request(sender, 1, n2, IBV_WR_SEND, 0);
	request(sender, 2, n1, IBV_WR_SEND, 0);
	completions(2);
	struct ibv_wc wc[3];
	int count = 0;
	time_t end = time(NULL) + 60;
	while (count < 2) {
		int polled = ibv_poll_cq(srq_cq, 3 - count, wc + count);
		CLAIM(polled >= 0 && time(NULL) <= end);
		count += polled;
	}
	CLAIM(wc[0].wr_id == 22 && wc[1].wr_id == 11 && wc[0].status == 0 && wc[1].status == 0);
	CLAIM(wc[0].qp_num == receiver->qp_num && wc[0].opcode == IBV_WC_RECV && wc[0].byte_len == 8);
	CLAIM(memory[512] == memory[0] && memory[1024] == memory[0]);
	request(sender, 3, n1, IBV_WR_RDMA_WRITE, (uintptr_t)(memory + 2000));
	completions(1);
	CLAIM(memory[2000] == memory[0]);
	request(sender, 4, n1, IBV_WR_ATOMIC_FETCH_AND_ADD, (uintptr_t)(memory + 2000));
	completions(1);
	CLAIM(memory[0] == 0x1122334455667788 && memory[2000] == memory[0] + 5);
	memory[2001] = 77;
	request(sender, 5, n2, IBV_WR_RDMA_READ, (uintptr_t)(memory + 2001));
	completions(1);
	CLAIM(memory[0] == 77);

	/* COMM_EST, as anything else that happens to the target, is told to both. */
	for (int i = 0; i < 2; i++) {
		struct ibv_qp *qp = i ? shared : receiver;
		struct ibv_async_event event = next_event(qp->context);
		CLAIM(event.event_type == IBV_EVENT_COMM_EST && event.element.qp == qp);
		ibv_ack_async_event(&event);
	}
	/* The creator destroys its object; the target goes on. */
	FAILS(ibv_destroy_qp(receiver), 0);
	post_to_srq(srq1, 12, 4096, 64);
	request(sender, 6, n1, IBV_WR_SEND, 0);
	completions(1);
	CLAIM(ibv_poll_cq(srq_cq, 1, wc) == 1 && wc[0].wr_id == 12 && wc[0].qp_num == shared->qp_num);
	FAILS(ibv_close_xrcd(xrcd), EBUSY);

	/* An SRQ of another domain is refused, and the target fails. */
	request(sender, 7, n3, IBV_WR_SEND, 0);
	struct ibv_wc failed = completion();
	CLAIM(failed.wr_id == 7 && failed.status == IBV_WC_REM_INV_RD_REQ_ERR);
	struct ibv_async_event event = next_event(second_ctx);
	CLAIM(event.event_type == IBV_EVENT_QP_ACCESS_ERR && event.element.qp == shared);
	ibv_ack_async_event(&event);
	event = next_event(second_ctx);
	CLAIM(event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED && event.element.qp == shared);
	ibv_ack_async_event(&event);
	no_event(ctx);
	FAILS(ibv_query_qp(shared, &attr, IBV_QP_STATE, &told), 0);
	CLAIM(attr.qp_state == IBV_QPS_ERR);

	uint32_t number = shared->qp_num;
	FAILS(ibv_destroy_qp(shared), 0);
	REFUSED(again(ctx, xrcd, number), EINVAL);
	FAILS(ibv_destroy_qp(sender), 0);
	FAILS(ibv_destroy_srq(srq1), 0);
	FAILS(ibv_close_xrcd(xrcd), EBUSY);
	FAILS(ibv_destroy_srq(srq2), 0);
	FAILS(ibv_destroy_srq(srq3), 0);
	FAILS(ibv_close_xrcd(theirs), 0);
	FAILS(ibv_close_xrcd(xrcd), 0);
	FAILS(ibv_close_xrcd(other), 0);
	FAILS(ibv_destroy_cq(srq_cq), 0);
	FAILS(ibv_close_device(second_ctx), 0);
	FAILS(ibv_close_device(ctx), 0);
	return 0;
}
