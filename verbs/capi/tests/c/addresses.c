/* The GID table follows the addresses of the host. Moves to a network namespace of its own; exit code 77: it may not. */
#define _GNU_SOURCE
#include "expect.h"
#include <sched.h>

static unsigned lid_changes;

static void until(enum ibv_event_type wanted)
{
	struct ibv_async_event event;
	time_t end = time(NULL) + 60;
	do {
		struct pollfd waiting = {.fd = ctx->async_fd, .events = POLLIN};
		CLAIM(time(NULL) <= end);
		if (poll(&waiting, 1, 1000) != 1)
			continue;
		CLAIM(ibv_get_async_event(ctx, &event) == 0);
		CLAIM(event.event_type == IBV_EVENT_GID_CHANGE || event.event_type == IBV_EVENT_PORT_ERR ||
		      event.event_type == IBV_EVENT_PORT_ACTIVE ||
		      (getenv("PUMICE_LID") && event.event_type == IBV_EVENT_LID_CHANGE));
		CLAIM(event.element.port_num == 1);
		lid_changes += event.event_type == IBV_EVENT_LID_CHANGE;
		ibv_ack_async_event(&event);
	} while (event.event_type != wanted);
}

/* Index of an IPv4 address, or -1. */
static int find(uint8_t last)
{
	union ibv_gid gid, wanted = {.raw = {[10] = 0xff, 0xff, 10, 77, 0, last}};
	for (int i = 0; i < 16; i++)
		if (ibv_query_gid(ctx, 1, i, &gid) == 0 && !memcmp(&gid, &wanted, 16))
			return i;
	return -1;
}

static enum ibv_port_state port_state(void)
{
	struct ibv_port_attr port;
	FAILS(ibv_query_port(ctx, 1, &port), 0);
	return port.state;
}

/* With PUMICE_ADDR there is one address, and the port is there while that is. */
static void one_address(void)
{
	open_device();
	CLAIM(find(1) == 0 && port_state() == IBV_PORT_ACTIVE);
	CLAIM(system("ip address add 10.77.0.2/32 dev lo") == 0);
	CLAIM(system("ip address del 10.77.0.1/32 dev lo") == 0);
	until(IBV_EVENT_PORT_ERR);
	CLAIM(port_state() == IBV_PORT_DOWN && find(1) == -1 && find(2) == -1);
	CLAIM(system("ip address add 10.77.0.1/32 dev lo") == 0);
	until(IBV_EVENT_PORT_ACTIVE);
	CLAIM(port_state() == IBV_PORT_ACTIVE && find(1) == 0);
	CLAIM(system("ip link set lo down") == 0);
	until(IBV_EVENT_PORT_ERR);
	CLAIM(system("ip link set lo up") == 0);
	until(IBV_EVENT_PORT_ACTIVE);
	/* And it works again. */
	struct ibv_qp *b, *a = pair(IBV_QPT_RC, &b);
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, piece(0, 64), (uintptr_t)memory + 64, mr->rkey), 0);
	FAILS(ibv_close_device(ctx), 0);
}

int main(void)
{
	struct ibv_gid_entry entry;
	if (unshare(CLONE_NEWNET) || system("ip link set lo up && ip address add 10.77.0.1/32 dev lo"))
		return 77;
	if (getenv("PUMICE_ADDR")) {
		one_address();
		return 0;
	}
	open_device();
	int first = find(1);
	CLAIM(first >= 0 && port_state() == IBV_PORT_ACTIVE);
	CLAIM(system("ip address add 10.77.0.2/32 dev lo") == 0);
	while (find(2) < 0)
		until(IBV_EVENT_GID_CHANGE);
	CLAIM(find(1) == first);
	CLAIM(system("ip address del 10.77.0.1/32 dev lo") == 0);
	while (find(1) >= 0)
		until(IBV_EVENT_GID_CHANGE);
	FAILS(ibv_query_gid_ex(ctx, 1, first, &entry, 0), ENODATA);
	CLAIM(find(2) >= 0);
	CLAIM(system("ip link set lo down") == 0);
	until(IBV_EVENT_PORT_ERR);
	CLAIM(port_state() == IBV_PORT_DOWN && find(2) == -1);
	CLAIM(system("ip link set lo up") == 0);
	until(IBV_EVENT_PORT_ACTIVE);
	CLAIM(port_state() == IBV_PORT_ACTIVE);
	CLAIM(!getenv("PUMICE_LID") == !lid_changes);
	FAILS(ibv_dereg_mr(mr), 0);
	FAILS(ibv_destroy_cq(cq), 0);
	FAILS(ibv_destroy_comp_channel(channel), 0);
	FAILS(ibv_dealloc_pd(pd), 0);
	FAILS(ibv_close_device(ctx), 0);
	return 0;
}
