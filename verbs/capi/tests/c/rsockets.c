/* rsockets: contents, ends, errnos, waiting, mappings, datagrams, forks, and peers that break the protocol. */
#define _GNU_SOURCE
#include "expect.h"
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <sys/epoll.h>
#include <sys/uio.h>
#include <sys/wait.h>

/* Not in the headers of older releases. */
int repoll_create(int flags);
int repoll_ctl(int epfd, int op, int fd, struct epoll_event *event);
int repoll_wait(int epfd, struct epoll_event *events, int maxevents, int timeout);

/* A call that returns -1 and this errno. */
#define REFUSES(call, number) CLAIM((errno = 0, (call) == -1) && errno == (number))

static struct sockaddr_in own = {.sin_family = AF_INET}, at;

static void *address(void)
{
	return &at;
}

static int listener(int kind)
{
	int listens = rsocket(AF_INET, kind, 0), yes = 1;
	socklen_t length = sizeof(at);
	CLAIM(listens >= 0);
	CLAIM(rsetsockopt(listens, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) == 0);
	CLAIM(rbind(listens, (void *)&own, sizeof(own)) == 0);
	REFUSES(rbind(listens, (void *)&own, sizeof(own)), EINVAL);
	CLAIM(rgetsockname(listens, address(), &length) == 0 && length == sizeof(at));
	CLAIM(at.sin_port != 0 && at.sin_addr.s_addr == own.sin_addr.s_addr);
	CLAIM(rlisten(listens, 5) == 0);
	return listens;
}

/* Two connected sockets; each gets `option` set to `value` before, if it is not 0. */
static int pair_of(int *other, int level, int option, int value)
{
	int listens = listener(SOCK_STREAM), one = rsocket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in from, to;
	socklen_t length = sizeof(from);
	if (value) {
		CLAIM(rsetsockopt(one, level, option, &value, sizeof(value)) == 0);
		CLAIM(rsetsockopt(listens, level, option, &value, sizeof(value)) == 0);
	}
	/* The server does not accept yet: it is connected all the same. */
	CLAIM(rconnect(one, address(), sizeof(at)) == 0);
	CLAIM((*other = raccept(listens, (void *)&from, &length)) >= 0 && length == sizeof(from));
	CLAIM(rgetsockname(one, (void *)&to, &length) == 0);
	CLAIM(memcmp(&from, &to, 8) == 0);
	CLAIM(rgetpeername(one, (void *)&to, &length) == 0 && to.sin_port == at.sin_port);
	CLAIM(rclose(listens) == 0);
	REFUSES(rconnect(one, address(), sizeof(at)), EISCONN);
	return one;
}

#define LENGTH 3000017
static unsigned char *content;
/* Of a stream. */
static size_t whole;

static void *write_all(void *socket)
{
	int fd = *(int *)socket;
	size_t done = 0, step = 1;
	while (done < whole) {
		size_t now = step % 70000 < whole - done ? step % 70000 : whole - done;
		CLAIM(rsend(fd, content + done, now, 0) == (ssize_t)now);
		done += now;
		step = step * 3 + 1;
	}
	return NULL;
}

static void read_all(int fd)
{
	unsigned char *got = malloc(whole);
	size_t done = 0, step = 7;
	while (done < whole) {
		size_t most = step % 90000 + 1 < whole - done ? step % 90000 + 1 : whole - done;
		ssize_t now = rrecv(fd, got + done, most, 0);
		CLAIM(now > 0 && (size_t)now <= most);
		done += now;
		step = step * 5 + 1;
	}
	CLAIM(memcmp(got, content, whole) == 0);
	free(got);
}

/* Both directions at once, by four threads, with buffers of this size. */
static void streams(int buffer, size_t length)
{
	whole = length;
	int other, one = pair_of(&other, SOL_SOCKET, SO_RCVBUF, buffer);
	pthread_t writers[2];
	CLAIM(pthread_create(&writers[0], NULL, write_all, &one) == 0);
	CLAIM(pthread_create(&writers[1], NULL, write_all, &other) == 0);
	read_all(one);
	read_all(other);
	pthread_join(writers[0], NULL);
	pthread_join(writers[1], NULL);
	CLAIM(rclose(one) == 0 && rclose(other) == 0);
	REFUSES(rclose(one), EBADF);
	REFUSES(rsend(one, content, 1, 0), EBADF);
}

