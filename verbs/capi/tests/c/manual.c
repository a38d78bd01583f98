/* What the manual pages of ibv_poll_cq, ibv_post_recv and ibv_req_notify_cq promise, where C programs see something of
 * their own. A function's name begins with the page's. */
#include "expect.h"
#include <pthread.h>

static struct ibv_qp *self_connected(struct ibv_qp_init_attr wants)
{
	struct ibv_qp *qp = ibv_create_qp(pd, &wants);
	CLAIM(qp);
	init(qp);
	connect_to(qp, qp->qp_num);
	return qp;
}

static void send_flagged(struct ibv_qp *qp, uint64_t wr_id, unsigned flags)
{
	struct ibv_sge sge = piece(0, 8);
	struct ibv_send_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = flags};
	struct ibv_send_wr *bad;
	FAILS(ibv_post_send(qp, &wr, &bad), 0);
}

static void write_self(struct ibv_qp *qp, uint64_t wr_id, uint32_t lkey)
{
	struct ibv_sge sge = {.addr = (uintptr_t)memory, .length = 8, .lkey = lkey};
	struct ibv_send_wr *bad, wr = {
		.wr_id = wr_id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
	wr.wr.rdma.remote_addr = (uintptr_t)&memory[100];
	wr.wr.rdma.rkey = mr->rkey;
	FAILS(ibv_post_send(qp, &wr, &bad), 0);
}

/* Waits until a queue pair is in a state. */
static void until_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr made;
	time_t end = time(NULL) + 60;
	do {
		CLAIM(time(NULL) <= end);
		FAILS(ibv_query_qp(qp, &attr, IBV_QP_STATE, &made), 0);
		usleep(1000);
	} while (attr.qp_state != state);
}

/* A failure is a negative value: no queue, a queue without a context, a number or an array that cannot be. */
static void poll_cq_fails_with_a_negative_value(void)
{
	struct ibv_wc wc;
	CLAIM(ctx->ops.poll_cq(NULL, 1, &wc) == -EINVAL);
	cq->context = NULL;
	CLAIM(ctx->ops.poll_cq(cq, 1, &wc) == -EINVAL);
	cq->context = ctx;
	CLAIM(ibv_poll_cq(cq, -1, &wc) == -EINVAL);
	CLAIM(ibv_poll_cq(cq, 1, NULL) == -EINVAL);
	CLAIM(ibv_poll_cq(cq, 0, &wc) == 0);
	CLAIM(ibv_poll_cq(cq, 1, &wc) == 0);
}

/* The first num_entries, or all there are; each is gone then. More than the library copies at a time. */
static void poll_cq_returns_as_many_as_asked_for_and_there(void)
{
	struct ibv_qp *qp = self_connected(qp_wants(IBV_QPT_RC));
	struct ibv_wc wc[32];
	time_t end = time(NULL) + 60;
	for (int i = 0; i < 20; i++)
		write_self(qp, i, mr->lkey);
	memset(wc, 0x5a, sizeof(wc));
	int taken = 0;
	/* At most three at a time, then those that are left. */
	while (taken < 9) {
		int count = ibv_poll_cq(cq, 3, wc + taken);
		CLAIM(count >= 0 && count <= 3 && time(NULL) <= end);
		taken += count;
	}
	while (taken < 20) {
		int count = ibv_poll_cq(cq, 32 - taken, wc + taken);
		CLAIM(count >= 0 && time(NULL) <= end);
		taken += count;
	}
	CLAIM(taken == 20);
	for (int i = 0; i < 20; i++)
		CLAIM(wc[i].wr_id == (uint64_t)i && wc[i].status == IBV_WC_SUCCESS && wc[i].opcode == IBV_WC_RDMA_WRITE);
	CLAIM(wc[20].wr_id == 0x5a5a5a5a5a5a5a5aULL);
	CLAIM(ibv_poll_cq(cq, 32, wc) == 0);
	FAILS(ibv_destroy_qp(qp), 0);
}

/* An overrun is told once, for the queue and for each of its queue pairs; what the queue held can be had, and then it
 * cannot be used. */
