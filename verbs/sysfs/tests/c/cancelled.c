/* A thread that is cancelled while it waits in open(2), a cancellation point, ends as it does without the preload: what it
 * has to clean up is cleaned up, and its creator is told. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static int cleaned;
static const char *fifo;

static void clean(void *argument)
{
	(void)argument;
	cleaned = 1;
}

static void *wait_in_open(void *argument)
{
	(void)argument;
	pthread_cleanup_push(clean, NULL);
	open(fifo, O_RDONLY);
	pthread_cleanup_pop(0);
	return NULL;
}

int main(int count, char **arguments)
{
	pthread_t thread;
	void *result = NULL;
	if (count != 2 || (mkfifo(fifo = arguments[1], 0600) && errno != EEXIST))
		return 1;
	if (pthread_create(&thread, NULL, wait_in_open, NULL) || pthread_cancel(thread) || pthread_join(thread, &result))
		return 2;
	if (result != PTHREAD_CANCELED || !cleaned)
		return 3;
	puts("ok");
	return 0;
}