static void ways_to_read_and_write(void)
{
	int other, one = pair_of(&other, 0, 0, 0);
	char text[64] = "";
	struct iovec parts[3] = {{"ab", 2}, {NULL, 0}, {"cde", 3}}, rooms[2] = {{text, 1}, {text + 10, 9}};
	REFUSES(rrecv(other, text, 9, MSG_DONTWAIT), EAGAIN);
	CLAIM(rwritev(one, parts, 3) == 5);
	CLAIM(rrecv(other, text, 3, MSG_PEEK) == 3 && memcmp(text, "abc", 4) == 0);
	CLAIM(rrecv(other, text, 5, MSG_PEEK | MSG_WAITALL) >= 3);
	CLAIM(rreadv(other, rooms, 2) == 5 && text[0] == 'a' && memcmp(text + 10, "bcde", 5) == 0);
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = 1};
	CLAIM(rsendmsg(one, &message, 0) == 2 && rwrite(one, "xyz", 3) == 3);
	CLAIM(rrecv(other, text, 5, MSG_WAITALL) == 5 && memcmp(text, "abxyz", 5) == 0);
	message.msg_control = text;
	message.msg_controllen = 16;
	REFUSES(rsendmsg(one, &message, 0), EOPNOTSUPP);
	CLAIM(rsend(one, "", 0, 0) == 0);
	REFUSES(rsend(one, NULL, 1, 0), EFAULT);
	REFUSES(rwritev(one, parts, -1), EINVAL);
	struct timeval soon = {.tv_usec = 20000};
	CLAIM(rsetsockopt(other, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon)) == 0);
	REFUSES(rread(other, text, 1), EAGAIN);
	CLAIM(rclose(one) == 0 && rread(other, text, 1) == 0 && rclose(other) == 0);
}

static int ready(int fd, int events, int timeout)
{
	struct pollfd wait = {.fd = fd, .events = events};
	int count = rpoll(&wait, 1, timeout);
	CLAIM(count == (wait.revents != 0));
	return wait.revents;
}

