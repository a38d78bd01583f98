/* A ping-pong of two processes that sleep on a futex: each wakes the other and sleeps at once. Prints the median and the 99th
 * percentile of half a round trip, in us: the price of a wake-up that no device can go below. */
#define _GNU_SOURCE
#include "samples.h"
#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/syscall.h>

/* Whose turn it is, on a cache line of its own. */
struct turn {
    _Alignas(64) _Atomic uint32_t of_second;
};

static void wake(struct turn *turn, uint32_t value)
{
    atomic_store(&turn->of_second, value);
    syscall(SYS_futex, &turn->of_second, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void sleep_until(struct turn *turn, uint32_t value)
{
    while (atomic_load(&turn->of_second) != value)
        syscall(SYS_futex, &turn->of_second, FUTEX_WAIT, !value, NULL, NULL, 0);
}

static void exchange(void *argument)
{
    wake(argument, 1);
    sleep_until(argument, 0);
}

int main(int argc, char **argv)
{
    uint64_t limit_ns = duration_ns(argc, argv);
    struct turn *turn = shared_memory(sizeof *turn);
    pid_t child = second_process();
    if (child == 0)
        for (;;) {
            sleep_until(turn, 1);
            wake(turn, 0);
        }
    measure_half_round_trips(limit_ns, exchange, turn);
    end_second_process(child);
    return 0;
}
