/* A server with epoll, and three clients that are processes: the order in which their messages come is that of
   the schedule. It exits with 3 if the first message is of the last client, which is the mistake to find. */
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define CLIENTS 3
#define MESSAGES 4

static int client(struct sockaddr_in *server, int number) {
    int stream = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(stream, (struct sockaddr *)server, sizeof *server))
        return 1;
    for (int i = 0; i < MESSAGES; i++) {
        char message[32], answer;
        int length = sprintf(message, "c%d.%d ", number, i);
        if (write(stream, message, length) != length || read(stream, &answer, 1) != 1)
            return 1;
    }
    close(stream);
    return 0;
}

int main(int count, char **arguments) {
    int listener = socket(AF_INET, SOCK_STREAM, 0), set = epoll_create1(0), left = CLIENTS;
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof own;
    char all[512] = "";
    bind(listener, (struct sockaddr *)&own, length);
    listen(listener, CLIENTS);
    getsockname(listener, (struct sockaddr *)&own, &length);
    for (int i = 0; i < CLIENTS; i++)
        if (!fork())
            _exit(client(&own, i));
    struct epoll_event wanted = {.events = EPOLLIN, .data.fd = listener};
    epoll_ctl(set, EPOLL_CTL_ADD, listener, &wanted);
    while (left) {
        struct epoll_event ready[4];
        int found = epoll_wait(set, ready, 4, 1000);
        for (int i = 0; i < found; i++) {
            char part[64];
            if (ready[i].data.fd == listener) {
                wanted.data.fd = accept(listener, NULL, NULL);
                epoll_ctl(set, EPOLL_CTL_ADD, wanted.data.fd, &wanted);
                continue;
            }
            ssize_t got = read(ready[i].data.fd, part, sizeof part - 1);
            if (got <= 0) {
                close(ready[i].data.fd);
                left--;
                continue;
            }
            part[got] = 0;
            strcat(all, part);
            if (write(ready[i].data.fd, "k", 1) != 1)
                return 2;
        }
    }
    while (wait(NULL) > 0)
        ;
    puts(all);
    return count > 1 && !strncmp(all, arguments[1], strlen(arguments[1])) ? 3 : 0;
}
