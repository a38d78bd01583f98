/* What the rules of tests/removal.rs make of the link and of the device: a cable that is pulled, another rate,
 * and a device that is pulled out and comes back. */
#include "expect.h"
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>

static void expect_event(enum ibv_event_type type)
{
	struct ibv_async_event event;
	CLAIM(ibv_get_async_event(ctx, &event) == 0);
	if (event.event_type != type)
		fprintf(stderr, "%s\n", ibv_event_type_str(event.event_type));
	CLAIM(event.event_type == type);
	ibv_ack_async_event(&event);
}

static int has_event(void)
{
	struct pollfd entry = {.fd = ctx->async_fd, .events = POLLIN};
	return poll(&entry, 1, 0);
}

static void write_one(struct ibv_qp *qp)
{
	struct ibv_sge sge = piece(0, 8);
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
	wr.wr.rdma.remote_addr = (uintptr_t)&memory[100];
	wr.wr.rdma.rkey = mr->rkey;
	post(qp, &wr);
}

static struct ibv_port_attr port(void)
{
	struct ibv_port_attr attr;
	FAILS(ibv_query_port(ctx, 1, &attr), 0);
	return attr;
}

static int devices(void)
{
	int count = -1;
	struct ibv_device **list = ibv_get_device_list(&count);
	CLAIM(list);
	ibv_free_device_list(list);
	return count;
}

/* The device of an identifier that is on its way to the own address. */
static struct rdma_cm_id *identifier(struct rdma_event_channel *events)
{
	struct rdma_cm_id *id;
	struct rdma_cm_event *event;
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(7471)};
	memcpy(&to.sin_addr, &own_gid.raw[12], 4);
	FAILS(rdma_create_id(events, &id, NULL, RDMA_PS_TCP), 0);
	FAILS(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 1000), 0);
	FAILS(rdma_get_cm_event(events, &event), 0);
	CLAIM(event->event == RDMA_CM_EVENT_ADDR_RESOLVED && event->id == id && id->verbs);
	rdma_ack_cm_event(event);
	return id;
}

int main(void)
{
	open_device();
	struct ibv_device *device = ctx->device;
	struct rdma_event_channel *events = rdma_create_event_channel();
	CLAIM(events);
	struct rdma_cm_id *id = identifier(events);
	struct ibv_qp *b;
	struct ibv_qp *a = pair(IBV_QPT_RC, &b);
	write_one(a);
	completions(1);

	/* The cable is out, and only the physical state says so. It comes in when the first query has returned. */
	write_one(a);
	struct ibv_port_attr attr = port();
	CLAIM(attr.state == IBV_PORT_ACTIVE && attr.phys_state == 2);
	completions(1);
	CLAIM(!has_event());
	/* The link is trained again when the second query has returned. */
	attr = port();
	CLAIM(attr.state == IBV_PORT_ACTIVE && attr.phys_state == 5);
	expect_event(IBV_EVENT_PORT_ERR);
	expect_event(IBV_EVENT_PORT_ACTIVE);
	attr = port();
	CLAIM(attr.state == IBV_PORT_ACTIVE && attr.active_speed == 32 && attr.active_width == 2);

	/* The device is pulled out: what was posted is flushed, and programs find it. */
	struct ibv_qp_attr none;
	struct ibv_qp_init_attr none_init;
	write_one(a);
	expect_event(IBV_EVENT_DEVICE_FATAL);
	CLAIM(completion().status == IBV_WC_WR_FLUSH_ERR);
	struct ibv_wc wc;
	CLAIM(ibv_poll_cq(cq, 1, &wc) == 0);
	struct ibv_sge sge = piece(0, 8);
	struct ibv_send_wr *bad_send, send = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
	FAILS(ibv_post_send(a, &send, &bad_send), EIO);
	FAILS(ibv_query_port(ctx, 1, &attr), EIO);
	FAILS(ibv_query_qp(a, &none, IBV_QP_STATE, &none_init), EIO);
	REFUSED(ibv_reg_mr(pd, memory, 8, 0), EIO);
	CLAIM(devices() == 0);
	REFUSED(ibv_open_device(device), ENODEV);
	struct rdma_cm_event *event;
	FAILS(rdma_get_cm_event(events, &event), 0);
	CLAIM(event->event == RDMA_CM_EVENT_DEVICE_REMOVAL && event->id == id);
	rdma_ack_cm_event(event);

	/* It comes back as another one: what was opened stays dead. */
	time_t end = time(NULL) + 60;
	while (devices() == 0)
		CLAIM(time(NULL) <= end);
	FAILS(ibv_query_port(ctx, 1, &attr), EIO);
	struct ibv_context *dead = ctx;
	struct ibv_pd *dead_pd = pd;
	struct ibv_comp_channel *dead_channel = channel;
	struct ibv_cq *dead_cq = cq;
	struct ibv_mr *dead_mr = mr;
	open_device();
	CLAIM(ctx != dead && ctx->device == device);
	struct ibv_qp *d;
	struct ibv_qp *c = pair(IBV_QPT_RC, &d);
	memory[0] = 4711;
	write_one(c);
	write_one(c);
	write_one(c);
	completions(3);
	CLAIM(memory[100] == 4711 && !has_event());
	struct rdma_cm_id *fresh = identifier(events);
	CLAIM(fresh->verbs != id->verbs);
	FAILS(rdma_destroy_id(fresh), 0);
	FAILS(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(events);

	/* Both can be given back. */
	FAILS(ibv_destroy_qp(a), 0);
	FAILS(ibv_destroy_qp(b), 0);
	FAILS(ibv_destroy_cq(dead_cq), 0);
	FAILS(ibv_dereg_mr(dead_mr), 0);
	FAILS(ibv_dealloc_pd(dead_pd), 0);
	FAILS(ibv_destroy_comp_channel(dead_channel), 0);
	FAILS(ibv_close_device(dead), 0);
	write_one(c);
	completions(1);
	FAILS(ibv_destroy_qp(c), 0);
	FAILS(ibv_destroy_qp(d), 0);
	FAILS(ibv_destroy_cq(cq), 0);
	FAILS(ibv_dereg_mr(mr), 0);
	FAILS(ibv_dealloc_pd(pd), 0);
	FAILS(ibv_destroy_comp_channel(channel), 0);
	FAILS(ibv_close_device(ctx), 0);
	return 0;
}
