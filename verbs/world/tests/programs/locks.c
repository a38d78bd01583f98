/* Locks with priority inheritance, locks whose owner is gone, and signals that are waited for. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 4, ROUNDS = 5 };

static pthread_mutex_t inherits, robust;
static int turns;

/* What is printed shows in which order the threads had the lock. */
static void *takes_turns(void *name) {
    for (int round = 0; round < ROUNDS; round++) {
        if (pthread_mutex_lock(&inherits) != 0) printf("not locked\n");
        int turn = ++turns;
        printf("%ld ", (long)name);
        usleep(100);
        if (turn != turns) printf("two at a time\n");
        pthread_mutex_unlock(&inherits);
    }
    return NULL;
}

static void *keeps_it(void *unused) {
    pthread_mutex_lock(&robust);
    return unused;
}

static pthread_mutexattr_t kind(int protocol, int robustness) {
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setprotocol(&kind, protocol);
    pthread_mutexattr_setrobust(&kind, robustness);
    pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
    return kind;
}

/* A process ends while it has the lock, and this one waits for it. */
static void owner_ends(pthread_mutex_t *lock, int protocol) {
    pthread_mutexattr_t shared = kind(protocol, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(lock, &shared);
    int ends[2];
    char byte;
    if (pipe(ends) != 0) return;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        pthread_mutex_lock(lock);
        if (write(ends[1], "x", 1) != 1) _exit(1);
        usleep(1000);
        _exit(0);
    }
    if (read(ends[0], &byte, 1) != 1) return;
    printf("%s\n", strerror(pthread_mutex_lock(lock)));
    pthread_mutex_consistent(lock);
    pthread_mutex_unlock(lock);
    waitpid(child, NULL, 0);
}

static void signals(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    struct timespec half = {0, 500000000};
    printf("%d ", sigtimedwait(&set, NULL, &half));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        usleep(1000);
        kill(getppid(), SIGUSR1);
        usleep(1000);
        _exit(0);
    }
    siginfo_t said;
    int one = sigwaitinfo(&set, &said), other = 0;
    sigwait(&set, &other);
    printf("%d %d %d\n", one == SIGUSR1, said.si_pid == child, other == SIGCHLD);
    waitpid(child, NULL, 0);
}

int main(void) {
    pthread_mutexattr_t own = kind(PTHREAD_PRIO_INHERIT, PTHREAD_MUTEX_STALLED);
    pthread_mutex_init(&inherits, &own);
    pthread_t threads[THREADS];
    for (long name = 0; name < THREADS; name++) pthread_create(&threads[name], NULL, takes_turns, (void *)name);
    for (int index = 0; index < THREADS; index++) pthread_join(threads[index], NULL);
    printf("\n");
    own = kind(PTHREAD_PRIO_NONE, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&robust, &own);
    pthread_create(&threads[0], NULL, keeps_it, NULL);
    pthread_join(threads[0], NULL);
    printf("%s\n", strerror(pthread_mutex_lock(&robust)));
    pthread_mutex_t *lock = mmap(NULL, sizeof *lock, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (lock == MAP_FAILED) return 1;
    owner_ends(lock, PTHREAD_PRIO_NONE);
    owner_ends(lock, PTHREAD_PRIO_INHERIT);
    signals();
    return 0;
}
