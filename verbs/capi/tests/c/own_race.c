/* Two threads post receive requests and count them without a lock: ThreadSanitizer is to find that. */
#include "expect.h"
#include <pthread.h>

static struct ibv_qp *one;
static unsigned long counted;

static void *posts(void *nothing)
{
	for (int i = 0; i < 8; i++) {
		post_receive(one, 1, 0, 64);
		counted++;
	}
	return nothing;
}

int main(void)
{
	pthread_t threads[2];
	struct ibv_qp *other;
	open_device();
	one = pair(IBV_QPT_RC, &other);
	for (int i = 0; i < 2; i++)
		CLAIM(pthread_create(&threads[i], NULL, posts, NULL) == 0);
	for (int i = 0; i < 2; i++)
		CLAIM(pthread_join(threads[i], NULL) == 0);
	printf("%lu\n", counted);
	return 0;
}
