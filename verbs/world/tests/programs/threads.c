/* Five threads write their letters in turn under one lock; some wait for a condition. The order is that of the
   schedule. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#define THREADS 5
#define LETTERS 20

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int is_open, written;
static char letters[THREADS * LETTERS + 1];

static void *work(void *argument) {
    long number = (long)argument;
    for (int i = 0; i < LETTERS; i++) {
        pthread_mutex_lock(&lock);
        letters[written++] = (char)('a' + number);
        pthread_cond_broadcast(&changed);
        while (i == 10 && number != 3 && !is_open)
            pthread_cond_wait(&changed, &lock);
        if (number == 3 && i == 15) {
            is_open = 1;
            pthread_cond_broadcast(&changed);
        }
        pthread_mutex_unlock(&lock);
        if (i % 3 == 0)
            usleep((useconds_t)(100 * number));
    }
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    puts(letters);
    return 0;
}