static void waiting(void)
{
	int listens = listener(SOCK_STREAM), one = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), other, error = -1;
	socklen_t length = sizeof(error);
	CLAIM(rfcntl(listens, F_SETFL, O_NONBLOCK) == 0 && rfcntl(listens, F_GETFL) & O_NONBLOCK);
	REFUSES(raccept(listens, NULL, NULL), EAGAIN);
	CLAIM(ready(listens, POLLIN, 0) == 0);
	if (rconnect(one, address(), sizeof(at)) != 0)
		CLAIM(errno == EINPROGRESS);
	CLAIM(ready(one, POLLOUT, 5000) == POLLOUT);
	CLAIM(rgetsockopt(one, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0);
	CLAIM(ready(listens, POLLIN, 5000) == POLLIN);
	CLAIM((other = raccept(listens, NULL, NULL)) >= 0);
	CLAIM(!(rfcntl(other, F_GETFL) & O_NONBLOCK));
	CLAIM(ready(one, POLLIN, 20) == 0 && ready(other, POLLIN | POLLOUT, 0) == POLLOUT);

	/* Until there is no room; then the peer makes some. */
	ssize_t sent = 0, now;
	while ((now = rsend(one, content + sent, 10000, 0)) > 0)
		sent += now;
	CLAIM(now == -1 && errno == EAGAIN && sent > 50000 && ready(one, POLLOUT, 0) == 0);
	unsigned char *got = malloc(sent);
	CLAIM(rrecv(other, got, sent, MSG_WAITALL) == sent && memcmp(got, content, sent) == 0);
	free(got);
	CLAIM(ready(one, POLLOUT, 5000) == POLLOUT);

	/* Several at once, and descriptors that are no sockets. */
	int ends[2];
	CLAIM(pipe(ends) == 0);
	struct pollfd all[4] = {{ends[0], POLLIN, 0}, {one, POLLIN, 0}, {other, POLLIN, 0}, {-1, POLLIN, 7}};
	CLAIM(rpoll(all, 4, 10) == 0 && all[3].revents == 0);
	CLAIM(rsend(one, "x", 1, 0) == 1 && rpoll(all, 4, 5000) == 1 && all[2].revents == POLLIN);
	CLAIM(write(ends[1], "x", 1) == 1 && rpoll(all, 4, 5000) == 2 && all[0].revents == POLLIN);

	fd_set reads, writes;
	FD_ZERO(&reads);
	FD_ZERO(&writes);
	FD_SET(ends[0], &reads);
	FD_SET(other, &reads);
	FD_SET(one, &reads);
	FD_SET(one, &writes);
	struct timeval limit = {.tv_sec = 5};
	CLAIM(rselect(FD_SETSIZE, &reads, &writes, NULL, &limit) == 3);
	CLAIM(FD_ISSET(ends[0], &reads) && FD_ISSET(other, &reads) && !FD_ISSET(one, &reads) && FD_ISSET(one, &writes));

	int set = repoll_create(EPOLL_CLOEXEC);
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = 11}, events[4];
	CLAIM(set >= 0 && repoll_wait(set, events, 4, 0) == 0);
	REFUSES(repoll_ctl(set, EPOLL_CTL_MOD, one, &event), ENOENT);
	CLAIM(repoll_ctl(set, EPOLL_CTL_ADD, one, &event) == 0);
	REFUSES(repoll_ctl(set, EPOLL_CTL_ADD, one, &event), EEXIST);
	REFUSES(repoll_ctl(set, EPOLL_CTL_ADD, set, &event), EINVAL);
	REFUSES(repoll_ctl(one, EPOLL_CTL_ADD, other, &event), EINVAL);
	REFUSES(repoll_wait(set, events, 0, 0), EINVAL);
	event.data.u64 = 12;
	CLAIM(repoll_ctl(set, EPOLL_CTL_ADD, other, &event) == 0);
	event.data.u64 = 13;
	CLAIM(repoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event) == 0);
	CLAIM(repoll_wait(set, events, 4, 5000) == 2);
	CLAIM(events[0].data.u64 + events[1].data.u64 == 25 && events[0].events == EPOLLIN);
	CLAIM(repoll_wait(set, events, 1, 5000) == 1);
	CLAIM(repoll_ctl(set, EPOLL_CTL_DEL, ends[0], NULL) == 0);
	event.events = EPOLLIN | EPOLLONESHOT;
	CLAIM(repoll_ctl(set, EPOLL_CTL_MOD, other, &event) == 0);
	CLAIM(repoll_wait(set, events, 4, 5000) == 1 && events[0].data.u64 == 13);
	CLAIM(repoll_wait(set, events, 4, 10) == 0);
	CLAIM(rclose(set) == 0 && rclose(one) == 0 && rclose(other) == 0 && rclose(listens) == 0);
	close(ends[0]);
	close(ends[1]);
}

