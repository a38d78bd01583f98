/* Two threads take two locks in different orders: in some orders of the schedule each has one and waits for the
   other. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER, other = PTHREAD_MUTEX_INITIALIZER;

static void *turn(void *argument) {
    pthread_mutex_t *first = argument ? &one : &other, *second = argument ? &other : &one;
    pthread_mutex_lock(first);
    usleep(100);
    pthread_mutex_lock(second);
    pthread_mutex_unlock(second);
    pthread_mutex_unlock(first);
    return NULL;
}

int main(void) {
    pthread_t threads[2];
    for (long i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, turn, (void *)i);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    puts("both had both");
    return 0;
}
