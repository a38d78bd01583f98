// Signals that are blocked and pending make a descriptor readable (signalfd), for read, poll, select and epoll.
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>


static void take(int file, const char *how)
{
    struct signalfd_siginfo taken;
    ssize_t length = read(file, &taken, sizeof taken);
    if (length != sizeof taken) {
        printf("%s: %s\n", how, strerror(errno));
        exit(1);
    }
    printf("%s: signal %u%s\n", how, taken.ssi_signo, taken.ssi_signo == SIGCHLD ? " of a child" : "");
}

static void *sends(void *number)
{
    usleep(1000);
    kill(getpid(), *(int *)number);
    return NULL;
}

static void send_by_a_thread(pthread_t *thread, int *number)
{
    if (pthread_create(thread, NULL, sends, number) != 0)
        exit(1);
}

int main(void)
{
    sigset_t set;
    sigemptyset(&set);
    int signals[] = {SIGUSR1, SIGUSR2, SIGALRM, SIGCHLD};
    for (int i = 0; i < 4; i++)
        sigaddset(&set, signals[i]);
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0)
        return 1;
    int file = signalfd(-1, &set, SFD_CLOEXEC);
    int never_waits = signalfd(-1, &set, SFD_NONBLOCK);
    if (file < 0 || never_waits < 0)
        return 1;
    struct signalfd_siginfo none;
    ssize_t length = read(never_waits, &none, sizeof none);
    printf("nothing is pending: %zd %s\n", length, strerror(errno));

    pthread_t thread;
    send_by_a_thread(&thread, &signals[0]);
    take(file, "read");
    pthread_join(thread, NULL);

    send_by_a_thread(&thread, &signals[1]);
    struct pollfd asked = {.fd = file, .events = POLLIN};
    int ready = poll(&asked, 1, -1);
    printf("poll: %d\n", ready);
    take(never_waits, "after poll");
    pthread_join(thread, NULL);

    int epoll = epoll_create1(0);
    struct epoll_event wanted = {.events = EPOLLIN, .data.fd = file}, found;
    if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, file, &wanted) != 0)
        return 1;
    struct timeval before, after;
    gettimeofday(&before, NULL);
    ready = epoll_wait(epoll, &found, 1, 50);
    gettimeofday(&after, NULL);
    long ms = (after.tv_sec - before.tv_sec) * 1000 + (after.tv_usec - before.tv_usec) / 1000;
    printf("epoll, nothing pending: %d after %ld ms\n", ready, ms);
    struct itimerval soon = {.it_value.tv_usec = 20000};
    setitimer(ITIMER_REAL, &soon, NULL);
    ready = epoll_wait(epoll, &found, 1, -1);
    printf("epoll: %d\n", ready);
    take(file, "after epoll");

    pid_t child = fork();
    if (child == 0) {
        usleep(3000);
        _exit(0);
    }
    fd_set reads;
    FD_ZERO(&reads);
    FD_SET(file, &reads);
    ready = select(file + 1, &reads, NULL, NULL, NULL);
    printf("select: %d\n", ready);
    take(file, "after select");
    waitpid(child, NULL, 0);

    // Another process sends while this one is in epoll.
    child = fork();
    if (child == 0) {
        usleep(3000);
        kill(getppid(), SIGUSR2);
        _exit(0);
    }
    ready = epoll_wait(epoll, &found, 1, 10000);
    printf("epoll, from another process: %d\n", ready);
    take(file, "after epoll");
    waitpid(child, NULL, 0);
    return 0;
}
