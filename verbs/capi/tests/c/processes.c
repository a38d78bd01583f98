/* librdmacm and processes: the end of one that has not disconnected, forks, and threads that still have events in hands. */
#include "cm_kit.h"
#include <pthread.h>
#include <sys/wait.h>

static struct rdma_cm_id *accepted(struct rdma_cm_id **waits, struct sockaddr_in *at)
{
	if (!*waits)
		*waits = listener(RDMA_PS_TCP, at);
	struct rdma_cm_event *event = next(passive, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	struct rdma_cm_id *asked = event->id;
	give_queue_pair(asked);
	CLAIM(rdma_accept(asked, NULL) == 0 && rdma_ack_cm_event(event) == 0);
	return asked;
}

static void *waits_for_ever(void *channel)
{
	struct rdma_cm_event *event;
	rdma_get_cm_event(channel, &event);
	return NULL;
}

static void ended(pid_t child)
{
	int status;
	CLAIM(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* A client that exits, with a thread in `rdma_get_cm_event`. */
static void exits_while_connected(const struct sockaddr_in *at)
{
	struct sockaddr_in to = *at;
	pthread_t thread;
	CLAIM((active = rdma_create_event_channel()));
	struct rdma_cm_id *asks = resolved(RDMA_PS_TCP, &to);
	give_queue_pair(asks);
	CLAIM(rdma_connect(asks, NULL) == 0);
	see(active, asks, RDMA_CM_EVENT_ESTABLISHED, 0);
	CLAIM(pthread_create(&thread, NULL, waits_for_ever, active) == 0);
	exit(0);
}

static void the_client_exits(void)
{
	struct sockaddr_in at;
	struct rdma_cm_id *waits = listener(RDMA_PS_TCP, &at);
	/* Twice: what is left of the first does not disturb the second. */
	for (int times = 0; times < 2; times++) {
		pid_t child = fork();
		if (child == 0)
			exits_while_connected(&at);
		struct rdma_cm_id *asked = accepted(&waits, &at);
		see(passive, asked, RDMA_CM_EVENT_ESTABLISHED, 0);
		see(passive, asked, RDMA_CM_EVENT_DISCONNECTED, 0);
		ended(child);
		gone(asked);
	}
	CLAIM(rdma_destroy_id(waits) == 0);
}

/* A server with one connection, and a request that it has not looked at, when it is told to exit. */
static void exits_while_serving(int says, int hears)
{
	struct sockaddr_in at;
	struct rdma_cm_id *waits = NULL, *asked;
	char byte;
	CLAIM((passive = rdma_create_event_channel()));
	waits = listener(RDMA_PS_TCP, &at);
	CLAIM(write(says, &at, sizeof(at)) == sizeof(at));
	asked = accepted(&waits, &at);
	see(passive, asked, RDMA_CM_EVENT_ESTABLISHED, 0);
	CLAIM(read(hears, &byte, 1) == 1);
	struct pollfd wait = {.fd = passive->fd, .events = POLLIN};
	CLAIM(poll(&wait, 1, 60000) == 1);
	exit(0);
}

static void the_server_exits(void)
{
	int up[2], down[2];
	struct sockaddr_in at;
	CLAIM(pipe(up) == 0 && pipe(down) == 0);
	pid_t child = fork();
	if (child == 0)
		exits_while_serving(up[1], down[0]);
	CLAIM(read(up[0], &at, sizeof(at)) == sizeof(at));
	struct rdma_cm_id *first = resolved(RDMA_PS_TCP, &at);
	give_queue_pair(first);
	CLAIM(rdma_connect(first, NULL) == 0);
	see(active, first, RDMA_CM_EVENT_ESTABLISHED, 0);
	struct rdma_cm_id *second = resolved(RDMA_PS_TCP, &at);
	give_queue_pair(second);
	CLAIM(rdma_connect(second, NULL) == 0 && write(down[1], "x", 1) == 1);
	/* In either order. */
	struct rdma_cm_event *event;
	int seen = 0;
	while (seen != 3) {
		struct pollfd wait = {.fd = active->fd, .events = POLLIN};
		CLAIM(poll(&wait, 1, 60000) == 1 && rdma_get_cm_event(active, &event) == 0);
		if (event->id == first) {
			CLAIM(event->event == RDMA_CM_EVENT_DISCONNECTED && event->status == 0 && !(seen & 1));
			seen |= 1;
		} else {
			CLAIM(event->id == second && event->event == RDMA_CM_EVENT_REJECTED && event->status == 28 && !(seen & 2));
			seen |= 2;
		}
		CLAIM(rdma_ack_cm_event(event) == 0);
	}
	ended(child);
	gone(first);
	gone(second);
	close(up[0]), close(up[1]), close(down[0]), close(down[1]);
	/* Its port is free again. */
	struct rdma_cm_id *waits;
	CLAIM(rdma_create_id(passive, &waits, NULL, RDMA_PS_TCP) == 0 && rdma_bind_addr(waits, (struct sockaddr *)&at) == 0);
	CLAIM(rdma_destroy_id(waits) == 0);
}

/* A child has nothing of its parent's: its end is none of the parent's connections'. */
static void a_child_that_exits_ends_nothing_of_its_parents(void)
{
	struct sockaddr_in at;
	struct rdma_cm_id *waits = listener(RDMA_PS_TCP, &at), *asks = resolved(RDMA_PS_TCP, &at);
	give_queue_pair(asks);
	CLAIM(rdma_connect(asks, NULL) == 0);
	struct rdma_cm_id *asked = accepted(&waits, &at);
	see(active, asks, RDMA_CM_EVENT_ESTABLISHED, 0);
	see(passive, asked, RDMA_CM_EVENT_ESTABLISHED, 0);
	pid_t child = fork();
	if (child == 0)
		exit(0);
	ended(child);
	child = fork();
	if (child == 0) {
		/* One that uses the library itself. */
		struct rdma_event_channel *own_channel = rdma_create_event_channel();
		struct rdma_cm_id *id, *late;
		CLAIM(own_channel && rdma_create_id(own_channel, &id, NULL, RDMA_PS_TCP) == 0);
		REFUSES(rdma_bind_addr(id, (struct sockaddr *)&at), EADDRINUSE);
		CLAIM(rdma_create_id(own_channel, &late, NULL, RDMA_PS_TCP) == 0 && rdma_destroy_id(late) == 0);
		exit(0);
	}
	ended(child);
	struct ibv_qp_attr has;
	struct ibv_qp_init_attr had;
	CLAIM(is_quiet(active) && is_quiet(passive));
	CLAIM(ibv_query_qp(asks->qp, &has, IBV_QP_STATE, &had) == 0 && has.qp_state == IBV_QPS_RTS);
	gone(asks);
	see(passive, asked, RDMA_CM_EVENT_DISCONNECTED, 0);
	gone(asked);
	CLAIM(rdma_destroy_id(waits) == 0);
}

static struct rdma_cm_event *in_hands;
static pthread_barrier_t fetched;
static int acknowledged;

static void *fetches_and_acknowledges_late(void *channel)
{
	in_hands = next(channel, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	pthread_barrier_wait(&fetched);
	usleep(100000);
	CLAIM(in_hands->id->verbs);
	__atomic_store_n(&acknowledged, 1, __ATOMIC_SEQ_CST);
	CLAIM(rdma_ack_cm_event(in_hands) == 0);
	/* There is no more; the channel goes while this thread is in it, and stays for it. */
	struct rdma_cm_event *event;
	rdma_get_cm_event(channel, &event);
	CLAIM(!"there is an event");
	return NULL;
}

static void destroying_waits_for_threads_with_events(void)
{
	struct rdma_event_channel *channel_of_thread = rdma_create_event_channel();
	struct rdma_cm_id *id;
	struct sockaddr_in to = own;
	pthread_t thread;
	to.sin_port = htons(7174);
	CLAIM(pthread_barrier_init(&fetched, NULL, 2) == 0);
	CLAIM(rdma_create_id(channel_of_thread, &id, NULL, RDMA_PS_TCP) == 0);
	CLAIM(pthread_create(&thread, NULL, fetches_and_acknowledges_late, channel_of_thread) == 0);
	CLAIM(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 100) == 0);
	pthread_barrier_wait(&fetched);
	CLAIM(rdma_destroy_id(id) == 0);
	CLAIM(__atomic_load_n(&acknowledged, __ATOMIC_SEQ_CST) == 1);
	rdma_destroy_event_channel(channel_of_thread);
}

int main(void)
{
	begin();
	the_client_exits();
	the_server_exits();
	a_child_that_exits_ends_nothing_of_its_parents();
	destroying_waits_for_threads_with_events();
	rdma_destroy_event_channel(passive);
	rdma_destroy_event_channel(active);
	return 0;
}
