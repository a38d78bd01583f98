/* Waits for children in each way: by number, group, any and pidfd, with and without WNOWAIT, before and after their end,
 * with and without a structure; then for one with threads whose first one a signal ends; then a thread that is not the first one executes
 * another program. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int child(int early, int code)
{
    int number = fork();
    if (number == 0) {
        if (!early)
            usleep(2000);
        _exit(code);
    }
    if (early)
        usleep(5000);
    return number;
}

static void *sleep_for_ever(void *unused)
{
    pause();
    return unused;
}

/* Only the first thread takes the signal, which ends all of them. */
static int killed(void)
{
    int number = fork(), status = 0;
    if (number == 0) {
        pthread_t thread;
        sigset_t one;
        sigemptyset(&one);
        sigaddset(&one, SIGTERM);
        pthread_sigmask(SIG_BLOCK, &one, NULL);
        pthread_create(&thread, NULL, sleep_for_ever, NULL);
        pthread_sigmask(SIG_UNBLOCK, &one, NULL);
        pause();
        _exit(1);
    }
    usleep(2000);
    kill(number, SIGTERM);
    waitpid(number, &status, 0);
    printf("a signal ended the first of two threads: %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : -1);
    return !WIFSIGNALED(status) || WTERMSIG(status) != SIGTERM;
}

static void *execute(void *missing)
{
    if (missing)
        execl("/no/such/program", "program", (char *)0);
    else
        execl("/proc/self/exe", "children", "executed", (char *)0);
    return (void *)1;
}

int main(int count, char **words)
{
    if (count > 1) {
        printf("executed by a thread: process %d is its first thread: %d\n", getpid(), getpid() == (int)syscall(SYS_gettid));
        return 0;
    }
    int code = 1;
    for (int early = 0; early < 2; early++)
        for (int keep = 0; keep < 2; keep++)
            for (int way = 0; way < 4; way++, code++) {
                int number = child(early, code), descriptor = (int)syscall(SYS_pidfd_open, number, 0);
                int kinds[] = {P_PID, P_ALL, P_PGID, 3 /* P_PIDFD */};
                int whom[] = {number, 0, getpgid(0), descriptor};
                siginfo_t about = {0};
                int done = waitid(kinds[way], whom[way], &about, WEXITED | (keep ? WNOWAIT : 0));
                if (keep && waitid(P_PID, number, NULL, WEXITED))
                    done = -1;
                printf("way %d: %d, status %d of %d\n", way, done, about.si_status, code);
                if (done || about.si_status != code)
                    return 1;
                close(descriptor);
            }
    siginfo_t none = {0};
    int number = child(0, 9);
    printf("no child yet: %d, %d\n", waitid(P_PID, number, &none, WEXITED | WNOHANG), none.si_pid);
    printf("no structure: %d\n", waitid(P_ALL, 0, NULL, WEXITED));
    if (killed())
        return 1;
    pthread_t sleeper, executes;
    pthread_create(&sleeper, NULL, sleep_for_ever, NULL);
    pthread_create(&executes, NULL, execute, words);
    void *result;
    pthread_join(executes, &result);
    printf("a program that is missing: %ld\n", (long)result);
    fflush(stdout);
    pthread_create(&executes, NULL, execute, NULL);
    pthread_join(executes, NULL);
    return 1;
}
