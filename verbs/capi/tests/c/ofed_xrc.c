/* XRC by the calls of OFED 1.x. The sentences of its manual page ibv_query_xrc_rcv_qp(3) are told apart by "S". */
#include "xrc_kit.h"
#include <pumice/ofed_xrc.h>
#include <stddef.h>

_Static_assert(offsetof(struct ofed_qp_init_attr, xrc_domain) == sizeof(struct ibv_qp_init_attr), "appended");
_Static_assert(offsetof(struct ofed_qp_init_attr, sq_sig_all) == offsetof(struct ibv_qp_init_attr, sq_sig_all), "same");
_Static_assert(offsetof(struct ofed_srq, events_completed) == offsetof(struct ibv_srq, events_completed), "same");
/* Of ARM, a mutex is longer. */
#ifdef __aarch64__
#define MORE 8
#else
#define MORE 0
#endif
_Static_assert(offsetof(struct ofed_srq, xrc_srq_num) == 124 + MORE, "after today's members");
_Static_assert(offsetof(struct ofed_srq, xrc_cq) == 136 + MORE, "after today's members");
_Static_assert(offsetof(struct ibv_send_wr, xrc_remote_srq_num) == 72, "after the union");
_Static_assert(sizeof(struct ibv_qp) == 160 + MORE, "xrc_domain is behind it");

static struct ibv_xrc_domain *domain, *other;
static struct ibv_context *second_ctx;

static void domains(void)
{
	int fd = new_file();
	REFUSED(ibv_open_xrc_domain(ctx, fd, 0), EAGAIN);
	REFUSED(ibv_open_xrc_domain(ctx, 9999, O_CREAT), EBADF);
	struct ibv_xrc_domain *first = ibv_open_xrc_domain(ctx, fd, O_CREAT | O_EXCL), *second = ibv_open_xrc_domain(second_ctx, fd, 0);
	CLAIM(first && second && first->context == ctx && second->context == second_ctx);
	REFUSED(ibv_open_xrc_domain(ctx, fd, O_CREAT | O_EXCL), EINVAL);
	FAILS(ibv_close_xrc_domain(first), 0);
	FAILS(ibv_close_xrc_domain(second), 0);
	FAILS(ibv_close_xrc_domain(NULL), EINVAL);
	close(fd);
}

static uint32_t receive_qp(struct ibv_xrc_domain *of)
{
	struct ofed_qp_init_attr init = {.xrc_domain = of};
	uint32_t number = 0;
	FAILS(ibv_create_xrc_rcv_qp(&init, &number), 0);
	CLAIM(number && number <= 0xffffff);
	return number;
}

static struct ibv_qp *sending_qp(void)
{
	struct ofed_qp_init_attr init = {
		.send_cq = cq, .cap = {.max_send_wr = 8, .max_send_sge = 1}, .qp_type = IBV_QPT_XRC, .xrc_domain = NULL};
	REFUSED(ibv_create_qp(pd, ofed_qp_init(&init)), EINVAL);
	init.xrc_domain = domain;
	struct ibv_qp *qp = ibv_create_qp(pd, ofed_qp_init(&init));
	CLAIM(qp && qp->qp_type == IBV_QPT_XRC && ofed_qp_xrc_domain(qp) == domain && qp->pd == pd);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	FAILS(ibv_modify_qp(qp, &attr, INIT_MASK), 0);
	return qp;
}

static void to_rts(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr attr = receiving(peer);
	FAILS(ibv_modify_qp(qp, &attr, RTR_MASK), 0);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .sq_psn = 100, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 4};
	FAILS(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC), 0);
}