static void ends(void)
{
	char text[8];
	int other, one = pair_of(&other, 0, 0, 0);
	CLAIM(rsend(one, "last", 4, 0) == 4 && rshutdown(one, SHUT_WR) == 0);
	REFUSES(rsend(one, "x", 1, 0), EPIPE);
	CLAIM(rrecv(other, text, 8, 0) == 4 && rrecv(other, text, 8, 0) == 0);
	CLAIM(ready(other, POLLIN | POLLOUT | POLLRDHUP, 0) == (POLLIN | POLLOUT | POLLRDHUP));
	CLAIM(rsend(other, "answer", 6, 0) == 6 && rclose(other) == 0);
	CLAIM(rrecv(one, text, 8, 0) == 6 && memcmp(text, "answer", 6) == 0);
	CLAIM(rrecv(one, text, 8, 0) == 0 && ready(one, POLLIN, 0) == (POLLIN | POLLHUP));
	REFUSES(rsend(one, "x", 1, 0), ECONNRESET);
	CLAIM(rclose(one) == 0);

	/* A side that closes leaves nothing behind. */
	one = pair_of(&other, 0, 0, 0);
	CLAIM(rsend(one, content, 100000, 0) == 100000 && rclose(one) == 0);
	unsigned char *got = malloc(100001);
	CLAIM(rrecv(other, got, 100001, MSG_WAITALL) == 100000 && memcmp(got, content, 100000) == 0);
	free(got);
	CLAIM(rclose(other) == 0);

	one = rsocket(AF_INET, SOCK_STREAM, 0);
	REFUSES(rsend(one, "x", 1, 0), ENOTCONN);
	REFUSES(rrecv(one, text, 1, 0), ENOTCONN);
	REFUSES(rshutdown(one, SHUT_WR), ENOTCONN);
	socklen_t length = sizeof(at);
	REFUSES(rgetpeername(one, address(), &length), ENOTCONN);
	REFUSES(raccept(one, NULL, NULL), EINVAL);
	REFUSES(rconnect(one, address(), 3), EINVAL);
	/* No server is there. */
	at = own;
	at.sin_port = htons(1);
	REFUSES(rconnect(one, address(), sizeof(at)), ECONNREFUSED);
	CLAIM(rclose(one) == 0);
	one = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	int error = 0;
	length = sizeof(error);
	if (rconnect(one, address(), sizeof(at)) != 0 && errno == EINPROGRESS) {
		CLAIM(ready(one, POLLOUT, 5000) & POLLERR);
		CLAIM(rgetsockopt(one, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == ECONNREFUSED);
	}
	CLAIM(rclose(one) == 0);
	REFUSES(rsocket(AF_UNIX, SOCK_STREAM, 0), EOPNOTSUPP);
	REFUSES(rsocket(AF_INET, SOCK_RAW, 0), EOPNOTSUPP);
	REFUSES(rsocket(AF_INET, SOCK_STREAM, IPPROTO_UDP), EOPNOTSUPP);
}

static void *receive_one(void *socket)
{
	char byte;
	return (void *)rrecv(*(int *)socket, &byte, 1, 0);
}

static void threads_that_wait_are_woken(void)
{
	int other, one = pair_of(&other, 0, 0, 0);
	pthread_t waits[3];
	void *got;
	for (int i = 0; i < 3; i++)
		CLAIM(pthread_create(&waits[i], NULL, receive_one, &one) == 0);
	CLAIM(rsend(other, "ab", 2, 0) == 2 && rshutdown(other, SHUT_WR) == 0);
	long sum = 0;
	for (int i = 0; i < 3; i++) {
		CLAIM(pthread_join(waits[i], &got) == 0);
		sum += (long)got;
	}
	CLAIM(sum == 2);
	CLAIM(pthread_create(&waits[0], NULL, receive_one, &other) == 0);
	CLAIM(rshutdown(other, SHUT_RDWR) == 0 && pthread_join(waits[0], &got) == 0 && got == NULL);
	CLAIM(rclose(one) == 0 && rclose(other) == 0);
}

static void mappings(void)
{
	enum { SIZE = 10000 };
	static unsigned char target[SIZE], source[SIZE];
	int other, one = pair_of(&other, SOL_RDMA, RDMA_IOMAPSIZE, 1);
	int value = 4;
	REFUSES(rsetsockopt(one, SOL_RDMA, RDMA_IOMAPSIZE, &value, sizeof(value)), EINVAL);
	REFUSES(riomap(one, target, SIZE, PROT_READ, 0, 0), EINVAL);
	REFUSES(riomap(one, NULL, SIZE, PROT_WRITE, 0, 0), EFAULT);
	CLAIM(riomap(one, target, SIZE, PROT_WRITE, 0, 1 << 20) == 1 << 20);
	/* The peer has room for one. */
	REFUSES(riomap(one, source, SIZE, PROT_WRITE, 0, 5), ENOMEM);
	char byte;
	CLAIM(rsend(one, "x", 1, 0) == 1 && rrecv(other, &byte, 1, 0) == 1);
	memcpy(source, content, SIZE);
	CLAIM(riowrite(other, source, SIZE, 0, 0) == 0);
	CLAIM(riowrite(other, source, SIZE, 1 << 20, 0) == SIZE);
	CLAIM(riowrite(other, source, 100, (1 << 20) + SIZE - 60, 0) == 60);
	CLAIM(rsend(other, "y", 1, 0) == 1 && rrecv(one, &byte, 1, 0) == 1);
	CLAIM(memcmp(target, source, SIZE - 60) == 0 && memcmp(target + SIZE - 60, source, 60) == 0);
	REFUSES(riounmap(one, target, SIZE - 1), EINVAL);
	CLAIM(riounmap(one, target, SIZE) == 0);
	CLAIM(riomap(one, source, SIZE, PROT_WRITE, 0, -1) == (off_t)source);
	CLAIM(rclose(one) == 0 && rclose(other) == 0);
}

static void options(void)
{
	int one = rsocket(AF_INET, SOCK_STREAM, 0), value = 1 << 18;
	socklen_t length = sizeof(value);
	struct linger linger = {1, 3}, shown;
	CLAIM(rsetsockopt(one, SOL_SOCKET, SO_SNDBUF, &value, sizeof(value)) == 0);
	CLAIM(rgetsockopt(one, SOL_SOCKET, SO_SNDBUF, &value, &length) == 0 && value == 1 << 19);
	CLAIM(rgetsockopt(one, SOL_SOCKET, SO_TYPE, &value, &length) == 0 && value == SOCK_STREAM);
	value = 100;
	CLAIM(rsetsockopt(one, SOL_RDMA, RDMA_SQSIZE, &value, sizeof(value)) == 0);
	CLAIM(rgetsockopt(one, SOL_RDMA, RDMA_SQSIZE, &value, &length) == 0 && value == 100);
	CLAIM(rsetsockopt(one, IPPROTO_TCP, TCP_NODELAY, &value, sizeof(value)) == 0);
	length = sizeof(shown);
	CLAIM(rsetsockopt(one, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)) == 0);
	CLAIM(rgetsockopt(one, SOL_SOCKET, SO_LINGER, &shown, &length) == 0 && shown.l_onoff == 1 && shown.l_linger == 3);
	REFUSES(rsetsockopt(one, SOL_SOCKET, SO_LINGER, &linger, 4), EINVAL);
	REFUSES(rsetsockopt(one, SOL_SOCKET, 12345, &value, 4), ENOPROTOOPT);
	REFUSES(rsetsockopt(one, SOL_SOCKET, SO_SNDBUF, NULL, 4), EFAULT);
	REFUSES(rfcntl(one, F_SETLK, &value), EOPNOTSUPP);
	CLAIM(rclose(one) == 0);
	REFUSES(rgetsockopt(one, SOL_SOCKET, SO_ERROR, &value, &length), EBADF);
	REFUSES(rfcntl(99, F_GETFL), EBADF);
}