static void poll_cq_overrun_ends_the_queue(void)
{
	struct ibv_cq *small = ibv_create_cq(ctx, 2, NULL, channel, 0);
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	CLAIM(small);
	wants.send_cq = small;
	struct ibv_qp *qp = self_connected(wants);
	post_receive(qp, 70, 0, 64);
	int depth = small->cqe;
	for (int i = 0; i < depth + 3; i++)
		write_self(qp, i, mr->lkey);
	until_state(qp, IBV_QPS_ERR);
	struct ibv_async_event event;
	int cq_err = 0, fatal = 0;
	while (!cq_err || !fatal) {
		CLAIM(ibv_get_async_event(ctx, &event) == 0);
		if (event.event_type == IBV_EVENT_CQ_ERR) {
			CLAIM(event.element.cq == small && !cq_err++);
		} else if (event.event_type == IBV_EVENT_QP_FATAL) {
			CLAIM(event.element.qp == qp && !fatal++);
		} else {
			CLAIM(event.event_type == IBV_EVENT_COMM_EST);
		}
		ibv_ack_async_event(&event);
	}
	struct ibv_wc wc[16];
	int count = ibv_poll_cq(small, 16, wc);
	CLAIM(count == depth);
	for (int i = 0; i < depth; i++)
		CLAIM(wc[i].wr_id == (uint64_t)i && wc[i].status == IBV_WC_SUCCESS);
	CLAIM(ibv_poll_cq(small, 16, wc) < 0);
	FAILS(ibv_req_notify_cq(small, 0), EIO);
	/* The receive's queue is another one: it hears of the flush. */
	struct ibv_wc flushed = completion();
	CLAIM(flushed.wr_id == 70 && flushed.status == IBV_WC_WR_FLUSH_ERR);
	CLAIM(fcntl(ctx->async_fd, F_SETFL, O_NONBLOCK) == 0);
	CLAIM(ibv_get_async_event(ctx, &event) == -1 && errno == EAGAIN);
	CLAIM(fcntl(ctx->async_fd, F_SETFL, 0) == 0);
	FAILS(ibv_destroy_cq(small), EBUSY);
	FAILS(ibv_destroy_qp(qp), 0);
	FAILS(ibv_destroy_cq(small), 0);
}

/* A list stops at its first bad request, which bad_wr names; the return value is the errno. */
static void post_recv_stops_at_the_first_failure(void)
{
	struct ibv_qp *qp = self_connected(qp_wants(IBV_QPT_RC));
	struct ibv_sge sge = piece(1000, 64), too_many[5] = {sge, sge, sge, sge, sge};
	struct ibv_recv_wr list[4], *bad = NULL;
	for (int i = 0; i < 4; i++)
		list[i] = (struct ibv_recv_wr){.wr_id = 10 + i, .next = i < 3 ? &list[i + 1] : NULL, .sg_list = &sge, .num_sge = 1};
	list[2].sg_list = too_many;
	list[2].num_sge = 5;
	FAILS(ibv_post_recv(qp, list, &bad), EINVAL);
	CLAIM(bad == &list[2]);
	list[2].num_sge = -1;
	FAILS(ibv_post_recv(qp, &list[2], &bad), EINVAL);
	list[2].num_sge = 1;
	list[2].sg_list = NULL;
	FAILS(ibv_post_recv(qp, &list[2], &bad), EINVAL);
	FAILS(ibv_post_recv(qp, NULL, &bad), 0);
	send_flagged(qp, 1, 0);
	CLAIM(completions(1) == 10);
	send_flagged(qp, 1, 0);
	CLAIM(completions(1) == 11);
	FAILS(ibv_destroy_qp(qp), 0);

	/* Full: ENOMEM, at the request that found no room. */
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	wants.cap.max_recv_wr = 3;
	qp = self_connected(wants);
	struct ibv_qp_attr attr;
	FAILS(ibv_query_qp(qp, &attr, IBV_QP_CAP, &wants), 0);
	for (unsigned i = 0; i + 1 < wants.cap.max_recv_wr; i++)
		post_receive(qp, i, 0, 8);
	list[2] = list[1];
	FAILS(ibv_post_recv(qp, list, &bad), ENOMEM);
	CLAIM(bad == &list[1]);
	FAILS(ibv_destroy_qp(qp), 0);
	CLAIM(ctx->ops.post_recv(NULL, list, &bad) == EINVAL);
}

