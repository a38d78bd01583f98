/* A ping-pong of two processes that spin, over two cache lines of shared memory of which each process writes one, all 64 bytes.
 * Prints the median and the 99th percentile of half a round trip, in us. */
#define _GNU_SOURCE
#include "samples.h"
#include <stdatomic.h>

struct line {
    _Alignas(64) uint64_t payload[7];
    _Atomic uint64_t sequence;
};

/* The first process writes line 0 and reads line 1, the second process the other way round. */
struct lines {
    struct line line[2];
    uint64_t sequence;
};

static void send_line(struct line *line, uint64_t sequence)
{
    for (int word = 0; word < 7; word++)
        line->payload[word] = sequence;
    atomic_store_explicit(&line->sequence, sequence, memory_order_release);
}

static void receive_line(struct line *line, uint64_t sequence)
{
    while (atomic_load_explicit(&line->sequence, memory_order_acquire) != sequence)
        ;
    for (int word = 0; word < 7; word++)
        if (line->payload[word] != sequence)
            abort();
}

static void exchange(void *argument)
{
    struct lines *lines = argument;
    uint64_t sequence = ++lines->sequence;
    send_line(&lines->line[0], sequence);
    receive_line(&lines->line[1], sequence);
}

int main(int argc, char **argv)
{
    uint64_t limit_ns = duration_ns(argc, argv);
    struct lines *lines = shared_memory(sizeof *lines);
    pid_t child = second_process();
    if (child == 0)
        for (uint64_t sequence = 1;; sequence++) {
            receive_line(&lines->line[0], sequence);
            send_line(&lines->line[1], sequence);
        }
    measure_half_round_trips(limit_ns, exchange, lines);
    end_second_process(child);
    return 0;
}
