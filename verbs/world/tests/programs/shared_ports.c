/* Sockets that share a port, of UDP over both versions of IP, and of TCP: who gets what is sent from eight ports. Then the socket that a filter
   chooses is closed, and a process ends that had one. */
#include <arpa/inet.h>
#include <linux/filter.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static struct sockaddr_in to(int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	return a;
}

static int sharing(int family, int kind, int port)
{
	struct sockaddr_in a = to(port);
	struct sockaddr_in6 b = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	int one = 1, s = socket(family, kind | SOCK_NONBLOCK, 0);
	if (s < 0 || setsockopt(s, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one) ||
	    bind(s, family == AF_INET6 ? (void *)&b : (void *)&a, family == AF_INET6 ? sizeof b : sizeof a))
		exit(9);
	if (kind == SOCK_STREAM && listen(s, 8))
		exit(8);
	return s;
}

/* Sends a datagram, or connects, from each of eight ports. */
static void send_to(int port, int kind, int first)
{
	struct sockaddr_in a = to(port);
	for (int k = 0; k < 8; k++) {
		struct sockaddr_in own = to(first + k);
		int s = socket(AF_INET, kind, 0);
		if (bind(s, (void *)&own, sizeof own) || connect(s, (void *)&a, sizeof a) || (kind == SOCK_DGRAM && send(s, "x", 1, 0) != 1))
			exit(7);
	}
}

static int count(int s, int kind)
{
	char c;
	int n = 0;
	while (kind == SOCK_STREAM ? accept(s, 0, 0) >= 0 : recv(s, &c, 1, 0) == 1)
		n++;
	return n;
}

static void share(int family, int kind, int port)
{
	int r[3];
	for (int k = 0; k < 3; k++)
		r[k] = sharing(family, kind, port);
	send_to(port, kind, port + 1000);
	printf("%d %d %d\n", count(r[0], kind), count(r[1], kind), count(r[2], kind));
}

int main(void)
{
	share(AF_INET, SOCK_DGRAM, 5001);
	share(AF_INET6, SOCK_DGRAM, 5102);
	share(AF_INET, SOCK_STREAM, 5203);
	/* The filter chooses the third socket, and then the fourth, which another process has. */
	struct sock_filter third[] = {BPF_STMT(BPF_RET | BPF_K, 2)}, fourth[] = {BPF_STMT(BPF_LD | BPF_IMM, 3), BPF_STMT(BPF_RET | BPF_A, 0)};
	struct sock_fprog steer = {1, third}, again = {2, fourth};
	int r[3], ready[2];
	for (int k = 0; k < 3; k++)
		r[k] = sharing(AF_INET, SOCK_DGRAM, 5304);
	if (setsockopt(r[0], SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &steer, sizeof steer))
		return 6;
	send_to(5304, SOCK_DGRAM, 7100);
	printf("%d %d %d\n", count(r[0], SOCK_DGRAM), count(r[1], SOCK_DGRAM), count(r[2], SOCK_DGRAM));
	close(r[2]);
	send_to(5304, SOCK_DGRAM, 7200);
	printf("%d %d\n", count(r[0], SOCK_DGRAM), count(r[1], SOCK_DGRAM));
	if (pipe(ready))
		return 5;
	if (!fork()) {
		sharing(AF_INET, SOCK_DGRAM, 5304);
		sharing(AF_INET, SOCK_DGRAM, 5304);
		if (write(ready[1], "x", 1) != 1)
			_exit(4);
		usleep(1000);
		_exit(0);
	}
	char c;
	if (read(ready[0], &c, 1) != 1 || setsockopt(r[0], SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &again, sizeof again))
		return 3;
	wait(0);
	send_to(5304, SOCK_DGRAM, 7300);
	printf("%d %d\n", count(r[0], SOCK_DGRAM), count(r[1], SOCK_DGRAM));
	return 0;
}