/* A queue pair with an SRQ takes no receives itself. */
static void post_recv_is_refused_where_an_srq_receives(void)
{
	struct ibv_srq_init_attr srq_wants = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	CLAIM((wants.srq = ibv_create_srq(pd, &srq_wants)));
	struct ibv_qp *qp = self_connected(wants);
	struct ibv_sge sge = piece(0, 64);
	struct ibv_recv_wr wr = {.wr_id = 3, .sg_list = &sge, .num_sge = 1}, *bad = NULL;
	FAILS(ibv_post_recv(qp, &wr, &bad), EINVAL);
	CLAIM(bad == &wr);
	FAILS(ibv_post_srq_recv(wants.srq, &wr, &bad), 0);
	send_flagged(qp, 1, 0);
	CLAIM(completions(1) == 3);
	FAILS(ibv_destroy_qp(qp), 0);
	FAILS(ibv_destroy_srq(wants.srq), 0);
}

/* A datagram begins 40 bytes into its buffers. */
static void post_recv_on_ud_has_40_bytes_in_front(void)
{
	struct ibv_qp *qp = self_connected(qp_wants(IBV_QPT_UD));
	struct ibv_ah_attr address = own_address();
	struct ibv_ah *ah = ibv_create_ah(pd, &address);
	char *buffer = (char *)memory + 20000;
	CLAIM(ah);
	memset(buffer, 0x77, 200);
	strcpy((char *)memory, "datagram");
	struct ibv_sge sge = piece(0, 9);
	struct ibv_send_wr *bad, wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = qp->qp_num;
	wr.wr.ud.remote_qkey = 7;
	post_receive(qp, 5, 20000, 200);
	FAILS(ibv_post_send(qp, &wr, &bad), 0);
	struct ibv_wc wc = completion();
	CLAIM(wc.status == IBV_WC_SUCCESS && wc.byte_len == 49 && wc.wc_flags == IBV_WC_GRH && wc.src_qp == qp->qp_num);
	CLAIM(!strcmp(buffer + 40, "datagram") && buffer[49] == 0x77);
	/* IPv4: the header is in the second half. */
	CLAIM(buffer[20] == 0x45 && !memcmp(buffer + 32, &own_gid.raw[12], 4) && !memcmp(buffer + 36, &own_gid.raw[12], 4));
	FAILS(ibv_destroy_qp(qp), 0);
	FAILS(ibv_destroy_ah(ah), 0);
}