/* ibv_query_xrc_rcv_qp(3), sentence by sentence. */
static void query_page(uint32_t sender)
{
	struct ibv_qp_attr attr, told;
	struct ofed_qp_init_attr init;
	uint32_t number = receive_qp(domain);

	/* S1 "gets the attributes ... for the XRC receive QP with the number ... and domain": no other one's. */
	FAILS(ibv_query_xrc_rcv_qp(other, number, &told, IBV_QP_STATE, &init), EINVAL);
	FAILS(ibv_query_xrc_rcv_qp(domain, number + 1, &told, IBV_QP_STATE, &init), EINVAL);
	FAILS(ibv_query_xrc_rcv_qp(domain, sender, &told, IBV_QP_STATE, &init), EINVAL);
	FAILS(ibv_query_xrc_rcv_qp(domain, 0xffffffff, &told, IBV_QP_STATE, &init), EINVAL);
	FAILS(ibv_query_xrc_rcv_qp(NULL, number, &told, IBV_QP_STATE, &init), EINVAL);
	/* S2 "returns them through the pointers attr and init_attr". */
	FAILS(ibv_query_xrc_rcv_qp(domain, number, NULL, IBV_QP_STATE, &init), EINVAL);
	FAILS(ibv_query_xrc_rcv_qp(domain, number, &told, IBV_QP_STATE, NULL), EINVAL);
	memset(&init, 0xa5, sizeof(init));
	/* S3 "returns 0 on success, or the value of errno on failure" (the failures above). */
	FAILS(ibv_query_xrc_rcv_qp(domain, number, &told, IBV_QP_STATE, &init), 0);
	CLAIM(init.xrc_domain == domain && init.qp_type == IBV_QPT_XRC);
	CLAIM(!init.send_cq && !init.recv_cq && !init.srq && !init.qp_context && !init.cap.max_send_wr && !init.cap.max_recv_wr);
	CLAIM(told.qp_state == IBV_QPS_RESET && told.cur_qp_state == IBV_QPS_RESET);

	/* S4 "attribute values are valid if they have been set using ibv_modify_xrc_rcv_qp()". */
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = RIGHTS};
	FAILS(ibv_modify_xrc_rcv_qp(domain, number, &attr, INIT_MASK), 0);
	FAILS(ibv_query_xrc_rcv_qp(domain, number, &told, INIT_MASK, &init), 0);
	CLAIM(told.qp_state == IBV_QPS_INIT && told.port_num == 1 && told.qp_access_flags == RIGHTS && told.pkey_index == 0);
	/* S5 "the exact list of valid attributes depends on the QP state": those of RTR come with RTR. */
	CLAIM(told.dest_qp_num == 0 && told.rq_psn == 0 && told.min_rnr_timer == 0);
	attr = receiving(sender);
	FAILS(ibv_modify_xrc_rcv_qp(domain, number, &attr, RTR_MASK & ~IBV_QP_RQ_PSN), EINVAL);
	FAILS(ibv_modify_xrc_rcv_qp(other, number, &attr, RTR_MASK), EINVAL);
	FAILS(ibv_modify_xrc_rcv_qp(domain, number, NULL, RTR_MASK), EINVAL);
	FAILS(ibv_modify_xrc_rcv_qp(domain, number, &attr, RTR_MASK), 0);
	/* S6 "attr_mask is a hint that specifies the minimum list", S7 "may return extra attributes": all, always. */
	for (int mask = 0; mask <= IBV_QP_STATE; mask++) {
		memset(&told, 0xa5, sizeof(told));
		FAILS(ibv_query_xrc_rcv_qp(domain, number, &told, mask, &init), 0);
		CLAIM(told.qp_state == IBV_QPS_RTR && told.path_mtu == IBV_MTU_1024 && told.dest_qp_num == sender);
		CLAIM(told.rq_psn == 100 && told.max_dest_rd_atomic == 4 && told.min_rnr_timer == 12);
		CLAIM(!memcmp(&told.ah_attr.grh.dgid, &own_gid, sizeof(own_gid)) && told.ah_attr.is_global && told.ah_attr.grh.hop_limit == 64);
		CLAIM(told.qp_access_flags == RIGHTS && told.port_num == 1);
	}
	/* RTS is possible, and not needed. */
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .sq_psn = 4711, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
	FAILS(ibv_modify_xrc_rcv_qp(domain, number, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC), 0);
	FAILS(ibv_query_xrc_rcv_qp(domain, number, &told, IBV_QP_SQ_PSN, &init), 0);
	CLAIM(told.qp_state == IBV_QPS_RTS && told.sq_psn == 4711 && told.timeout == 14);
	/* S8 "multiple calls may yield differences in qp_state, path_mig_state, sq_draining, ah_attr": the state does. */
	struct ibv_qp_attr before = told;
	attr.qp_state = IBV_QPS_ERR;
	FAILS(ibv_modify_xrc_rcv_qp(domain, number, &attr, IBV_QP_STATE), 0);
	FAILS(ibv_query_xrc_rcv_qp(domain, number, &told, 0, &init), 0);
	CLAIM(before.qp_state == IBV_QPS_RTS && told.qp_state == IBV_QPS_ERR);
	before.qp_state = before.cur_qp_state = IBV_QPS_ERR;
	CLAIM(!memcmp(&before, &told, offsetof(struct ibv_qp_attr, rate_limit)));
	CLAIM(told.path_mig_state == IBV_MIG_MIGRATED && !told.sq_draining);

	struct ibv_async_event event = next_event(ctx);
	CLAIM((unsigned)event.event_type == (IBV_XRC_QP_EVENT_FLAG | IBV_EVENT_QP_LAST_WQE_REACHED));
	CLAIM((uint32_t)event.element.xrc_qp_num == number);
	ibv_ack_async_event(&event);
	FAILS(ibv_unreg_xrc_rcv_qp(domain, number), 0);
	FAILS(ibv_query_xrc_rcv_qp(domain, number, &told, 0, &init), EINVAL);
}

