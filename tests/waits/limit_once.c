/* A thread posts receives when the shared receive queue runs low, and does not arm its limit again. */
#include "srq.h"
#include <pthread.h>

static struct ends ends;
static struct ibv_srq *srq;

static void arm(void)
{
	struct ibv_srq_attr attr = {.srq_limit = 2};
	MUST(!ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT));
}

static void *refill(void *argument)
{
	(void)argument;
	for (int rounds = 0; rounds < 3; rounds++) {
		struct ibv_async_event event;
		MUST(!ibv_get_async_event(ends.context, &event));
		MUST(event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED);
		for (int k = 0; k < 4; k++)
			MUST(!post_shared(&ends, srq, k));
#ifdef FIXED
		if (rounds < 2)
			arm();
#endif
		ibv_ack_async_event(&event);
	}
	return NULL;
}

int main(void)
{
	pthread_t thread;
	open_device(&ends);
	srq = make_shared_ends(&ends);
	for (int k = 0; k < 4; k++)
		MUST(!post_shared(&ends, srq, k));
	arm();
	MUST(!pthread_create(&thread, NULL, refill, NULL));
	alarm(120);
	for (int k = 0; k < 12; k++) {
		MUST(!post(&ends, IBV_WR_SEND, IBV_SEND_SIGNALED));
		MUST(poll_one(ends.send_cq).status == IBV_WC_SUCCESS);
		MUST(poll_one(ends.recv_cq).status == IBV_WC_SUCCESS);
	}
	MUST(!pthread_join(thread, NULL));
	close_shared(&ends, srq);
	return 0;
}
