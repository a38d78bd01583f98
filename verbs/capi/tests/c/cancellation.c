/* Threads that are cancelled in calls that wait, and in calls that do not. Nothing is aborted, and nothing stays locked. */
#define _GNU_SOURCE
#include "expect.h"
#include <arpa/inet.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>
#include <sys/epoll.h>
#include <sys/syscall.h>

int repoll_create(int flags);
int repoll_ctl(int epfd, int op, int fd, struct epoll_event *event);
int repoll_wait(int epfd, struct epoll_event *events, int maxevents, int timeout);

static struct sockaddr_in own = {.sin_family = AF_INET}, at;
static struct rdma_event_channel *events_of_cm;
static struct rdma_cm_id *listening_id;
static int one, other, quiet, listens, datagrams, set, unconnected;
static char big[8 << 20];

static void get_cq_event(void)
{
	struct ibv_cq *of;
	void *context;
	ibv_get_cq_event(channel, &of, &context);
}

static void get_async_event(void)
{
	struct ibv_async_event event;
	ibv_get_async_event(ctx, &event);
}

static void get_cm_event(void)
{
	struct rdma_cm_event *event;
	rdma_get_cm_event(events_of_cm, &event);
}

static void get_request(void)
{
	struct rdma_cm_id *id;
	rdma_get_request(listening_id, &id);
}

static void accepts(void)
{
	raccept(listens, NULL, NULL);
}

static void receives(void)
{
	char bytes[16];
	rrecv(one, bytes, sizeof(bytes), 0);
}

static void receives_all(void)
{
	char bytes[16];
	rrecv(one, bytes, sizeof(bytes), MSG_WAITALL);
}

static void receives_a_datagram(void)
{
	char bytes[16];
	rrecvfrom(datagrams, bytes, sizeof(bytes), 0, NULL, NULL);
}

/* The peer reads nothing. */
static void sends(void)
{
	for (;;)
		rsend(one, big, sizeof(big), 0);
}

static void polls_one(void)
{
	struct pollfd entry = {.fd = one, .events = POLLIN};
	rpoll(&entry, 1, -1);
}

static void polls_two(void)
{
	struct pollfd entries[] = {{.fd = one, .events = POLLIN}, {.fd = quiet, .events = POLLIN}};
	rpoll(entries, 2, -1);
}

static void polls_none(void)
{
	rpoll(NULL, 0, -1);
}

static void selects(void)
{
	fd_set reads;
	FD_ZERO(&reads);
	FD_SET(one, &reads);
	FD_SET(quiet, &reads);
	rselect(quiet > one ? quiet + 1 : one + 1, &reads, NULL, NULL, NULL);
}

static void waits_for_members(void)
{
	struct epoll_event event;
	repoll_wait(set, &event, 1, -1);
}

/* A host that takes requests and never answers: an address beside the own one. */
static struct sockaddr_in swallower_of(int port)
{
	uint32_t address = htonl((ntohl(own.sin_addr.s_addr) & 0xffff) | 127u << 24);
	return (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = address};
}

static void connects(void)
{
	struct sockaddr_in to = swallower_of(9);
	rconnect(unconnected, (void *)&to, sizeof(to));
}

static const struct {
	const char *name;
	void (*call)(void);
} calls[] = {
	{"ibv_get_cq_event", get_cq_event}, {"ibv_get_async_event", get_async_event}, {"rdma_get_cm_event", get_cm_event},
	{"rdma_get_request", get_request}, {"raccept", accepts}, {"rrecv", receives}, {"rrecv, MSG_WAITALL", receives_all},
	{"rrecvfrom", receives_a_datagram}, {"rpoll, one", polls_one}, {"rpoll, two", polls_two}, {"rpoll, none", polls_none},
	{"rselect", selects}, {"repoll_wait", waits_for_members}, {"rsend", sends}, {"rconnect", connects},
};

struct waiter {
	void (*call)(void);
	int type;
	volatile pid_t thread;
};

static void *wait_in(void *of)
{
	struct waiter *waiter = of;
	pthread_setcanceltype(waiter->type, NULL);
	waiter->thread = (pid_t)syscall(SYS_gettid);
	waiter->call();
	return NULL;
}