/* Queue pairs of type IBV_QPT_XRC initiate and receive: each is the other's target, for SRQs of its own domain. */
static void full_duplex(struct ibv_srq *srq, uint32_t srq_number)
{
	struct ibv_qp *qps[2] = {sending_qp(), sending_qp()};
	struct ibv_recv_wr nothing = {0}, *bad_receive;
	FAILS(ibv_post_recv(qps[0], &nothing, &bad_receive), EINVAL);
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_attr attr = {.qp_access_flags = RIGHTS};
		FAILS(ibv_modify_qp(qps[i], &attr, IBV_QP_ACCESS_FLAGS), 0);
		to_rts(qps[i], qps[!i]->qp_num);
		/* No call for receive queue pairs takes it. */
		FAILS(ibv_modify_xrc_rcv_qp(domain, qps[i]->qp_num, &attr, IBV_QP_ACCESS_FLAGS), EINVAL);
		FAILS(ibv_reg_xrc_rcv_qp(domain, qps[i]->qp_num), EINVAL);
	}
	struct ibv_sge sge = piece(0, 3000);
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
	wr.xrc_remote_srq_num = srq_number;
	for (int round = 0; round < 6; round++) {
		struct ibv_qp *from = qps[round % 2], *to = qps[!(round % 2)];
		memset(memory, 'a' + round, 3000);
		post_to_srq(srq, 50, 4096, 3000);
		FAILS(ibv_post_send(from, &wr, &bad), 0);
		for (int i = 0; i < 2; i++) {
			struct ibv_wc wc = completion();
			CLAIM(wc.status == IBV_WC_SUCCESS && (wc.wr_id == 1 || wc.wr_id == 50));
			CLAIM(wc.qp_num == (wc.wr_id == 1 ? from : to)->qp_num);
		}
		CLAIM(!memcmp(memory, (char *)memory + 4096, 3000));
		/* One-sided requests as well, checked against the domain of the SRQ's memory. */
		memory[1024] = round;
		wr.opcode = round % 3 ? IBV_WR_RDMA_READ : IBV_WR_ATOMIC_FETCH_AND_ADD;
		sge.length = 8;
		if (wr.opcode == IBV_WR_RDMA_READ) {
			wr.wr.rdma.remote_addr = (uintptr_t)(memory + 1024);
			wr.wr.rdma.rkey = mr->rkey;
		} else {
			wr.wr.atomic.remote_addr = (uintptr_t)(memory + 1024);
			wr.wr.atomic.compare_add = 1;
			wr.wr.atomic.rkey = mr->rkey;
		}
		FAILS(ibv_post_send(from, &wr, &bad), 0);
		completions(1);
		CLAIM(memory[0] == (uint64_t)round && memory[1024] == (uint64_t)round + !(round % 3));
		wr.opcode = IBV_WR_SEND;
		sge.length = 3000;
	}
	/* An SRQ that is not in its domain: it fails, and says so as other queue pairs do, without the flag. */
	struct ibv_srq_init_attr srq_init = {.attr = {.max_wr = 1, .max_sge = 1}};
	struct ibv_srq *foreign = ibv_create_xrc_srq(pd, other, cq, &srq_init);
	CLAIM(foreign);
	wr.xrc_remote_srq_num = ofed_srq(foreign)->xrc_srq_num;
	FAILS(ibv_post_send(qps[0], &wr, &bad), 0);
	CLAIM(completion().status == IBV_WC_REM_INV_RD_REQ_ERR);
	enum ibv_event_type expected[] = {IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_LAST_WQE_REACHED};
	struct ibv_async_event first = next_event(ctx);
	/* The sender fails as well, and may be the first to say so. */
	for (int seen = 0, i = 0; i < 3; i++) {
		struct ibv_async_event event = i ? next_event(ctx) : first;
		CLAIM(event.element.qp == qps[0] || event.element.qp == qps[1]);
		if (event.element.qp == qps[1])
			CLAIM(event.event_type == expected[seen++]);
		else
			CLAIM(event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED);
		ibv_ack_async_event(&event);
	}
	no_event(ctx);
	FAILS(ibv_destroy_srq(foreign), 0);
	FAILS(ibv_destroy_qp(qps[0]), 0);
	FAILS(ibv_close_xrc_domain(domain), EBUSY);
	FAILS(ibv_destroy_qp(qps[1]), 0);
}

