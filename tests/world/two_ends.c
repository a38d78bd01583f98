/* Timers: a request ends when its answer comes, or when its time is over. Both look whether it has ended, and end it later: if the
   answer comes just then, it ends twice. */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { REQUESTS = 20 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int has_ended, references;

/* Ends the request, unless it has ended. */
static void end(const char *why)
{
	pthread_mutex_lock(&lock);
	int is_first = !has_ended;
#ifdef FIXED
	has_ended = 1;
#endif
	pthread_mutex_unlock(&lock);
	if (!is_first)
		return;
	if (write(1, why, 7) != 7)
		exit(9);
	pthread_mutex_lock(&lock);
	has_ended = 1; /* BUG: it may have ended since it was looked at. */
	if (--references < 0) {
		puts("the request ended twice");
		exit(1);
	}
	pthread_mutex_unlock(&lock);
}

static void *answer(void *unused)
{
	usleep(2000);
	end("answer\n");
	return unused;
}

int main(void)
{
	int timer = timerfd_create(CLOCK_MONOTONIC, 0);
	for (int request = 0; request < REQUESTS; request++) {
		struct itimerspec when = {.it_value = {.tv_nsec = 3000000}};
		pthread_t thread;
		has_ended = 0;
		references = 1;
		if (timer < 0 || timerfd_settime(timer, 0, &when, NULL) || pthread_create(&thread, NULL, answer, NULL))
			return 9;
		struct pollfd ready = {.fd = timer, .events = POLLIN};
		if (poll(&ready, 1, -1) != 1)
			return 9;
		end("timer \n");
		pthread_join(thread, NULL);
	}
	return 0;
}
