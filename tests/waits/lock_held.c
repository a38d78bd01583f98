/* A thread polls with a lock held for which the thread waits that would post. */
#include "ends.h"
#include <pthread.h>

static struct ends ends;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both;

static void *posts(void *argument)
{
	(void)argument;
	pthread_barrier_wait(&both);
	MUST(!pthread_mutex_lock(&lock));
	MUST(!post(&ends, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED));
	MUST(!pthread_mutex_unlock(&lock));
	return NULL;
}

int main(void)
{
	pthread_t thread;
	open_device(&ends);
	make_ends(&ends, 8);
	connect_ends(&ends);
	MUST(!pthread_barrier_init(&both, NULL, 2) && !pthread_create(&thread, NULL, posts, NULL));
	MUST(!pthread_mutex_lock(&lock));
	pthread_barrier_wait(&both);
	alarm(120);
#ifdef FIXED
	MUST(!pthread_mutex_unlock(&lock));
#endif
	MUST(poll_one(ends.send_cq).status == IBV_WC_SUCCESS); // HERE
#ifndef FIXED
	MUST(!pthread_mutex_unlock(&lock));
#endif
	MUST(!pthread_join(thread, NULL));
	close_device(&ends);
	return 0;
}
