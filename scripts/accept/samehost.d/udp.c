/* A ping-pong of datagrams of 8 bytes between two processes on the loopback interface, both of which spin on recv. Prints the
 * median and the 99th percentile of half a round trip, in us. */
#define _GNU_SOURCE
#include "samples.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>

static int bound_socket(struct sockaddr_in *address)
{
    socklen_t length = sizeof *address;
    int descriptor = socket(AF_INET, SOCK_DGRAM, 0);
    or_die(descriptor >= 0, "socket");
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    or_die(bind(descriptor, (struct sockaddr *)address, length) == 0, "bind");
    or_die(getsockname(descriptor, (struct sockaddr *)address, &length) == 0, "getsockname");
    return descriptor;
}

static void send_datagram(int descriptor, uint64_t value)
{
    or_die(send(descriptor, &value, sizeof value, 0) == sizeof value, "send");
}

static uint64_t receive_datagram(int descriptor)
{
    uint64_t value;
    ssize_t bytes;
    do
        bytes = recv(descriptor, &value, sizeof value, MSG_DONTWAIT);
    while (bytes < 0 && (errno == EAGAIN || errno == EINTR));
    or_die(bytes == sizeof value, "recv");
    return value;
}

static void exchange(void *argument)
{
    static uint64_t value;
    int descriptor = *(int *)argument;
    send_datagram(descriptor, ++value);
    if (receive_datagram(descriptor) != value)
        abort();
}

int main(int argc, char **argv)
{
    uint64_t limit_ns = duration_ns(argc, argv);
    struct sockaddr_in address[2];
    int first = bound_socket(&address[0]), second = bound_socket(&address[1]);
    or_die(connect(first, (struct sockaddr *)&address[1], sizeof address[1]) == 0, "connect");
    or_die(connect(second, (struct sockaddr *)&address[0], sizeof address[0]) == 0, "connect");
    pid_t child = second_process();
    if (child == 0)
        for (;;)
            send_datagram(second, receive_datagram(second));
    measure_half_round_trips(limit_ns, exchange, &first);
    end_second_process(child);
    return 0;
}
