/* One thread polls under a spin lock, as UCX does, and another spins for it to post, both on one processor. A poll that gives
 * the processor away while it holds the lock gives it to a thread that can do nothing with it: the second thread would never
 * find the lock free. */
#define _GNU_SOURCE
#include "expect.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define ROUNDS 20

static pthread_spinlock_t lock;
static atomic_int completed;

static void *progress(void *unused)
{
	struct ibv_wc wc[8];
	while (completed < ROUNDS) {
		pthread_spin_lock(&lock);
		for (int polls = 0; polls < 4; polls++) {
			int count = ibv_poll_cq(cq, 8, wc);
			CLAIM(count >= 0);
			for (int i = 0; i < count; i++)
				CLAIM(wc[i].status == IBV_WC_SUCCESS);
			completed += count;
		}
		pthread_spin_unlock(&lock);
		/* A part of the time this thread does not hold the lock: its time slice may end there. */
		for (volatile int i = 0; i < 10000; i++)
			;
	}
	return unused;
}

int main(void)
{
	cpu_set_t allowed;
	CLAIM(sched_getaffinity(0, sizeof(allowed), &allowed) == 0);
	int processor = 0;
	while (!CPU_ISSET(processor, &allowed))
		processor++;
	CPU_ZERO(&allowed);
	CPU_SET(processor, &allowed);
	CLAIM(sched_setaffinity(0, sizeof(allowed), &allowed) == 0);

	open_device();
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	struct ibv_qp *qp = ibv_create_qp(pd, &wants);
	CLAIM(qp);
	init(qp);
	connect_to(qp, qp->qp_num);
	struct ibv_sge sge = piece(0, 8);
	struct ibv_send_wr *bad, write = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = (uintptr_t)memory + 64, .rkey = mr->rkey},
	};
	CLAIM(pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE) == 0);
	pthread_t thread;
	CLAIM(pthread_create(&thread, NULL, progress, NULL) == 0);
	for (int round = 0; round < ROUNDS; round++) {
		pthread_spin_lock(&lock);
		FAILS(ibv_post_send(qp, &write, &bad), 0);
		pthread_spin_unlock(&lock);
		while (completed == round)
			;
	}
	CLAIM(pthread_join(thread, NULL) == 0);
	return 0;
}
