/* A queue pair for each message, an event for each completion, and sleeps between polls. */
#include "ends.h"

#include <pthread.h>
#include <stdatomic.h>

static void send_one(struct ends *ends)
{
	MUST(!post_receive(ends, ends->there));
	MUST(!post(ends, IBV_WR_SEND, IBV_SEND_SIGNALED | IBV_SEND_INLINE));
	poll_one(ends->send_cq);
	poll_one(ends->recv_cq);
}

static struct ibv_qp *make_inline(struct ends *ends, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr wants = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 8},
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *qp = ibv_create_qp(ends->pd, &wants);
	MUST(qp);
	return qp;
}

static void connect_anew(struct ends *ends)
{
	ends->here = make_inline(ends, ends->send_cq); // BUG: queue-pair-per-message
	ends->there = make_inline(ends, ends->recv_cq);
	connect_ends(ends);
}

static void disconnect(struct ends *ends)
{
	MUST(!ibv_destroy_qp(ends->here) && !ibv_destroy_qp(ends->there));
	ends->here = ends->there = NULL;
}

static void send_apart(struct ends *ends)
{
	for (int k = 0; k < 100; k++) {
		connect_anew(ends);
		send_one(ends);
		disconnect(ends);
	}
}

static void send_together(struct ends *ends)
{
	connect_anew(ends);
	for (int k = 0; k < 100; k++)
		send_one(ends);
	disconnect(ends);
}

/* A queue pair for each of many peers, which all have few messages, is no habit. */
static void send_to_many(struct ends *ends)
{
	struct ends all[100];
	for (int k = 0; k < 100; k++) {
		all[k] = *ends;
		connect_anew(&all[k]);
	}
	for (int k = 0; k < 100; k++)
		send_one(&all[k]);
	for (int k = 0; k < 100; k++)
		disconnect(&all[k]);
}

/* An event for each completion, or for two. */
static void sleep_for_events(struct ends *ends, int completions)
{
	struct ibv_cq *cq;
	void *context;
	MUST(!ibv_req_notify_cq(ends->send_cq, 0));
	for (int k = 0; k < 4000; k++) {
		for (int n = 0; n < completions; n++)
			MUST(!post(ends, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED | IBV_SEND_INLINE));
		MUST(!ibv_get_cq_event(ends->channel, &cq, &context)); // BUG: event-per-message
		ibv_ack_cq_events(cq, 1);
		for (int n = 0; n < completions; n++)
			poll_one(cq);
		MUST(!ibv_req_notify_cq(cq, 0));
	}
}

enum { TURNS = 200 };

static atomic_int turn;

/* Answers what the other thread asks for. */
static void *answer(void *argument)
{
	struct ends *ends = argument;
	for (int k = 1; k <= TURNS; k++) {
		while (atomic_load(&turn) < k)
			;
		MUST(!post(ends, IBV_WR_SEND, IBV_SEND_SIGNALED | IBV_SEND_INLINE));
		poll_one(ends->send_cq);
	}
	return NULL;
}

static void sleep_between_polls(struct ends *ends)
{
	struct ibv_wc wc;
	pthread_t thread;
	MUST(!pthread_create(&thread, NULL, answer, ends));
	for (int k = 1; k <= TURNS; k++) {
		MUST(!post_receive(ends, ends->there));
		MUST(ibv_poll_cq(ends->recv_cq, 1, &wc) == 0);
		atomic_store(&turn, k);
		do {
#ifndef FIXED
			usleep(1);
#endif
		} while (ibv_poll_cq(ends->recv_cq, 1, &wc) == 0); // BUG: sleeps-between-polls
	}
	MUST(!pthread_join(thread, NULL));
}

int main(void)
{
	struct ends ends;
	open_device(&ends);
	MUST(ends.channel = ibv_create_comp_channel(ends.context));
	MUST(ends.send_cq = ibv_create_cq(ends.context, 64, NULL, ends.channel, 0));
	MUST(ends.recv_cq = ibv_create_cq(ends.context, 64, NULL, NULL, 0));
#ifdef FIXED
	send_together(&ends);
	send_to_many(&ends);
#else
	(void)send_to_many, (void)send_together;
	send_apart(&ends);
#endif
	connect_anew(&ends);
#ifdef FIXED
	sleep_for_events(&ends, 2);
	(void)send_apart;
#else
	sleep_for_events(&ends, 1);
#endif
	sleep_between_polls(&ends);
	close_device(&ends);
	return 0;
}
