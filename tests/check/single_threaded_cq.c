/* Runs with a fault plan that lets the first call of ibv_req_notify_cq take a second. */
#include "ends.h"
#include <pthread.h>
#include <stdatomic.h>

static struct ibv_cq *cq;
static pthread_barrier_t together;
static atomic_int is_armed;

static void *arms(void *nothing)
{
	pthread_barrier_wait(&together);
	MUST(!ibv_req_notify_cq(cq, 0));
	is_armed = 1;
	return nothing;
}

int main(void)
{
	struct ends ends;
	open_device(&ends);
	struct ibv_cq_init_attr_ex wants = {.cqe = 8, .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS};
#ifndef FIXED
	wants.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
#endif
	struct ibv_cq_ex *extended = ibv_create_cq_ex(ends.context, &wants);
	MUST(extended);
	cq = ends.send_cq = ibv_cq_ex_to_cq(extended);
	MUST(!pthread_barrier_init(&together, NULL, 2));
	pthread_t thread;
	MUST(!pthread_create(&thread, NULL, arms, NULL));
	pthread_barrier_wait(&together);
	struct ibv_wc wc;
	while (!is_armed)
		MUST(!ibv_poll_cq(cq, 1, &wc)); // BUG: thread-domain-shared
	MUST(!pthread_join(thread, NULL));
	close_device(&ends);
	return 0;
}
