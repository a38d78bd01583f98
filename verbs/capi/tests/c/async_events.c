/* Asynchronous events: each kind that a program can provoke, fetched late, acknowledged by the rules; completion channels
 * that several queues share; addresses of senders. */
#include "expect.h"
#include <pthread.h>

static struct ibv_qp *made(struct ibv_qp_init_attr wants)
{
	struct ibv_qp *qp = ibv_create_qp(pd, &wants);
	CLAIM(qp);
	init(qp);
	return qp;
}

/* INIT to RTR, with room for this many READs of the peer. */
static void ready_to_receive(struct ibv_qp *qp, uint32_t peer, int reads)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer,
		.rq_psn = 100,
		.max_dest_rd_atomic = reads,
		.min_rnr_timer = 12,
		.ah_attr = own_address(),
	};
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	FAILS(ibv_modify_qp(qp, &attr, mask), 0);
}

static void post_one(struct ibv_qp *qp, enum ibv_wr_opcode opcode, uint32_t rkey)
{
	struct ibv_sge sge = piece(0, 8);
	struct ibv_send_wr *bad, wr = {.sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED};
	wr.wr.rdma.remote_addr = (uintptr_t)&memory[100];
	wr.wr.rdma.rkey = rkey;
	FAILS(ibv_post_send(qp, &wr, &bad), 0);
}

static void state(struct ibv_qp *qp, enum ibv_qp_state next, int tell)
{
	struct ibv_qp_attr attr = {.qp_state = next, .en_sqd_async_notify = tell};
	FAILS(ibv_modify_qp(qp, &attr, IBV_QP_STATE | (tell ? IBV_QP_EN_SQD_ASYNC_NOTIFY : 0)), 0);
}

/* The next event, which is this one. */
static void expect(enum ibv_event_type type, void *element)
{
	struct ibv_async_event event;
	CLAIM(ibv_get_async_event(ctx, &event) == 0);
	if (event.event_type != type)
		fprintf(stderr, "%s\n", ibv_event_type_str(event.event_type));
	CLAIM(event.event_type == type && (void *)event.element.qp == element);
	ibv_ack_async_event(&event);
}

static int quiet(int fd)
{
	struct pollfd waiting = {.fd = fd, .events = POLLIN};
	return poll(&waiting, 1, 20) == 0;
}

/* Everything happens first and is fetched afterwards: nothing is lost, and the order is that of happening. */
static void every_event_is_there_when_fetched_late(void)
{
	struct ibv_context *other = ibv_open_device(ctx->device);
	struct ibv_srq_init_attr srq_wants = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(pd, &srq_wants);
	struct ibv_qp_init_attr plain = qp_wants(IBV_QPT_RC), sharing = plain;
	CLAIM(other && srq);
	sharing.srq = srq;
	struct ibv_qp *a = made(plain), *b = made(sharing);
	ready_to_receive(b, a->qp_num, 0);
	connect_to(a, b->qp_num);
	struct ibv_sge sge = piece(1000, 64);
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
	struct ibv_srq_attr limit = {.srq_limit = 2};
	FAILS(ibv_post_srq_recv(srq, &wr, &bad), 0);
	FAILS(ibv_post_srq_recv(srq, &wr, &bad), 0);
	FAILS(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT), 0);
	/* COMM_EST of b, and its SRQ falls below the limit. */
	post_one(a, IBV_WR_SEND, 0);
	completions(2);
	/* SQ_DRAINED. */
	state(a, IBV_QPS_SQD, 1);
	state(a, IBV_QPS_RTS, 0);
	/* b takes no READs: an invalid request, with no receive to blame. It is on an SRQ, and goes. */
	post_one(a, IBV_WR_RDMA_READ, mr->rkey);
	CLAIM(completion().status == IBV_WC_REM_INV_REQ_ERR);
	/* A key that opens nothing. */
	struct ibv_qp *c = made(plain), *d = made(plain);
	connect_to(c, d->qp_num);
	connect_to(d, c->qp_num);
	post_one(c, IBV_WR_RDMA_WRITE, 0xbad00);
	CLAIM(completion().status == IBV_WC_REM_ACCESS_ERR);

	expect(IBV_EVENT_COMM_EST, b);
	expect(IBV_EVENT_SRQ_LIMIT_REACHED, srq);
	expect(IBV_EVENT_SQ_DRAINED, a);
	expect(IBV_EVENT_QP_REQ_ERR, b);
	expect(IBV_EVENT_QP_LAST_WQE_REACHED, b);
	expect(IBV_EVENT_QP_ACCESS_ERR, d);
	CLAIM(quiet(ctx->async_fd));
	/* Events of an object are its context's. */
	CLAIM(quiet(other->async_fd));
	FAILS(ibv_destroy_qp(a), 0);
	FAILS(ibv_destroy_qp(b), 0);
	FAILS(ibv_destroy_qp(c), 0);
	FAILS(ibv_destroy_qp(d), 0);
	FAILS(ibv_destroy_srq(srq), 0);
	FAILS(ibv_close_device(other), 0);
}

