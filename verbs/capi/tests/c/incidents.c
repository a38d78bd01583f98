/* What the rules of tests/incidents.rs make happen to the device: each at its work request, with its event. */
#include "expect.h"

/* The next event is this one. */
static void expect(enum ibv_event_type type, void *element)
{
	struct ibv_async_event event;
	CLAIM(ibv_get_async_event(ctx, &event) == 0);
	if (event.event_type != type)
		fprintf(stderr, "%s\n", ibv_event_type_str(event.event_type));
	CLAIM(event.event_type == type && (!element || (void *)event.element.qp == element));
	ibv_ack_async_event(&event);
}

static void write_one(struct ibv_qp *qp)
{
	struct ibv_sge sge = piece(0, 8);
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
	wr.wr.rdma.remote_addr = (uintptr_t)&memory[100];
	wr.wr.rdma.rkey = mr->rkey;
	post(qp, &wr);
}

static int has_gid(int index)
{
	union ibv_gid gid;
	FAILS(ibv_query_gid(ctx, 1, index, &gid), 0);
	return memcmp(&gid, &own_gid, sizeof(gid)) == 0;
}

static enum ibv_port_state port_state(void)
{
	struct ibv_port_attr port;
	FAILS(ibv_query_port(ctx, 1, &port), 0);
	return port.state;
}

static enum ibv_qp_state state_of(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init_attr;
	FAILS(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init_attr), 0);
	return attr.qp_state;
}

int main(void)
{
	open_device();
	struct ibv_qp *b, *d, *f;
	struct ibv_qp *a = pair(IBV_QPT_RC, &b);
	write_one(a);
	completions(1);
	write_one(a);
	expect(IBV_EVENT_LID_CHANGE, NULL);
	completions(1);
	write_one(a);
	expect(IBV_EVENT_GID_CHANGE, NULL);
	completions(1);
	CLAIM(!has_gid(0) && has_gid(5));
	write_one(a);
	expect(IBV_EVENT_GID_CHANGE, NULL);
	completions(1);
	CLAIM(has_gid(0) && !has_gid(5));
	write_one(a);
	expect(IBV_EVENT_PORT_ERR, NULL);
	expect(IBV_EVENT_PORT_ACTIVE, NULL);
	completions(1);
	CLAIM(port_state() == IBV_PORT_ACTIVE);

	/* A queue pair fails before its second request; the requests that wait with it are flushed. */
	struct ibv_qp *c = pair(IBV_QPT_RC, &d);
	write_one(c);
	completions(1);
	write_one(c);
	write_one(c);
	expect(IBV_EVENT_QP_FATAL, c);
	CLAIM(completion().status == IBV_WC_WR_FLUSH_ERR && completion().status == IBV_WC_WR_FLUSH_ERR);
	CLAIM(state_of(c) == IBV_QPS_ERR && state_of(a) == IBV_QPS_RTS);
	FAILS(ibv_destroy_qp(c), 0);
	FAILS(ibv_destroy_qp(d), 0);

	/* The completion queue fails, and its queue pairs with it. */
	write_one(a);
	expect(IBV_EVENT_CQ_ERR, cq);
	expect(IBV_EVENT_QP_FATAL, NULL);
	expect(IBV_EVENT_QP_FATAL, NULL);
	CLAIM(state_of(a) == IBV_QPS_ERR && state_of(b) == IBV_QPS_ERR);
	FAILS(ibv_destroy_qp(a), 0);
	FAILS(ibv_destroy_qp(b), 0);
	FAILS(ibv_destroy_cq(cq), 0);

	/* The adapter is lost: nothing but giving objects back is left to do. */
	CLAIM((cq = ibv_create_cq(ctx, 64, &cq, channel, 0)));
	struct ibv_qp *e = pair(IBV_QPT_RC, &f);
	write_one(e);
	expect(IBV_EVENT_DEVICE_FATAL, NULL);
	struct ibv_sge sge = piece(0, 8);
	struct ibv_send_wr *bad_send, send = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
	FAILS(ibv_post_send(e, &send, &bad_send), EIO);
	struct ibv_wc wc;
	CLAIM(ibv_poll_cq(cq, 1, &wc) < 0);
	struct ibv_port_attr port;
	FAILS(ibv_query_port(ctx, 1, &port), EIO);
	REFUSED(ibv_reg_mr(pd, memory, 8, 0), EIO);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	FAILS(ibv_modify_qp(e, &attr, IBV_QP_STATE), EIO);
	FAILS(ibv_destroy_qp(e), 0);
	FAILS(ibv_destroy_qp(f), 0);
	FAILS(ibv_destroy_cq(cq), 0);
	FAILS(ibv_dereg_mr(mr), 0);
	FAILS(ibv_dealloc_pd(pd), 0);
	FAILS(ibv_destroy_comp_channel(channel), 0);
	FAILS(ibv_close_device(ctx), 0);
	return 0;
}
