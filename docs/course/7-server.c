// A key-value server. Clients put by SEND. They get by RDMA READ, of which the server notices nothing.
//   7-server ADDRESS
#include "7-key-value.h"
#include <poll.h>

enum { RECEIVES = 64 };

static struct slot table[SLOTS + PROBES], arrived[RECEIVES];

// A put replaces the value of its key, or takes the first empty slot behind its place.
static void store(const struct slot *put)
{
	if (put->sum != sum_of(put) || memchr(put->key, 0, sizeof put->key) == NULL)
		return; // a client may send anything
	struct slot *slot = table + place_of(put->key), *end = slot + PROBES;
	while (slot < end && slot->key[0] && strcmp(slot->key, put->key) != 0)
		slot++;
	if (slot < end)
		*slot = *put;
}

static void post_receive(struct ibv_srq *srq, struct ibv_mr *mr, uint64_t number)
{
	struct ibv_sge into = {(uintptr_t)&arrived[number], sizeof arrived[number], mr->lkey};
	struct ibv_recv_wr receive = {.wr_id = number, .sg_list = &into, .num_sge = 1}, *bad;
	need(ibv_post_srq_recv(srq, &receive, &bad) == 0, "ibv_post_srq_recv");
}

static void on_event(struct rdma_cm_event *event, struct ibv_pd *pd, struct ibv_qp_init_attr *attr, uint32_t rkey)
{
	struct rdma_cm_id *id = event->id;
	int type = event->event;
	struct remote there = {(uintptr_t)table, rkey};
	struct rdma_conn_param param = {
		.private_data = &there, .private_data_len = sizeof there, .responder_resources = 1, .rnr_retry_count = 7};
	rdma_ack_cm_event(event);
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
		if (rdma_create_qp(id, pd, attr) != 0 || rdma_accept(id, &param) != 0)
			perror("a client is not accepted");
	} else if (type == RDMA_CM_EVENT_DISCONNECTED) {
		rdma_destroy_qp(id);
		rdma_destroy_id(id);
	}
}

static void serve(struct rdma_addrinfo *address)
{
	struct rdma_event_channel *events = rdma_create_event_channel();
	struct rdma_cm_id *listener;
	need(events && rdma_create_id(events, &listener, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
	need(rdma_bind_addr(listener, address->ai_src_addr) == 0 && listener->verbs, "rdma_bind_addr");
	struct ibv_pd *pd = ibv_alloc_pd(listener->verbs);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(listener->verbs);
	struct ibv_cq *cq = ibv_create_cq(listener->verbs, 2 * RECEIVES, NULL, channel, 0);
	struct ibv_srq_init_attr stock = {.attr = {.max_wr = RECEIVES, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(pd, &stock); // one stock of receives for all clients
	struct ibv_mr *of_table = ibv_reg_mr(pd, table, sizeof table, IBV_ACCESS_REMOTE_READ);
	struct ibv_mr *of_arrived = ibv_reg_mr(pd, arrived, sizeof arrived, IBV_ACCESS_LOCAL_WRITE);
	need(pd && channel && cq && srq && of_table && of_arrived, "objects of the server");
	for (int k = 0; k < RECEIVES; k++)
		post_receive(srq, of_arrived, k);
	struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq, .srq = srq, .cap = {.max_send_wr = 1}};
	need(ibv_req_notify_cq(cq, 0) == 0 && rdma_listen(listener, 16) == 0, "rdma_listen");
	puts("ready");
	fflush(stdout);
	for (;;) {
		struct pollfd ready[2] = {{.fd = events->fd, .events = POLLIN}, {.fd = channel->fd, .events = POLLIN}};
		need(poll(ready, 2, -1) > 0, "poll");
		struct rdma_cm_event *event;
		if (ready[0].revents && rdma_get_cm_event(events, &event) == 0)
			on_event(event, pd, &attr, of_table->rkey);
		void *context;
		if (!ready[1].revents || ibv_get_cq_event(channel, &cq, &context) != 0)
			continue;
		ibv_ack_cq_events(cq, 1);
		need(ibv_req_notify_cq(cq, 0) == 0, "ibv_req_notify_cq"); // arm first, then poll
		for (struct ibv_wc wc; ibv_poll_cq(cq, 1, &wc) > 0; post_receive(srq, of_arrived, wc.wr_id))
			if (wc.status == IBV_WC_SUCCESS && wc.byte_len == sizeof(struct slot))
				store(&arrived[wc.wr_id]);
	}
}

int main(int count, char **words)
{
	struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP}, *address;
	need(count == 2, "say: 7-server ADDRESS");
	need(rdma_getaddrinfo(words[1], "7471", &hints, &address) == 0, "rdma_getaddrinfo");
	serve(address);
}