/* A queue pair with an event COMM_EST. */
static struct ibv_qp *established(struct ibv_qp **sender)
{
	struct ibv_qp *a = made(qp_wants(IBV_QPT_RC)), *b = made(qp_wants(IBV_QPT_RC));
	ready_to_receive(b, a->qp_num, 1);
	connect_to(a, b->qp_num);
	post_receive(b, 1, 1000, 64);
	post_one(a, IBV_WR_SEND, 0);
	completions(2);
	*sender = a;
	return b;
}

static volatile int destroyed;

static void *destroy(void *qp)
{
	FAILS(ibv_destroy_qp(qp), 0);
	destroyed = 1;
	return NULL;
}

static void destruction_waits_for_the_acknowledgement(void)
{
	struct ibv_qp *a, *b = established(&a);
	struct ibv_async_event event;
	pthread_t thread;
	CLAIM(ibv_get_async_event(ctx, &event) == 0 && event.event_type == IBV_EVENT_COMM_EST);
	CLAIM(pthread_create(&thread, NULL, destroy, b) == 0);
	usleep(50000);
	CLAIM(!destroyed);
	ibv_ack_async_event(&event);
	CLAIM(pthread_join(thread, NULL) == 0 && destroyed);
	FAILS(ibv_destroy_qp(a), 0);
}

static void unfetched_events_vanish_with_their_object(void)
{
	struct ibv_qp *a, *b = established(&a);
	struct pollfd waiting = {.fd = ctx->async_fd, .events = POLLIN};
	CLAIM(poll(&waiting, 1, 60000) == 1);
	FAILS(ibv_destroy_qp(b), 0);
	CLAIM(quiet(ctx->async_fd));
	FAILS(ibv_destroy_qp(a), 0);
}

/* Events of several queues come in the order in which they fired, each with its queue and its cookie. */
static void a_channel_is_shared_by_several_queues(void)
{
	struct ibv_cq *queues[3], *from;
	struct ibv_qp *qps[3];
	void *cookie;
	int order[] = {2, 0, 1, 2};
	for (int i = 0; i < 3; i++) {
		struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
		CLAIM((queues[i] = ibv_create_cq(ctx, 8, &order[i], channel, 0)));
		wants.send_cq = wants.recv_cq = queues[i];
		qps[i] = made(wants);
		state(qps[i], IBV_QPS_ERR, 0);
	}
	FAILS(ibv_destroy_comp_channel(channel), EBUSY);
	/* Flushed receives complete at once. */
	for (int i = 0; i < 4; i++) {
		struct ibv_recv_wr wr = {.wr_id = i}, *bad;
		FAILS(ibv_req_notify_cq(queues[order[i]], i & 1), 0);
		FAILS(ibv_post_recv(qps[order[i]], &wr, &bad), 0);
		FAILS(ibv_post_recv(qps[order[i]], &wr, &bad), 0);
	}
	for (int i = 0; i < 4; i++)
		CLAIM(ibv_get_cq_event(channel, &from, &cookie) == 0 && from == queues[order[i]] && cookie == &order[order[i]]);
	CLAIM(quiet(channel->fd));
	/* Two of the same queue are acknowledged together. */
	ibv_ack_cq_events(queues[2], 2);
	ibv_ack_cq_events(queues[0], 1);
	ibv_ack_cq_events(queues[1], 1);
	for (int i = 0; i < 3; i++) {
		FAILS(ibv_destroy_qp(qps[i]), 0);
		FAILS(ibv_destroy_cq(queues[i]), 0);
	}
}

