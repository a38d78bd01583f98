/* Every operation, through the classic calls and through the extended ones. */
#include "expect.h"

static void reliable(void)
{
	struct ibv_qp *b, *a = pair(IBV_QPT_RC, &b);
	struct ibv_sge sge[3] = {piece(0, 5000), piece(5000, 11), piece(6000, 0)};
	struct ibv_send_wr wr = {
		.wr_id = 1, .sg_list = sge, .num_sge = 3, .opcode = IBV_WR_SEND_WITH_IMM, .send_flags = IBV_SEND_SIGNALED};
	for (int i = 0; i < 5011; i++)
		((char *)memory)[i] = i * 7;
	wr.imm_data = htobe32(0x01020304);
	post_receive(b, 5, 10000, 6000);
	post(a, &wr);
	struct ibv_wc first = completion(), second = completion();
	struct ibv_wc *got = first.opcode == IBV_WC_RECV ? &first : &second;
	CLAIM(first.status == IBV_WC_SUCCESS && second.status == IBV_WC_SUCCESS);
	CLAIM(got->wr_id == 5 && got->byte_len == 5011 && got->qp_num == b->qp_num);
	CLAIM(got->wc_flags == IBV_WC_WITH_IMM && got->imm_data == htobe32(0x01020304));
	CLAIM(!memcmp(memory, (char *)memory + 10000, 5011));

	/* WRITE, READ, atomics. */
	uint64_t remote = (uintptr_t)memory + 20000;
	wr = (struct ibv_send_wr){.sg_list = sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
	wr.wr.rdma.remote_addr = remote;
	wr.wr.rdma.rkey = mr->rkey;
	post(a, &wr);
	completions(1);
	CLAIM(!memcmp(memory, (char *)memory + 20000, 5000));
	wr.opcode = IBV_WR_RDMA_READ;
	sge[0] = piece(30000, 5000);
	post(a, &wr);
	completions(1);
	CLAIM(!memcmp(memory, (char *)memory + 30000, 5000));
	memory[4000] = 41;
	sge[0] = piece(0, 8);
	wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
	wr.wr.atomic.remote_addr = (uintptr_t)&memory[4000];
	wr.wr.atomic.compare_add = 1;
	wr.wr.atomic.rkey = mr->rkey;
	post(a, &wr);
	completions(1);
	CLAIM(memory[0] == 41 && memory[4000] == 42);
	wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
	wr.wr.atomic.compare_add = 42;
	wr.wr.atomic.swap = 7;
	post(a, &wr);
	completions(1);
	CLAIM(memory[0] == 42 && memory[4000] == 7);

	/* A list longer than a batch, inline pieces in the middle of it, one completion at its end. */
	char text[] = "gathered from pieces";
	struct ibv_sge pieces[2] = {{.addr = (uintptr_t)text, .length = 9}, {.addr = (uintptr_t)text + 9, .length = 12}};
	struct ibv_send_wr list[19];
	memset(list, 0, sizeof(list));
	for (int i = 0; i < 19; i++) {
		int inlined = i == 0 || i == 9 || i == 10;
		list[i].next = i < 18 ? &list[i + 1] : NULL;
		list[i].sg_list = inlined ? pieces : sge;
		list[i].num_sge = inlined ? 2 : 1;
		list[i].opcode = IBV_WR_SEND;
		list[i].send_flags = (inlined ? IBV_SEND_INLINE : 0) | (i == 18 ? IBV_SEND_SIGNALED : 0);
		post_receive(b, 1000 + i, 40000 + 64 * i, 64);
	}
	post(a, list);
	CLAIM(completions(20) == 19 * 1000 + 18 * 19 / 2);
	CLAIM(!strcmp((char *)memory + 40000 + 64 * 9, text) && !strcmp((char *)memory + 40000, text));
	CLAIM(*(uint64_t *)((char *)memory + 40000 + 64 * 8) == 42);

	/* A refusal by the peer, and the flush after it. */
	wr = (struct ibv_send_wr){.wr_id = 9, .sg_list = sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
	wr.wr.rdma.remote_addr = 16;
	wr.wr.rdma.rkey = mr->rkey;
	post(a, &wr);
	struct ibv_wc wc = completion();
	CLAIM(wc.wr_id == 9 && wc.status == IBV_WC_REM_ACCESS_ERR && wc.qp_num == a->qp_num);
	post(a, &wr);
	CLAIM(completion().status == IBV_WC_WR_FLUSH_ERR);
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr made;
	FAILS(ibv_query_qp(a, &attr, IBV_QP_STATE, &made), 0);
	CLAIM(attr.qp_state == IBV_QPS_ERR && a->state == IBV_QPS_ERR);
	FAILS(ibv_destroy_qp(a), 0);
	FAILS(ibv_destroy_qp(b), 0);
}

static void datagrams(void)
{
	struct ibv_qp *b, *a = pair(IBV_QPT_UD, &b);
	struct ibv_ah_attr address = own_address();
	struct ibv_ah *ah = ibv_create_ah(pd, &address);
	struct ibv_sge sge = piece(0, 100);
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
	CLAIM(ah);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = b->qp_num;
	wr.wr.ud.remote_qkey = 7;
	post_receive(b, 5, 1000, 140);
	post(a, &wr);
	struct ibv_wc first = completion(), second = completion();
	struct ibv_wc *got = first.opcode == IBV_WC_RECV ? &first : &second;
	CLAIM(got->byte_len == 140 && got->wc_flags & IBV_WC_GRH && got->src_qp == a->qp_num);
	CLAIM(!memcmp(memory, (char *)memory + 1040, 100));
	/* Over UDP and IPv4, as adapters tell it: UCX looks for the address accordingly. */
	CLAIM(got->sl == 10);

	/* The answer finds its way back from the completion. */
	struct ibv_grh *grh = (struct ibv_grh *)((char *)memory + 1000);
	struct ibv_ah_attr back;
	FAILS(ibv_init_ah_from_wc(ctx, 1, got, grh, &back), 0);
	CLAIM(back.is_global && !memcmp(&back.grh.dgid, &own_gid, 16) && back.grh.sgid_index == 0);
	CLAIM(back.sl == 0);
	struct ibv_ah *answer = ibv_create_ah_from_wc(pd, got, grh, 1);
	CLAIM(answer);
	wr.wr.ud.ah = answer;
	wr.wr.ud.remote_qpn = got->src_qp;
	post_receive(a, 6, 2000, 140);
	post(b, &wr);
	CLAIM(completions(2) == 6);

	struct ibv_pd *other = ibv_alloc_pd(ctx);
	struct ibv_ah *foreign = ibv_create_ah(other, &address);
	struct ibv_send_wr *bad;
	wr.wr.ud.ah = NULL;
	FAILS(ibv_post_send(a, &wr, &bad), EINVAL);
	CLAIM(bad == &wr);
	wr.wr.ud.ah = foreign;
	post(a, &wr);
	FAILS(completion().status, IBV_WC_LOC_QP_OP_ERR);
	FAILS(ibv_destroy_ah(foreign), 0);
	FAILS(ibv_dealloc_pd(other), 0);
	FAILS(ibv_destroy_ah(ah), 0);
	FAILS(ibv_destroy_ah(answer), 0);
	FAILS(ibv_destroy_qp(a), 0);
	FAILS(ibv_destroy_qp(b), 0);
}

static void multicast(void)
{
	struct ibv_qp *b, *a = pair(IBV_QPT_UD, &b);
	struct ibv_ah_attr address = own_address();
	union ibv_gid group = {.raw = {[10] = 0xff, 0xff, 239, 7, 7, 7}};
	struct ibv_sge sge = piece(0, 10);
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
	FAILS(ibv_attach_mcast(b, &own_gid, 0), EINVAL);
	FAILS(ibv_attach_mcast(b, NULL, 0), EINVAL);
	FAILS(ibv_attach_mcast(b, &group, 0), 0);
	FAILS(ibv_destroy_qp(b), EBUSY);
	address.grh.dgid = group;
	wr.wr.ud.ah = ibv_create_ah(pd, &address);
	wr.wr.ud.remote_qpn = 0xffffff;
	wr.wr.ud.remote_qkey = 7;
	CLAIM(wr.wr.ud.ah);
	post_receive(b, 5, 1000, 140);
	post(a, &wr);
	CLAIM(completions(2) == 5);
	FAILS(ibv_detach_mcast(b, &group, 0), 0);
	FAILS(ibv_detach_mcast(b, &group, 0), EINVAL);
	FAILS(ibv_destroy_ah(wr.wr.ud.ah), 0);
	FAILS(ibv_destroy_qp(a), 0);
	FAILS(ibv_destroy_qp(b), 0);
}

static void shared_receives(void)
{
	struct ibv_srq_init_attr wants = {.attr = {.max_wr = 10, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(pd, &wants);
	struct ibv_qp_init_attr qp_init = qp_wants(IBV_QPT_RC);
	struct ibv_srq_attr attr = {.srq_limit = 3};
	CLAIM(srq);
	qp_init.srq = srq;
	struct ibv_qp *qp = ibv_create_qp(pd, &qp_init);
	CLAIM(qp && qp_init.cap.max_recv_wr == 0);
	init(qp);
	connect_to(qp, qp->qp_num);
	FAILS(ibv_destroy_srq(srq), EBUSY);
	struct ibv_sge sge = piece(100, 100);
	struct ibv_recv_wr third = {.wr_id = 3, .sg_list = &sge, .num_sge = 1}, *bad;
	struct ibv_recv_wr second = third, first = third;
	first.next = &second;
	second.next = &third;
	FAILS(ibv_post_srq_recv(srq, &first, &bad), 0);
	FAILS(ibv_post_recv(qp, &first, &bad), EINVAL);
	FAILS(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), 0);
	FAILS(ibv_query_srq(srq, &attr), 0);
	CLAIM(attr.srq_limit == 3 && attr.max_wr >= 10);
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
	post(qp, &wr);
	CLAIM(completions(1) == 3);

	/* The limit was reached: an event with its object, which cannot go before it is acknowledged. */
	struct ibv_async_event event;
	do {
		CLAIM(ibv_get_async_event(ctx, &event) == 0);
		ibv_ack_async_event(&event);
	} while (event.event_type != IBV_EVENT_SRQ_LIMIT_REACHED);
	CLAIM(event.element.srq == srq);
	FAILS(ibv_query_srq(srq, &attr), 0);
	CLAIM(attr.srq_limit == 0);
	CLAIM(fcntl(ctx->async_fd, F_SETFL, O_NONBLOCK) == 0);
	struct ibv_async_event none;
	while (ibv_get_async_event(ctx, &none) == 0)
		ibv_ack_async_event(&none);
	CLAIM(errno == EAGAIN);
	FAILS(ibv_destroy_qp(qp), 0);
	FAILS(ibv_destroy_srq(srq), 0);
}

static void windows(void)
{
	struct ibv_qp *b, *a = pair(IBV_QPT_RC, &b);
	struct ibv_mw *one = ibv_alloc_mw(pd, IBV_MW_TYPE_1), *two = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	struct ibv_mw_bind bind = {
		.wr_id = 1,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = {.mr = mr, .addr = (uintptr_t)memory, .length = 4096, .mw_access_flags = IBV_ACCESS_REMOTE_WRITE},
	};
	CLAIM(one && two);
	REFUSED(ibv_alloc_mw(pd, 3), EINVAL);
	uint32_t before = one->rkey;
	FAILS(ibv_bind_mw(b, two, &bind), EINVAL);
	FAILS(ibv_bind_mw(b, one, &bind), 0);
	CLAIM(one->rkey != before && one->rkey >> 8 == before >> 8);
	CLAIM(completion().opcode == IBV_WC_BIND_MW);
	FAILS(ibv_dereg_mr(mr), EBUSY);
	struct ibv_sge sge = piece(8192, 64);
	memset((char *)memory + 8192, 0x5a, 64);
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
	wr.wr.rdma.remote_addr = (uintptr_t)memory;
	wr.wr.rdma.rkey = one->rkey;
	post(a, &wr);
	completions(1);
	CLAIM(!memcmp(memory, (char *)memory + 8192, 64));
	struct ibv_send_wr second = {.opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED};
	second.bind_mw.mw = two;
	second.bind_mw.rkey = ibv_inc_rkey(two->rkey);
	second.bind_mw.bind_info = bind.bind_info;
	post(b, &second);
	completions(1);
	CLAIM(two->rkey == second.bind_mw.rkey);
	wr.wr.rdma.rkey = two->rkey;
	post(a, &wr);
	completions(1);
	FAILS(ibv_dealloc_mw(one), 0);
	FAILS(ibv_dealloc_mw(two), 0);
	FAILS(ibv_destroy_qp(a), 0);
	FAILS(ibv_destroy_qp(b), 0);
}

static void extended(void)
{
	struct ibv_cq_init_attr_ex cq_init = {.cqe = 32, .wc_flags = IBV_WC_STANDARD_FLAGS & ~IBV_WC_EX_WITH_COMPLETION_TIMESTAMP};
	struct ibv_cq_ex *cqx = ibv_create_cq_ex(ctx, &cq_init);
	struct ibv_poll_cq_attr poll = {0};
	CLAIM(cqx);
	struct ibv_qp_init_attr_ex wants = {
		.send_cq = ibv_cq_ex_to_cq(cqx),
		.recv_cq = ibv_cq_ex_to_cq(cqx),
		.cap = {.max_send_wr = 20, .max_recv_wr = 20, .max_send_sge = 4, .max_recv_sge = 4, .max_inline_data = 256},
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(ctx, &wants);
	CLAIM(qp);
	wants.send_ops_flags = IBV_QP_EX_WITH_TSO;
	REFUSED(ibv_create_qp_ex(ctx, &wants), EOPNOTSUPP);
	init(qp);
	connect_to(qp, qp->qp_num);
	struct ibv_qp_ex *qpx = ibv_qp_to_qp_ex(qp);
	CLAIM(qpx);
	FAILS(ibv_start_poll(cqx, &poll), ENOENT);
	post_receive(qp, 77, 1000, 100);
	char text[] = "inline";
	ibv_wr_start(qpx);
	qpx->wr_id = 1;
	qpx->wr_flags = 0;
	ibv_wr_rdma_write(qpx, mr->rkey, (uintptr_t)memory + 2000);
	ibv_wr_set_inline_data(qpx, text, sizeof(text));
	qpx->wr_id = 2;
	qpx->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send_imm(qpx, htobe32(6));
	strcpy((char *)memory + 3000, "stored");
	ibv_wr_set_sge(qpx, mr->lkey, (uintptr_t)memory + 3000, sizeof(text));
	FAILS(ibv_wr_complete(qpx), 0);
	int seen = 0;
	time_t end = time(NULL) + 60;
	while (seen != 3) {
		CLAIM(time(NULL) <= end);
		if (ibv_start_poll(cqx, &poll))
			continue;
		do {
			CLAIM(cqx->status == IBV_WC_SUCCESS && ibv_wc_read_qp_num(cqx) == qp->qp_num);
			if (cqx->wr_id == 77) {
				CLAIM(ibv_wc_read_opcode(cqx) == IBV_WC_RECV && ibv_wc_read_byte_len(cqx) == sizeof(text));
				CLAIM(ibv_wc_read_imm_data(cqx) == htobe32(6) && ibv_wc_read_wc_flags(cqx) == IBV_WC_WITH_IMM);
				seen |= 1;
			} else {
				CLAIM(cqx->wr_id == 2 && ibv_wc_read_opcode(cqx) == IBV_WC_SEND);
				seen |= 2;
			}
		} while (ibv_next_poll(cqx) == 0);
		ibv_end_poll(cqx);
	}
	CLAIM(!strcmp((char *)memory + 1000, "stored") && !strcmp((char *)memory + 2000, text));
	/* A refusal in a series posts nothing of it; an aborted series neither. */
	ibv_wr_start(qpx);
	ibv_wr_send(qpx);
	ibv_wr_set_inline_data(qpx, memory, 5000);
	FAILS(ibv_wr_complete(qpx), EINVAL);
	ibv_wr_start(qpx);
	ibv_wr_send(qpx);
	ibv_wr_abort(qpx);
	FAILS(ibv_start_poll(cqx, &poll), ENOENT);
	FAILS(ibv_destroy_qp(qp), 0);
	FAILS(ibv_destroy_cq(ibv_cq_ex_to_cq(cqx)), 0);
}

int main(void)
{
	open_device();
	reliable();
	datagrams();
	multicast();
	shared_receives();
	extended();
	windows();
	FAILS(ibv_dereg_mr(mr), 0);
	FAILS(ibv_destroy_cq(cq), 0);
	FAILS(ibv_destroy_comp_channel(channel), 0);
	FAILS(ibv_dealloc_pd(pd), 0);
	FAILS(ibv_close_device(ctx), 0);
	return 0;
}
