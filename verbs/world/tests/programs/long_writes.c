/* Writes that are longer than the room for them, each read by another process: by write, writev, send, sendmsg, sendfile and
 * splice, into pipes and socket pairs, or, if asked for, TCP; then messages and semaphores of System V, for which the other one waits.
 * First, reads and writes of no bytes, which wait for none. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 600000 };
static unsigned char bytes[SIZE];

static unsigned char expected(size_t at)
{
    return (unsigned char)(at * 7 + at / 4096);
}

static void make(const char *kind, int *ends)
{
    if (!strcmp(kind, "pipe")) {
        if (pipe(ends))
            exit(9);
    } else if (!strcmp(kind, "unix")) {
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
            exit(9);
    } else {
        int listener = socket(AF_INET, SOCK_STREAM, 0);
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t length = sizeof address;
        int room = 32768;
        setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
        if (bind(listener, (void *)&address, length) || listen(listener, 1) ||
            getsockname(listener, (void *)&address, &length))
            exit(9);
        ends[1] = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
        if (connect(ends[1], (void *)&address, length))
            exit(9);
        ends[0] = accept(listener, 0, 0);
        close(listener);
    }
}

static long move(const char *how, int end)
{
    struct iovec parts[3] = {{bytes, 100001}, {bytes + 100001, 1}, {bytes + 100002, SIZE - 100002}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 3};
    if (!strcmp(how, "write"))
        return write(end, bytes, SIZE);
    if (!strcmp(how, "writev"))
        return writev(end, parts, 3);
    if (!strcmp(how, "send"))
        return send(end, bytes, SIZE, MSG_NOSIGNAL);
    if (!strcmp(how, "sendmsg"))
        return sendmsg(end, &message, MSG_NOSIGNAL);
    int file = memfd_create("file", 0);
    if (write(file, bytes, SIZE) != SIZE)
        return -1;
    off_t from = 0;
    long moved = 0;
    while (moved < SIZE) {
        size_t rest = (size_t)(SIZE - moved);
        long now = !strcmp(how, "sendfile") ? sendfile(end, file, &from, rest) : splice(file, &from, end, NULL, rest, 0);
        if (now <= 0)
            return -errno;
        moved += now;
    }
    return moved;
}

static int try(const char *kind, const char *how)
{
    int ends[2], status;
    make(kind, ends);
    if (fork() == 0) {
        close(ends[0]);
        _exit(move(how, ends[1]) != SIZE);
    }
    close(ends[1]);
    static unsigned char got[70000];
    size_t all = 0, wrong = 0;
    for (long now; (now = read(ends[0], got, sizeof got)) > 0; all += (size_t)now)
        for (long at = 0; at < now; at++)
            wrong += got[at] != expected(all + (size_t)at);
    close(ends[0]);
    wait(&status);
    printf("%s by %s: %zu bytes, %zu wrong, the writer ended with %d\n", kind, how, all, wrong, status);
    return all != SIZE || wrong || status;
}

static void on_signal(int number)
{
    (void)number;
}

/* A signal ends a write of which a part is done: it returns how much. */
static int interrupted(void)
{
    int ends[2], status;
    make("pipe", ends);
    if (fork() == 0) {
        struct sigaction action = {.sa_handler = on_signal};
        sigaction(SIGALRM, &action, NULL);
        ualarm(1000, 0);
        long moved = write(ends[1], bytes, SIZE);
        _exit(moved <= 0 || moved >= SIZE);
    }
    wait(&status);
    printf("a write that a signal ends: %d\n", status);
    return status;
}

static int messages(void)
{
    struct { long kind; char text[8]; } message = {1, "hello"};
    int queue = msgget(IPC_PRIVATE, 0600), semaphores = semget(IPC_PRIVATE, 1, 0600), status;
    struct sembuf take = {0, -1, 0}, give = {0, 1, 0}, look = {0, -1, IPC_NOWAIT};
    struct timespec time = {0, 1000000};
    if (semop(semaphores, &look, 1) != -1 || errno != EAGAIN)
        return 1;
    if (semtimedop(semaphores, &take, 1, &time) != -1 || errno != EAGAIN || take.sem_flg)
        return 1;
    if (fork() == 0) {
        if (semop(semaphores, &take, 1))
            _exit(1);
        _exit(msgsnd(queue, &message, sizeof message.text, 0) != 0);
    }
    usleep(1000);
    memset(message.text, 0, sizeof message.text);
    if (semop(semaphores, &give, 1) || msgrcv(queue, &message, sizeof message.text, 0, 0) != sizeof message.text)
        return 1;
    wait(&status);
    msgctl(queue, IPC_RMID, NULL);
    semctl(semaphores, 0, IPC_RMID);
    printf("a message: %s, %d\n", message.text, status);
    return status;
}

/* A read of no bytes asks whether a file can be read: it returns at once, also if nothing is there, as a write into a full pipe does. */
static int nothing(void)
{
    int ends[2], full[2];
    for (int kind = 0; kind < 2; kind++) {
        make(kind ? "unix" : "pipe", ends);
        if (read(ends[0], NULL, 0))
            return 1;
    }
    make("pipe", full);
    fcntl(full[1], F_SETFL, O_NONBLOCK);
    while (write(full[1], bytes, 4096) == 4096)
        ;
    fcntl(full[1], F_SETFL, 0);
    return write(full[1], bytes, 0) != 0;
}

/* With the name of a kind as an argument, only that one. */
int main(int count, char **words)
{
    for (size_t at = 0; at < SIZE; at++)
        bytes[at] = expected(at);
    int wrong = nothing();
    const char *kinds[] = {"pipe", "unix", "tcp"}, *ways[] = {"write", "writev", "sendfile", "splice", "send", "sendmsg"};
    for (int kind = 0; kind < 3; kind++) {
        if (count > 1 ? strcmp(words[1], kinds[kind]) : kind == 2)
            continue;
        for (int way = 0; way < (kind == 0 ? 4 : 6); way++) {
            /* splice moves between pipes and others. */
            if (kind > 0 && way == 3)
                continue;
            wrong |= try(kinds[kind], ways[way]);
        }
    }
    return wrong | interrupted() | messages();
}