static void srq_sizes_change_under_traffic(void)
{
	struct ibv_srq_init_attr srq_wants = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(pd, &srq_wants);
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	struct ibv_recv_wr wr = {.wr_id = 3}, *bad;
	struct ibv_srq_attr attr;
	CLAIM((wants.srq = srq));
	struct ibv_qp *qp = made(wants);
	connect_to(qp, qp->qp_num);
	FAILS(ibv_query_srq(srq, &attr), 0);
	uint32_t depth = attr.max_wr;
	for (uint32_t i = 0; i < depth; i++)
		FAILS(ibv_post_srq_recv(srq, &wr, &bad), 0);
	FAILS(ibv_post_srq_recv(srq, &wr, &bad), ENOMEM);
	CLAIM(bad == &wr);
	attr.max_wr = depth - 1;
	FAILS(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR), EINVAL);
	attr.max_wr = depth + 4;
	FAILS(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR), 0);
	FAILS(ibv_post_srq_recv(srq, &wr, &bad), 0);
	attr.srq_limit = depth + 100;
	FAILS(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), EINVAL);
	FAILS(ibv_modify_srq(srq, &attr, 1 << 7), EINVAL);
	FAILS(ibv_query_srq(srq, &attr), 0);
	CLAIM(attr.max_wr >= depth + 4 && attr.srq_limit == 0);
	struct ibv_send_wr *bad_send, send = {.opcode = IBV_WR_SEND};
	for (uint32_t i = 0; i <= depth; i++)
		FAILS(ibv_post_send(qp, &send, &bad_send), 0);
	CLAIM(completions(depth + 1) == 3 * (depth + 1));
	FAILS(ibv_destroy_qp(qp), 0);
	FAILS(ibv_destroy_srq(srq), 0);
}

/* The address of a sender comes from its datagram; without a GRH there is none. */
static void addresses_of_senders(void)
{
	struct ibv_qp *qp = made(qp_wants(IBV_QPT_UD));
	union ibv_gid group = {.raw = {[10] = 0xff, 0xff, 239, 108, 1, 1}};
	struct ibv_ah_attr address = own_address(), back;
	connect_to(qp, 0);
	FAILS(ibv_attach_mcast(qp, &group, 0), 0);
	address.grh.dgid = group;
	address.grh.traffic_class = 0x40;
	struct ibv_ah *ah = ibv_create_ah(pd, &address);
	struct ibv_sge sge = piece(0, 8);
	struct ibv_send_wr *bad, wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
	CLAIM(ah);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = 0xffffff;
	wr.wr.ud.remote_qkey = 7;
	post_receive(qp, 1, 2000, 100);
	FAILS(ibv_post_send(qp, &wr, &bad), 0);
	struct ibv_wc wc = completion();
	struct ibv_grh *grh = (struct ibv_grh *)((char *)memory + 2000);
	CLAIM(wc.status == IBV_WC_SUCCESS && wc.wc_flags & IBV_WC_GRH);
	/* To a group: the answer goes to the sender, from an address of ours. */
	FAILS(ibv_init_ah_from_wc(ctx, 1, &wc, grh, &back), 0);
	CLAIM(back.is_global && !memcmp(&back.grh.dgid, &own_gid, 16) && back.grh.sgid_index == 0 && back.port_num == 1);
	CLAIM(back.grh.traffic_class == 0x40);
	FAILS(ibv_init_ah_from_wc(ctx, 1, &wc, grh, NULL), EINVAL);
	FAILS(ibv_init_ah_from_wc(ctx, 1, NULL, grh, &back), EINVAL);
	FAILS(ibv_init_ah_from_wc(ctx, 1, &wc, NULL, &back), EINVAL);
	REFUSED(ibv_create_ah_from_wc(pd, &wc, grh, 2), EINVAL);
	REFUSED(ibv_create_ah_from_wc(NULL, &wc, grh, 1), EINVAL);
	wc.wc_flags = 0;
	FAILS(ibv_init_ah_from_wc(ctx, 1, &wc, grh, &back), EINVAL);
	FAILS(ibv_detach_mcast(qp, &group, 0), 0);
	FAILS(ibv_destroy_qp(qp), 0);
	FAILS(ibv_destroy_ah(ah), 0);
}