/* The number of events that are in the channel now, acknowledged. */
static unsigned fired(struct ibv_cq *expected)
{
	struct ibv_cq *from;
	void *cookie;
	unsigned count = 0;
	CLAIM(fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
	while (ibv_get_cq_event(channel, &from, &cookie) == 0) {
		CLAIM(from == expected && cookie == expected->cq_context);
		count++;
	}
	CLAIM(errno == EAGAIN);
	ibv_ack_cq_events(expected, count);
	return count;
}

/* Each way of arming with each kind of completion. */
static void req_notify_cq_fires_for_what_it_was_armed_for(void)
{
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	struct ibv_qp *qp = self_connected(wants);
	FAILS(ctx->ops.req_notify_cq(NULL, 0), EINVAL);
	/* Completions that are there already do not fire. A receive that is posted in ERR completes before the call returns,
	 * so that no thread has to have run in the meantime. */
	post_receive(qp, 1, 0, 64);
	send_flagged(qp, 1, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED);
	completions(2);
	struct ibv_qp *failed = self_connected(wants);
	struct ibv_qp_attr err = {.qp_state = IBV_QPS_ERR};
	FAILS(ibv_modify_qp(failed, &err, IBV_QP_STATE), 0);
	post_receive(failed, 2, 0, 64);
	FAILS(ibv_req_notify_cq(cq, 0), 0);
	CLAIM(fired(cq) == 0);
	CLAIM(completion().status == IBV_WC_WR_FLUSH_ERR);
	FAILS(ibv_destroy_qp(failed), 0);
	/* Any, not weakened by solicited; one event for several completions. */
	FAILS(ibv_req_notify_cq(cq, 1), 0);
	write_self(qp, 3, mr->lkey);
	write_self(qp, 4, mr->lkey);
	completions(2);
	CLAIM(fired(cq) == 1);
	/* Solicited: not for a send, nor for a plain receive. */
	FAILS(ibv_req_notify_cq(cq, 1), 0);
	write_self(qp, 5, mr->lkey);
	post_receive(qp, 6, 0, 64);
	send_flagged(qp, 7, IBV_SEND_SIGNALED);
	completions(3);
	CLAIM(fired(cq) == 0);
	/* But for a receive that the sender asked it for, once. */
	post_receive(qp, 8, 0, 64);
	post_receive(qp, 9, 0, 64);
	send_flagged(qp, 8, IBV_SEND_SOLICITED);
	send_flagged(qp, 9, IBV_SEND_SOLICITED);
	completions(2);
	CLAIM(fired(cq) == 1);
	/* And for a send that fails. */
	FAILS(ibv_req_notify_cq(cq, 1), 0);
	write_self(qp, 10, 0xdead00);
	CLAIM(completion().status == IBV_WC_LOC_PROT_ERR);
	CLAIM(fired(cq) == 1);
	FAILS(ibv_destroy_qp(qp), 0);
	CLAIM(fcntl(channel->fd, F_SETFL, 0) == 0);
}

static struct ibv_cq *contended;
static volatile int stopping;

static void *flush_receives(void *argument)
{
	struct ibv_qp *qp = argument;
	struct ibv_wc wc[16];
	struct ibv_recv_wr wr = {.wr_id = 1}, *bad;
	/* Completes at once, in this thread: the queue pair is in ERR. Polls as many as it adds, so that nothing overruns. */
	while (!stopping) {
		FAILS(ibv_post_recv(qp, &wr, &bad), 0);
		while (ibv_poll_cq(contended, 16, wc) == 16)
			;
	}
	return NULL;
}

/* However many threads complete and poll, an arming gives one event. */
static void req_notify_cq_gives_one_event_per_arming(void)
{
	pthread_t threads[3];
	struct ibv_qp *qps[3];
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	struct ibv_qp_attr err = {.qp_state = IBV_QPS_ERR};
	CLAIM((contended = ibv_create_cq(ctx, 4096, &contended, channel, 0)));
	wants.send_cq = wants.recv_cq = contended;
	for (int i = 0; i < 3; i++) {
		qps[i] = self_connected(wants);
		FAILS(ibv_modify_qp(qps[i], &err, IBV_QP_STATE), 0);
		CLAIM(pthread_create(&threads[i], NULL, flush_receives, qps[i]) == 0);
	}
	for (int round = 0; round < 300; round++) {
		struct ibv_cq *from;
		void *cookie;
		FAILS(ibv_req_notify_cq(contended, round & 1), 0);
		CLAIM(ibv_get_cq_event(channel, &from, &cookie) == 0 && from == contended && cookie == &contended);
		ibv_ack_cq_events(contended, 1);
		struct pollfd second = {.fd = channel->fd, .events = POLLIN};
		CLAIM(poll(&second, 1, 0) == 0);
	}
	stopping = 1;
	for (int i = 0; i < 3; i++) {
		CLAIM(pthread_join(threads[i], NULL) == 0);
		FAILS(ibv_destroy_qp(qps[i]), 0);
	}
	FAILS(ibv_destroy_cq(contended), 0);
}

int main(void)
{
	open_device();
	poll_cq_fails_with_a_negative_value();
	poll_cq_returns_as_many_as_asked_for_and_there();
	poll_cq_overrun_ends_the_queue();
	post_recv_stops_at_the_first_failure();
	post_recv_is_refused_where_an_srq_receives();
	post_recv_on_ud_has_40_bytes_in_front();
	req_notify_cq_fires_for_what_it_was_armed_for();
	req_notify_cq_gives_one_event_per_arming();
	FAILS(ibv_dereg_mr(mr), 0);
	FAILS(ibv_destroy_cq(cq), 0);
	FAILS(ibv_destroy_comp_channel(channel), 0);
	FAILS(ibv_dealloc_pd(pd), 0);
	FAILS(ibv_close_device(ctx), 0);
	return 0;
}
