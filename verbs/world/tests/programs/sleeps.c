/* Sleeps many times in a row by two calls of the kernel, and prints how long that took: the sum of the sleeps. */
#define _GNU_SOURCE
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <time.h>

enum { SLEEPS = 1000, SLEEP_NS = 1000 };

static const struct timespec SLEEP = {.tv_nsec = SLEEP_NS};

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

int main(void) {
    struct pollfd never = {.fd = eventfd(0, 0), .events = POLLIN};
    int64_t begin_ns = now_ns();
    for (int k = 0; k < SLEEPS; k++)
        nanosleep(&SLEEP, NULL);
    int64_t slept_ns = now_ns();
    for (int k = 0; k < SLEEPS; k++)
        if (ppoll(&never, 1, &SLEEP, NULL)) return 1;
    printf("%ld %ld\n", (long)(slept_ns - begin_ns), (long)(now_ns() - slept_ns));
    return 0;
}
