/* What the descriptors of channels and contexts report: readable while there is an event, and never writable. */
#define _GNU_SOURCE
#include "cm_kit.h"
#include <sys/epoll.h>

static short reports(int fd)
{
	struct pollfd entry = {.fd = fd, .events = POLLIN | POLLOUT | POLLPRI | POLLRDHUP};
	CLAIM(poll(&entry, 1, 0) >= 0);
	return entry.revents;
}

/* How many events a set reports now. */
static int told(int set)
{
	struct epoll_event events[4];
	return epoll_wait(set, events, 4, 0);
}

static int set_with(int fd, uint32_t interest)
{
	struct epoll_event event = {.events = interest};
	int set = epoll_create1(0);
	CLAIM(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
	return set;
}

static struct ibv_qp *a, *b;

/* One more completion, which fires. */
static void fire(void)
{
	FAILS(ibv_req_notify_cq(cq, 0), 0);
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, piece(0, 8), (uintptr_t)&memory[100], mr->rkey), 0);
}

static void take(void)
{
	struct ibv_cq *of;
	void *context;
	CLAIM(ibv_get_cq_event(channel, &of, &context) == 0 && of == cq);
	ibv_ack_cq_events(cq, 1);
}

static void completion_channels(void)
{
	int copy = dup(channel->fd), level = set_with(channel->fd, EPOLLIN | EPOLLOUT),
	    edge = set_with(channel->fd, EPOLLIN | EPOLLOUT | EPOLLET), alone = set_with(channel->fd, EPOLLIN | EPOLLEXCLUSIVE);
	CLAIM(copy >= 0 && reports(channel->fd) == 0 && reports(copy) == 0 && told(level) == 0 && told(edge) == 0);
	for (int i = 0; i < 3; i++) {
		fire();
		CLAIM(reports(channel->fd) == POLLIN && reports(copy) == POLLIN);
		CLAIM(told(level) == 1 && told(level) == 1 && told(alone) == 1);
		/* Of several that are not fetched, each is told by its edge. */
		CLAIM(told(edge) == 1 && told(edge) == 0);
	}
	for (int i = 0; i < 3; i++) {
		CLAIM(reports(copy) == POLLIN);
		take();
	}
	CLAIM(reports(channel->fd) == 0 && reports(copy) == 0 && told(level) == 0 && told(edge) == 0);
	/* The flag is the program's, by either descriptor. */
	struct ibv_cq *of;
	void *context;
	CLAIM(fcntl(copy, F_SETFL, fcntl(copy, F_GETFL) | O_NONBLOCK) == 0);
	CLAIM((errno = 0, ibv_get_cq_event(channel, &of, &context)) == -1 && errno == EAGAIN);
	fire();
	take();
	CLAIM((errno = 0, ibv_get_cq_event(channel, &of, &context)) == -1 && errno == EAGAIN);
	CLAIM(fcntl(copy, F_SETFL, 0) == 0);
	/* A program that reads what it should not does not stop the next events. */
	fire();
	char byte;
	CLAIM(read(copy, &byte, 1) == 1 && reports(copy) == 0);
	take();
	fire();
	CLAIM(reports(copy) == POLLIN);
	take();
	CLAIM(reports(copy) == 0);
	CLAIM(close(copy) == 0 && close(level) == 0 && close(edge) == 0 && close(alone) == 0);
}

/* A program that never fetches: what it does not read is lost, and nothing blocks. */
static void floods(void)
{
	for (int i = 0; i < 70000; i++)
		fire();
	CLAIM(reports(channel->fd) == POLLIN);
	int taken = 0;
	for (; reports(channel->fd) == POLLIN; taken++)
		take();
	CLAIM(taken == 65536);
}

static void contexts(void)
{
	CLAIM(reports(ctx->async_fd) == 0);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	struct ibv_srq_init_attr wants = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(pd, &wants);
	struct ibv_qp_init_attr init_attr = qp_wants(IBV_QPT_RC);
	init_attr.srq = srq;
	struct ibv_qp *qp[2] = {ibv_create_qp(pd, &init_attr), ibv_create_qp(pd, &init_attr)};
	CLAIM(srq && qp[0] && qp[1]);
	/* QP_LAST_WQE_REACHED of each; its thread carries them over. */
	for (int i = 0; i < 2; i++) {
		init(qp[i]);
		FAILS(ibv_modify_qp(qp[i], &attr, IBV_QP_STATE), 0);
	}
	for (int i = 0; i < 2; i++) {
		struct ibv_async_event event;
		struct pollfd entry = {.fd = ctx->async_fd, .events = POLLIN | POLLOUT};
		CLAIM(poll(&entry, 1, 8000) == 1 && entry.revents == POLLIN);
		CLAIM(ibv_get_async_event(ctx, &event) == 0 && event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED);
		ibv_ack_async_event(&event);
	}
	CLAIM(reports(ctx->async_fd) == 0);
	struct ibv_async_event event;
	CLAIM(fcntl(ctx->async_fd, F_SETFL, O_NONBLOCK) == 0);
	CLAIM((errno = 0, ibv_get_async_event(ctx, &event)) == -1 && errno == EAGAIN);
	for (int i = 0; i < 2; i++)
		FAILS(ibv_destroy_qp(qp[i]), 0);
	FAILS(ibv_destroy_srq(srq), 0);
}

static void connection_managers(void)
{
	CLAIM(inet_pton(AF_INET, getenv("PUMICE_ADDR"), &own.sin_addr) == 1);
	CLAIM((active = rdma_create_event_channel()));
	CLAIM(reports(active->fd) == 0);
	struct rdma_cm_id *id;
	CLAIM(rdma_create_id(active, &id, NULL, RDMA_PS_TCP) == 0);
	CLAIM(rdma_resolve_addr(id, NULL, (struct sockaddr *)&own, 1000) == 0);
	struct pollfd entry = {.fd = active->fd, .events = POLLIN | POLLOUT};
	CLAIM(poll(&entry, 1, 8000) == 1 && entry.revents == POLLIN);
	see(active, id, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	CLAIM(reports(active->fd) == 0);
	CLAIM(rdma_destroy_id(id) == 0);
	rdma_destroy_event_channel(active);
}

int main(void)
{
	open_device();
	a = pair(IBV_QPT_RC, &b);
	completion_channels();
	floods();
	FAILS(ibv_destroy_qp(a), 0);
	FAILS(ibv_destroy_qp(b), 0);
	contexts();
	connection_managers();
	FAILS(ibv_destroy_cq(cq), 0);
	FAILS(ibv_destroy_comp_channel(channel), 0);
	FAILS(ibv_close_device(ctx), 0);
	return 0;
}
