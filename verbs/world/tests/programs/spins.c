/* Two threads, and then two processes, tell each other by memory alone whose turn it is, and make no call while
   they wait: as programs do that look for the last byte of a message. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 20 };

static void take_turns(atomic_int *turn, int own) {
    for (int round = 0; round < ROUNDS; round++) {
        while (atomic_load_explicit(turn, memory_order_relaxed) % 2 != own) {
        }
        getppid();
        atomic_fetch_add(turn, 1);
    }
}

static atomic_int between_threads;

static void *second(void *unused) {
    take_turns(&between_threads, 1);
    return unused;
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, second, NULL);
    take_turns(&between_threads, 0);
    pthread_join(thread, NULL);
    atomic_int *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return 1;
    pid_t child = fork();
    if (child == 0) {
        take_turns(shared, 1);
        _exit(0);
    }
    take_turns(shared, 0);
    waitpid(child, NULL, 0);
    printf("%d %d\n", between_threads, *shared);
    return 0;
}
