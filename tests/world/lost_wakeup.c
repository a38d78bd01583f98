/* Threads: the consumer looks whether there is something, and waits. If the producer puts something there in between, its signal
   wakes no thread, and all threads wait for ever. */
#include <pthread.h>
#include <unistd.h>

enum { ROUNDS = 20 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER;
static int things;

static int note(const char *text)
{
	return write(1, text, 5) == 5;
}

static void *consume(void *unused)
{
	for (int round = 1; round <= ROUNDS; round++) {
		pthread_mutex_lock(&lock);
#ifndef FIXED
		int is_there = things >= round;
		pthread_mutex_unlock(&lock);
		note(is_there ? "has.\n" : "none\n");
		pthread_mutex_lock(&lock);
		if (!is_there)
			pthread_cond_wait(&filled, &lock); /* BUG */
#else
		note(things >= round ? "has.\n" : "none\n");
		while (things < round)
			pthread_cond_wait(&filled, &lock);
#endif
		pthread_mutex_unlock(&lock);
	}
	return unused;
}

int main(void)
{
	pthread_t consumer;
	if (pthread_create(&consumer, NULL, consume, NULL))
		return 9;
	for (int round = 1; round <= ROUNDS; round++) {
		usleep(500);
		pthread_mutex_lock(&lock);
		things++;
		pthread_cond_signal(&filled);
		pthread_mutex_unlock(&lock);
	}
	pthread_join(consumer, NULL);
	return 0;
}
