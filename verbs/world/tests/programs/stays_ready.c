/* One thread asks again and again for a descriptor that stays ready, as UCX does that cannot have its lock now;
 * the other one, which would end that, looks at the clock only. */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static int ends[2];
static atomic_int is_done;

static void *looks(void *unused) {
    struct pollfd entry = {.fd = ends[0], .events = POLLIN};
    while (!atomic_load(&is_done)) {
        poll(&entry, 1, -1);
        sched_yield();
    }
    return unused;
}

int main(void) {
    if (pipe(ends) != 0 || write(ends[1], "x", 1) != 1) return 1;
    pthread_t thread;
    pthread_create(&thread, NULL, looks, NULL);
    struct timespec now;
    for (int round = 0; round < 1000; round++) clock_gettime(CLOCK_MONOTONIC, &now);
    atomic_store(&is_done, 1);
    pthread_join(thread, NULL);
    puts("done");
    return 0;
}
