/* For the programs beside this one: a clock, times of round trips, and a second process that dies with the first. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_SAMPLES 2000000

static uint32_t samples_ns[MAX_SAMPLES];
static size_t sample_count;

static inline uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The seconds that the program's only argument asks for, in nanoseconds. */
static inline uint64_t duration_ns(int argc, char **argv)
{
    double seconds = argc == 2 ? atof(argv[1]) : 0;
    if (!(seconds > 0 && seconds < 1000)) {
        fprintf(stderr, "usage: %s SECONDS\n", argv[0]);
        exit(2);
    }
    return (uint64_t)(seconds * 1e9);
}

static inline void or_die(int good, const char *what)
{
    if (!good) {
        perror(what);
        exit(1);
    }
}

static inline void *shared_memory(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    or_die(memory != MAP_FAILED, "mmap");
    return memory;
}

/* fork; the child is killed when the parent ends, however it ends. */
static inline pid_t second_process(void)
{
    pid_t parent = getpid(), child = fork();
    or_die(child >= 0, "fork");
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
    }
    return child;
}

static inline int by_value(const void *left, const void *right)
{
    uint32_t l = *(const uint32_t *)left, r = *(const uint32_t *)right;
    return (l > r) - (l < r);
}

/* Calls `exchange` over and over for that time, then prints the median and the 99th percentile of half its time, in us. */
static inline void measure_half_round_trips(uint64_t limit_ns, void (*exchange)(void *), void *argument)
{
    uint64_t begun = now_ns(), warm = begun + limit_ns / 10, end = begun + limit_ns, before = begun;
    while (before < end && sample_count < MAX_SAMPLES) {
        exchange(argument);
        uint64_t after = now_ns();
        /* One sample at least, however slow the machine is. */
        if (before >= warm || after >= end)
            samples_ns[sample_count++] = after - before < UINT32_MAX ? (uint32_t)(after - before) : UINT32_MAX;
        before = after;
    }
    qsort(samples_ns, sample_count, sizeof *samples_ns, by_value);
    printf("%.3f %.3f\n", samples_ns[sample_count / 2] / 2e3, samples_ns[sample_count * 99 / 100] / 2e3);
}

static inline void end_second_process(pid_t child)
{
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}