static void datagrams(void)
{
	int serves = rsocket(AF_INET, SOCK_DGRAM, 0), asks = rsocket(AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_in from;
	socklen_t length = sizeof(at);
	static unsigned char got[70000];
	CLAIM(serves >= 0 && asks >= 0 && rbind(serves, (void *)&own, sizeof(own)) == 0);
	CLAIM(rgetsockname(serves, address(), &length) == 0 && at.sin_port);
	REFUSES(rsend(asks, "x", 1, 0), EDESTADDRREQ);
	REFUSES(rrecv(asks, got, 1, MSG_DONTWAIT), EAGAIN);
	REFUSES(rsendto(asks, content, 65536, 0, address(), sizeof(at)), EMSGSIZE);
	CLAIM(rconnect(asks, address(), sizeof(at)) == 0);
	/* The first go over UDP, those that fit a packet between queue pairs soon, and others over UDP always. */
	for (int i = 0; i < 200; i++) {
		size_t size = i * 37 % 1000 + (i % 10 == 9 ? 9000 : 1);
		CLAIM(rsend(asks, content + i, size, 0) == (ssize_t)size);
		CLAIM(ready(serves, POLLIN, 5000) == POLLIN);
		length = sizeof(from);
		CLAIM(rrecvfrom(serves, got, sizeof(got), 0, (void *)&from, &length) == (ssize_t)size);
		CLAIM(memcmp(got, content + i, size) == 0 && from.sin_addr.s_addr == own.sin_addr.s_addr);
		CLAIM(rsendto(serves, got, size, 0, (void *)&from, length) == (ssize_t)size);
		CLAIM(rrecv(asks, got, 10, MSG_PEEK) == (ssize_t)(size < 10 ? size : 10));
		CLAIM(rrecv(asks, got, sizeof(got), 0) == (ssize_t)size && memcmp(got, content + i, size) == 0);
	}
	CLAIM(ready(asks, POLLIN | POLLOUT, 0) == POLLOUT);
	CLAIM(rclose(serves) == 0 && rclose(asks) == 0);
}

static void forks(void)
{
	char text[8];
	int status, other, one = pair_of(&other, 0, 0, 0);
	pid_t child = fork();
	if (child == 0) {
		/* The connection is the parent's. */
		REFUSES(rsend(one, "x", 1, 0), EBADF);
		CLAIM(rclose(one) == 0);
		own.sin_port = 0;
		streams(0, 500000);
		exit(0);
	}
	CLAIM(waitpid(child, &status, 0) == child && status == 0);
	CLAIM(rsend(one, "mine", 4, 0) == 4 && rrecv(other, text, 8, 0) == 4);
	CLAIM(rclose(one) == 0 && rclose(other) == 0);
}

/* A peer of librdmacm's that says what it likes. */
static struct rdma_cm_id *peer(const void *greeting, int length)
{
	struct rdma_cm_id *id;
	struct ibv_qp_init_attr wants = {
		.cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct rdma_conn_param says = {.private_data = greeting, .private_data_len = length, .retry_count = 7};
	CLAIM(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == 0);
	CLAIM(rdma_resolve_addr(id, NULL, address(), 1000) == 0 && rdma_resolve_route(id, 1000) == 0);
	CLAIM(rdma_create_qp(id, NULL, &wants) == 0);
	if (rdma_connect(id, &says) == 0)
		return id;
	CLAIM(errno == ECONNREFUSED);
	rdma_destroy_qp(id);
	rdma_destroy_id(id);
	return NULL;
}

static void peers_that_break_the_protocol(void)
{
	unsigned char greeting[40] = {1, 2, 0, 16, [23] = 2, [39] = 100};
	int listens = listener(SOCK_STREAM), broken;
	char byte;
	greeting[0] = 2;
	CLAIM(!peer(greeting, 40));
	greeting[0] = 1;
	greeting[23] = 0;
	CLAIM(!peer(greeting, 40));
	greeting[23] = 2;
	CLAIM(!peer(NULL, 0));
	/* More bytes than there is room for; a message that is no WRITE. */
	for (int kind = 0; kind < 2; kind++) {
		struct rdma_cm_id *id = peer(greeting, 40);
		CLAIM(id && (broken = raccept(listens, NULL, NULL)) >= 0);
		struct ibv_send_wr wr = {.imm_data = htonl(0x1fffffff), .opcode = kind ? IBV_WR_SEND_WITH_IMM : IBV_WR_RDMA_WRITE_WITH_IMM},
				   *bad;
		FAILS(ibv_post_send(id->qp, &wr, &bad), 0);
		CLAIM(rrecv(broken, &byte, 1, 0) == -1 && (errno == ECONNRESET || errno == EPROTO));
		CLAIM(rrecv(broken, &byte, 1, 0) == 0);
		REFUSES(rsend(broken, "x", 1, 0), ECONNRESET);
		CLAIM(rclose(broken) == 0);
		rdma_destroy_qp(id);
		rdma_destroy_id(id);
	}
	/* What it says of its own memory is its own business: writing there ends the connection. */
	struct rdma_cm_id *id = peer(greeting, 40);
	CLAIM(id && (broken = raccept(listens, NULL, NULL)) >= 0);
	CLAIM(rsend(broken, "x", 1, 0) == 1 && rrecv(broken, &byte, 1, 0) == -1 && errno == ECONNRESET);
	CLAIM(rclose(broken) == 0 && rclose(listens) == 0);
	rdma_destroy_qp(id);
	rdma_destroy_id(id);
}

int main(void)
{
	own.sin_addr.s_addr = inet_addr(getenv("PUMICE_ADDR"));
	content = malloc(LENGTH);
	for (unsigned i = 0, word = 1; i < LENGTH; i++, word = word * 1664525 + 1013904223)
		content[i] = word >> 24;
	ways_to_read_and_write();
	waiting();
	ends();
	streams(0, LENGTH);
	streams(3001, 100003);
	threads_that_wait_are_woken();
	mappings();
	options();
	datagrams();
	peers_that_break_the_protocol();
	forks();
	return 0;
}