/* A thread is in the middle of its wait once it sleeps. */
static int sleeps(pid_t thread)
{
	char path[64], line[512] = "";
	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", thread);
	FILE *file = fopen(path, "r");
	if (!file)
		return 0;
	CLAIM(fgets(line, sizeof(line), file));
	fclose(file);
	char *state = strrchr(line, ')');
	return state && state[2] == 'S';
}

static void cancel_in(const char *name, void (*call)(void), int type)
{
	struct waiter waiter = {.call = call, .type = type};
	pthread_t thread;
	void *result = NULL;
	CLAIM(pthread_create(&thread, NULL, wait_in, &waiter) == 0);
	while (!waiter.thread || !sleeps(waiter.thread))
		usleep(1000);
	CLAIM(pthread_cancel(thread) == 0);
	CLAIM(pthread_join(thread, &result) == 0);
	if (result != PTHREAD_CANCELED) {
		fprintf(stderr, "%s returned\n", name);
		exit(1);
	}
}

/* What the threads have left: every object is free for others, and knows of no thread that is gone. */
static void is_usable(void)
{
	char bytes[16] = "";
	CLAIM(rsend(other, "and so on", 10, 0) == 10);
	struct pollfd entry = {.fd = one, .events = POLLIN};
	CLAIM(rpoll(&entry, 1, 8000) == 1 && entry.revents == POLLIN);
	CLAIM(rrecv(one, bytes, sizeof(bytes), 0) == 10 && !strcmp(bytes, "and so on"));
	/* What the cancelled thread has sent is whole, and no more than that. */
	entry = (struct pollfd){.fd = other, .events = POLLIN};
	size_t came = 0;
	while (rpoll(&entry, 1, 200) == 1)
		came += rrecv(other, big, sizeof(big), 0);
	CLAIM(came > 0);
	CLAIM(rsend(one, "end", 4, 0) == 4);
	CLAIM(rrecv(other, bytes, 4, MSG_WAITALL) == 4 && !strcmp(bytes, "end"));

	struct ibv_qp *b, *a = pair(IBV_QPT_RC, &b);
	FAILS(ibv_req_notify_cq(cq, 0), 0);
	post_receive(b, 1, 0, 8);
	struct ibv_sge sge = piece(64, 8);
	struct ibv_send_wr send = {.wr_id = 2, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
	post(a, &send);
	struct ibv_cq *of;
	void *context;
	CLAIM(ibv_get_cq_event(channel, &of, &context) == 0 && of == cq);
	ibv_ack_cq_events(cq, 1);
	completions(2);
	FAILS(ibv_destroy_qp(a), 0);
	FAILS(ibv_destroy_qp(b), 0);
}

/* A thread whose cancellation is pending goes through every call that does not wait, and ends at none of them. */
static int went_through;

static void *is_pending(void *unused)
{
	(void)unused;
	int state;
	CLAIM(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state) == 0);
	CLAIM(pthread_cancel(pthread_self()) == 0);
	CLAIM(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state) == 0);

	struct ibv_device_attr attr;
	FAILS(ibv_query_device(ctx, &attr), 0);
	struct ibv_pd *domain = ibv_alloc_pd(ctx);
	struct ibv_comp_channel *tells = ibv_create_comp_channel(ctx);
	struct ibv_cq *queue = ibv_create_cq(ctx, 8, NULL, tells, 0);
	struct ibv_mr *region = (ibv_reg_mr)(domain, big, sizeof(big), RIGHTS);
	CLAIM(domain && tells && queue && region);
	REFUSED((ibv_reg_mr)(domain, big, sizeof(big), 1 << 30), EINVAL);
	struct ibv_qp *b, *a = pair(IBV_QPT_RC, &b);
	FAILS(ibv_req_notify_cq(cq, 0), 0);
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, piece(0, 8), (uintptr_t)&memory[100], mr->rkey), 0);
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, piece(0, 4096), (uintptr_t)&memory[2048], mr->rkey), 0);
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, piece(0, 8), 0, 0x777), IBV_WC_REM_ACCESS_ERR);
	FAILS(ibv_destroy_qp(a), 0);
	FAILS(ibv_destroy_qp(b), 0);
	FAILS(ibv_dereg_mr(region), 0);
	FAILS(ibv_destroy_cq(queue), 0);
	FAILS(ibv_destroy_comp_channel(tells), 0);
	FAILS(ibv_dealloc_pd(domain), 0);

	struct rdma_cm_id *id;
	CLAIM(rdma_create_id(events_of_cm, &id, NULL, RDMA_PS_TCP) == 0);
	CLAIM(rdma_bind_addr(id, (void *)&own) == 0 && rdma_listen(id, 1) == 0 && rdma_destroy_id(id) == 0);
	int fd = rsocket(AF_INET, SOCK_STREAM, 0), copy = rsocket(AF_INET, SOCK_DGRAM, 0);
	CLAIM(fd >= 0 && copy >= 0 && rbind(fd, (void *)&own, sizeof(own)) == 0 && rlisten(fd, 1) == 0);
	CLAIM(rclose(fd) == 0 && rclose(copy) == 0);
	went_through = 1;
	pthread_testcancel();
	return NULL;
}

