/* Two threads add to a counter without a lock, and without a call between the load and the store. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

enum { ROUNDS = 8, ADDITIONS = 10 };

static volatile int counter;

static void *adds(void *unused) {
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < ADDITIONS; i++) counter = counter + 1;
        usleep(10);
    }
    return unused;
}

int main(void) {
    pthread_t other;
    if (pthread_create(&other, NULL, adds, NULL) != 0) return 9;
    adds(NULL);
    pthread_join(other, NULL);
    printf("%d\n", counter);
    return counter != 2 * ROUNDS * ADDITIONS;
}
