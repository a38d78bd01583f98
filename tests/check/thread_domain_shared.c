/* Runs with a fault plan that lets ibv_post_send take a second. */
#include "ends.h"
#include <pthread.h>
#include <stdatomic.h>

static struct ends ends;
static struct ibv_cq_ex *cq;
static pthread_barrier_t together;
static atomic_int is_posted;

static void *posts(void *nothing)
{
	pthread_barrier_wait(&together);
	MUST(!post(&ends, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED));
	is_posted = 1;
	return nothing;
}

int main(void)
{
	open_device(&ends);
	struct ibv_td_init_attr none = {0};
	struct ibv_td *td = ibv_alloc_td(ends.context, &none);
	MUST(td);
	struct ibv_parent_domain_init_attr parent = {.pd = ends.pd, .td = td};
	struct ibv_pd *pd = ibv_alloc_parent_domain(ends.context, &parent), *plain = ends.pd;
	MUST(pd);
	struct ibv_cq_init_attr_ex wants = {
		.cqe = 8, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD, .parent_domain = pd};
	MUST(cq = ibv_create_cq_ex(ends.context, &wants));
	ends.send_cq = ibv_cq_ex_to_cq(cq);
	MUST(ends.recv_cq = ibv_create_cq(ends.context, 8, NULL, NULL, 0));
	ends.pd = pd;
	ends.here = make_qp(&ends, IBV_QPT_RC, ends.send_cq);
	ends.pd = plain;
	ends.there = make_qp(&ends, IBV_QPT_RC, ends.recv_cq);
	connect_ends(&ends);
	MUST(!pthread_barrier_init(&together, NULL, 2));
	pthread_t thread;
	MUST(!pthread_create(&thread, NULL, posts, NULL));
	pthread_barrier_wait(&together);
	struct ibv_wc wc;
	int found = 0;
#ifdef FIXED
	MUST(!pthread_join(thread, NULL));
#endif
	while (found == 0)
		found = ibv_poll_cq(ends.send_cq, 1, &wc); // BUG: thread-domain-shared
	MUST(found == 1 && is_posted);
#ifndef FIXED
	MUST(!pthread_join(thread, NULL));
#endif
	destroy_ends(&ends);
	ends.here = ends.there = NULL;
	ends.send_cq = ends.recv_cq = NULL;
	MUST(!ibv_dealloc_pd(pd) && !ibv_dealloc_td(td));
	close_device(&ends);
	return 0;
}