static void open_sockets(void)
{
	socklen_t length = sizeof(at);
	listens = rsocket(AF_INET, SOCK_STREAM, 0);
	one = rsocket(AF_INET, SOCK_STREAM, 0);
	CLAIM(rbind(listens, (void *)&own, sizeof(own)) == 0 && rlisten(listens, 4) == 0);
	CLAIM(rgetsockname(listens, (void *)&at, &length) == 0);
	CLAIM(rconnect(one, (void *)&at, sizeof(at)) == 0);
	CLAIM((other = raccept(listens, NULL, NULL)) >= 0);
	CLAIM((quiet = rsocket(AF_INET, SOCK_STREAM, 0)) >= 0 && rbind(quiet, (void *)&own, sizeof(own)) == 0 && rlisten(quiet, 1) == 0);
	CLAIM((datagrams = rsocket(AF_INET, SOCK_DGRAM, 0)) >= 0 && rbind(datagrams, (void *)&own, sizeof(own)) == 0);
	CLAIM((unconnected = rsocket(AF_INET, SOCK_STREAM, 0)) >= 0);
	struct epoll_event event = {.events = EPOLLIN};
	CLAIM((set = repoll_create(0)) >= 0 && repoll_ctl(set, EPOLL_CTL_ADD, one, &event) == 0);
}

int main(void)
{
	open_device();
	CLAIM(inet_pton(AF_INET, getenv("PUMICE_ADDR"), &own.sin_addr) == 1);
	CLAIM((events_of_cm = rdma_create_event_channel()));
	struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP}, *found;
	CLAIM(rdma_getaddrinfo(getenv("PUMICE_ADDR"), "0", &hints, &found) == 0);
	CLAIM(rdma_create_ep(&listening_id, found, NULL, NULL) == 0 && rdma_listen(listening_id, 1) == 0);
	struct sockaddr_in swallows = swallower_of(4791);
	int swallower = socket(AF_INET, SOCK_DGRAM, 0);
	CLAIM(bind(swallower, (void *)&swallows, sizeof(swallows)) == 0);

	for (int type = 0; type < 2; type++) {
		open_sockets();
		for (unsigned i = 0; i < sizeof(calls) / sizeof(*calls); i++)
			cancel_in(calls[i].name, calls[i].call, type ? PTHREAD_CANCEL_ASYNCHRONOUS : PTHREAD_CANCEL_DEFERRED);
		is_usable();
		CLAIM(rclose(one) == 0 && rclose(other) == 0 && rclose(listens) == 0 && rclose(quiet) == 0 && rclose(datagrams) == 0);
		CLAIM(rclose(set) == 0 && rclose(unconnected) == 0);
	}
	pthread_t thread;
	void *result;
	CLAIM(pthread_create(&thread, NULL, is_pending, NULL) == 0 && pthread_join(thread, &result) == 0);
	CLAIM(went_through && result == PTHREAD_CANCELED);
	rdma_destroy_ep(listening_id);
	rdma_freeaddrinfo(found);
	rdma_destroy_event_channel(events_of_cm);
	FAILS(ibv_close_device(ctx), 0);
	return 0;
}