/* An SRQ of XRC cannot tell of its receives once its completion queue has overrun. */
static void an_srq_fails_with_its_completion_queue(void)
{
	struct ibv_xrcd_init_attr wanted = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT};
	struct ibv_xrcd *xrcd = ibv_open_xrcd(ctx, &wanted);
	struct ibv_cq *small = ibv_create_cq(ctx, 1, NULL, NULL, 0);
	CLAIM(xrcd && small);
	struct ibv_srq_init_attr_ex srq_wants = {
		.attr = {.max_wr = small->cqe + 1, .max_sge = 1},
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC, .pd = pd, .xrcd = xrcd, .cq = small};
	struct ibv_srq *srq = ibv_create_srq_ex(ctx, &srq_wants);
	struct ibv_qp_init_attr_ex target_wants = {
		.qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = xrcd};
	struct ibv_qp_init_attr_ex sender_wants = {
		.send_cq = cq, .cap = {.max_send_wr = 4, .max_send_sge = 1}, .qp_type = IBV_QPT_XRC_SEND,
		.comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd};
	struct ibv_qp *target = ibv_create_qp_ex(ctx, &target_wants), *sender = ibv_create_qp_ex(ctx, &sender_wants);
	CLAIM(srq && target && sender);
	init(target);
	init(sender);
	connect_to(target, sender->qp_num);
	connect_to(sender, target->qp_num);
	struct ibv_recv_wr nothing = {0}, *bad_receive;
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
	FAILS(ibv_get_srq_num(srq, &wr.qp_type.xrc.remote_srqn), 0);
	for (int i = 0; i <= small->cqe; i++) {
		FAILS(ibv_post_srq_recv(srq, &nothing, &bad_receive), 0);
		post(sender, &wr);
		if (i < small->cqe)
			CLAIM(completion().status == IBV_WC_SUCCESS);
	}
	expect(IBV_EVENT_CQ_ERR, small);
	expect(IBV_EVENT_SRQ_ERR, srq);
	expect(IBV_EVENT_QP_FATAL, target);
	expect(IBV_EVENT_QP_LAST_WQE_REACHED, target);
	FAILS(ibv_destroy_qp(sender), 0);
	FAILS(ibv_destroy_qp(target), 0);
	FAILS(ibv_destroy_srq(srq), 0);
	FAILS(ibv_destroy_cq(small), 0);
	FAILS(ibv_close_xrcd(xrcd), 0);
	CLAIM(quiet(ctx->async_fd));
}

int main(void)
{
	open_device();
	every_event_is_there_when_fetched_late();
	destruction_waits_for_the_acknowledgement();
	unfetched_events_vanish_with_their_object();
	a_channel_is_shared_by_several_queues();
	srq_sizes_change_under_traffic();
	an_srq_fails_with_its_completion_queue();
	addresses_of_senders();
	FAILS(ibv_dereg_mr(mr), 0);
	FAILS(ibv_destroy_cq(cq), 0);
	FAILS(ibv_destroy_comp_channel(channel), 0);
	FAILS(ibv_dealloc_pd(pd), 0);
	FAILS(ibv_close_device(ctx), 0);
	return 0;
}