int main(void)
{
	open_device();
	CLAIM((second_ctx = ibv_open_device(ctx->device)));
	struct ibv_device_attr device;
	FAILS(ibv_query_device(ctx, &device), 0);
	CLAIM(device.device_cap_flags & 1 << 20); /* IBV_DEVICE_XRC */
	domains();
	int fd = new_file();
	CLAIM((domain = ibv_open_xrc_domain(ctx, fd, O_CREAT)) && (other = ibv_open_xrc_domain(ctx, -1, O_CREAT)));
	struct ibv_xrc_domain *second_domain = ibv_open_xrc_domain(second_ctx, fd, 0);
	CLAIM(second_domain);

	struct ibv_srq_init_attr srq_init = {.attr = {.max_wr = 8, .max_sge = 1}};
	REFUSED(ibv_create_xrc_srq(pd, NULL, cq, &srq_init), EINVAL);
	REFUSED(ibv_create_xrc_srq(pd, domain, NULL, &srq_init), EINVAL);
	struct ibv_srq *srq = ibv_create_xrc_srq(pd, domain, cq, &srq_init);
	uint32_t srq_number;
	CLAIM(srq && ofed_srq(srq)->xrc_domain == domain && ofed_srq(srq)->xrc_cq == cq);
	FAILS(ibv_get_srq_num(srq, &srq_number), 0);
	CLAIM(ofed_srq(srq)->xrc_srq_num == srq_number);

	full_duplex(srq, srq_number);
	struct ibv_qp *sender = sending_qp();
	query_page(sender->qp_num);

	struct ofed_qp_init_attr nothing = {0};
	uint32_t number, unused;
	FAILS(ibv_create_xrc_rcv_qp(&nothing, &unused), EINVAL);
	FAILS(ibv_create_xrc_rcv_qp(NULL, &unused), EINVAL);
	number = receive_qp(domain);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = RIGHTS};
	FAILS(ibv_modify_xrc_rcv_qp(domain, number, &attr, INIT_MASK), 0);
	attr = receiving(sender->qp_num);
	/* Any context that has the domain open may modify. */
	FAILS(ibv_modify_xrc_rcv_qp(second_domain, number, &attr, RTR_MASK), 0);
	to_rts(sender, number);

	FAILS(ibv_reg_xrc_rcv_qp(other, number), EINVAL);
	FAILS(ibv_reg_xrc_rcv_qp(domain, sender->qp_num), EINVAL);
	FAILS(ibv_unreg_xrc_rcv_qp(second_domain, number), EINVAL);
	FAILS(ibv_reg_xrc_rcv_qp(second_domain, number), 0);
	FAILS(ibv_reg_xrc_rcv_qp(second_domain, number), 0);

	memory[0] = 0xfeedface;
	post_to_srq(srq, 9, 4096, 64);
	struct ibv_sge sge = piece(0, 8);
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
	wr.xrc_remote_srq_num = srq_number;
	FAILS(ibv_post_send(sender, &wr, &bad), 0);
	uint64_t done = 0;
	for (int i = 0; i < 2; i++) {
		struct ibv_wc wc = completion();
		CLAIM(wc.status == IBV_WC_SUCCESS);
		CLAIM(wc.wr_id == 1 || (wc.qp_num == number && wc.byte_len == 8));
		done += wc.wr_id;
	}
	CLAIM(done == 10 && memory[512] == 0xfeedface);

	/* The creator leaves; a context that is registered keeps the queue pair, once it is enough to leave once. */
	for (int i = 0; i < 2; i++) {
		struct ibv_async_event event = next_event(i ? second_ctx : ctx);
		CLAIM((unsigned)event.event_type == (IBV_XRC_QP_EVENT_FLAG | IBV_EVENT_COMM_EST));
		/* As the manual has it: take the flag away, then look. */
		event.event_type &= ~IBV_XRC_QP_EVENT_FLAG;
		CLAIM((uint32_t)event.element.xrc_qp_num == number);
		ibv_ack_async_event(&event);
	}
	FAILS(ibv_close_xrc_domain(domain), EBUSY);
	FAILS(ibv_unreg_xrc_rcv_qp(domain, number), 0);
	FAILS(ibv_unreg_xrc_rcv_qp(domain, number), EINVAL);
	post_to_srq(srq, 10, 4096, 64);
	FAILS(ibv_post_send(sender, &wr, &bad), 0);
	completions(2);
	wr.xrc_remote_srq_num = 0xabcdef;
	FAILS(ibv_post_send(sender, &wr, &bad), 0);
	CLAIM(completion().status == IBV_WC_REM_INV_RD_REQ_ERR);
	unsigned expected[] = {IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_LAST_WQE_REACHED};
	for (int i = 0; i < 2; i++) {
		struct ibv_async_event event = next_event(second_ctx);
		CLAIM((unsigned)event.event_type == (IBV_XRC_QP_EVENT_FLAG | expected[i]) && (uint32_t)event.element.xrc_qp_num == number);
		ibv_ack_async_event(&event);
	}
	/* The sender could have received as well. */
	struct ibv_async_event failed = next_event(ctx);
	CLAIM(failed.event_type == IBV_EVENT_QP_LAST_WQE_REACHED && failed.element.qp == sender);
	ibv_ack_async_event(&failed);
	no_event(ctx);
	FAILS(ibv_unreg_xrc_rcv_qp(second_domain, number), 0);
	struct ofed_qp_init_attr init;
	FAILS(ibv_query_xrc_rcv_qp(domain, number, &attr, 0, &init), EINVAL);

	FAILS(ibv_destroy_srq(srq), 0);
	FAILS(ibv_close_xrc_domain(domain), EBUSY);
	FAILS(ibv_destroy_qp(sender), 0);
	FAILS(ibv_close_xrc_domain(domain), 0);
	FAILS(ibv_close_xrc_domain(other), 0);
	/* What is left of a context goes with it, registrations included. */
	receive_qp(second_domain);
	FAILS(ibv_close_device(second_ctx), 0);
	REFUSED(ibv_open_xrc_domain(ctx, fd, 0), EAGAIN);
	FAILS(ibv_close_device(ctx), 0);
	return 0;
}
