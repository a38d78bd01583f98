/* Sends datagrams to itself, then makes and ends a connection to itself; says which datagrams came, and that the
 * connection was there. Its arguments are its address, and how many datagrams come. */
#include "../sweep/steps.h"
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>

#define DATAGRAMS 12
#define Q_KEY 7
#define HEADER 40

static int must(int good, const char *what)
{
	if (!good) {
		fprintf(stderr, "%s: %s\n", what, strerror(errno));
		exit(1);
	}
	return good;
}

static struct ibv_qp *datagram_qp(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr wants = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 1, .max_recv_wr = DATAGRAMS, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_UD,
		.sq_sig_all = 1,
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &wants);
	must(qp != NULL, "ibv_create_qp");
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = Q_KEY};
	must(!ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), "INIT");
	struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR};
	must(!ibv_modify_qp(qp, &rtr, IBV_QP_STATE), "RTR");
	struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS};
	must(!ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN), "RTS");
	return qp;
}

static void send_datagram(struct all *all, struct ibv_ah *ah, struct ibv_qp *qp, int number)
{
	memory[2048] = number;
	struct ibv_sge sge = {.addr = (uintptr_t)memory + 2048, .length = 8, .lkey = all->mr->lkey};
	struct ibv_send_wr wr = {
		.wr_id = 100,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.wr.ud = {.ah = ah, .remote_qpn = qp->qp_num, .remote_qkey = Q_KEY},
	};
	struct ibv_send_wr *bad;
	must(!ibv_post_send(qp, &wr, &bad), "ibv_post_send");
}

static int by_number(const void *one, const void *other)
{
	return *(const int *)one - *(const int *)other;
}

static void datagrams(struct all *all, int expected)
{
	struct ibv_qp *qp = datagram_qp(all->pd, all->cq);
	union ibv_gid gid;
	must(!ibv_query_gid(all->context, 1, 0, &gid), "ibv_query_gid");
	struct ibv_ah_attr to = {.is_global = 1, .grh = {.dgid = gid, .hop_limit = 64}, .port_num = 1};
	struct ibv_ah *ah = ibv_create_ah(all->pd, &to);
	must(ah != NULL, "ibv_create_ah");
	for (int i = 0; i < DATAGRAMS; i++) {
		struct ibv_sge sge = {.addr = (uintptr_t)memory + i * 64, .length = 64, .lkey = all->mr->lkey};
		struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1}, *bad;
		must(!ibv_post_recv(qp, &wr, &bad), "ibv_post_recv");
	}
	int sent = 0, came = 0, numbers[DATAGRAMS];
	send_datagram(all, ah, qp, sent);
	while (sent < DATAGRAMS || came < expected) {
		struct ibv_wc wc;
		int found = ibv_poll_cq(all->cq, 1, &wc);
		must(found >= 0 && (!found || !wc.status), "ibv_poll_cq");
		if (found && wc.wr_id == 100) {
			if (++sent < DATAGRAMS)
				send_datagram(all, ah, qp, sent);
		} else if (found) {
			must(came < expected, "more datagrams than expected");
			numbers[came++] = memory[wc.wr_id * 64 + HEADER];
		}
	}
	/* Those that were late came in another order. */
	qsort(numbers, came, sizeof *numbers, by_number);
	printf("datagrams");
	for (int i = 0; i < came; i++)
		printf(" %d", numbers[i]);
	puts("");
	ibv_destroy_ah(ah);
	ibv_destroy_qp(qp);
}

static struct rdma_cm_event *next(struct rdma_event_channel *channel, enum rdma_cm_event_type wanted)
{
	struct rdma_cm_event *event;
	must(!rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
	if (event->event != wanted) {
		fprintf(stderr, "%s, not %s\n", rdma_event_str(event->event), rdma_event_str(wanted));
		exit(1);
	}
	return event;
}

static void see(struct rdma_event_channel *channel, enum rdma_cm_event_type wanted)
{
	rdma_ack_cm_event(next(channel, wanted));
}

static void give_queue_pair(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr wants = {
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}, .qp_type = IBV_QPT_RC};
	must(!rdma_create_qp(id, NULL, &wants), "rdma_create_qp");
}

static void gone(struct rdma_cm_id *id)
{
	if (id->qp)
		rdma_destroy_qp(id);
	must(!rdma_destroy_id(id), "rdma_destroy_id");
}

static void connection(const char *address)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	must(inet_pton(AF_INET, address, &at.sin_addr), "inet_pton");
	struct rdma_event_channel *passive = rdma_create_event_channel(), *active = rdma_create_event_channel();
	struct rdma_cm_id *waits, *asks;
	must(passive && active && !rdma_create_id(passive, &waits, NULL, RDMA_PS_TCP), "rdma_create_id");
	must(!rdma_bind_addr(waits, (struct sockaddr *)&at) && !rdma_listen(waits, 4), "rdma_listen");
	at.sin_port = rdma_get_src_port(waits);
	must(!rdma_create_id(active, &asks, NULL, RDMA_PS_TCP), "rdma_create_id");
	must(!rdma_resolve_addr(asks, NULL, (struct sockaddr *)&at, 100), "rdma_resolve_addr");
	see(active, RDMA_CM_EVENT_ADDR_RESOLVED);
	must(!rdma_resolve_route(asks, 100), "rdma_resolve_route");
	see(active, RDMA_CM_EVENT_ROUTE_RESOLVED);
	give_queue_pair(asks);
	struct rdma_conn_param says = {.retry_count = 7};
	must(!rdma_connect(asks, &says), "rdma_connect");
	struct rdma_cm_event *request = next(passive, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *asked = request->id;
	give_queue_pair(asked);
	must(!rdma_accept(asked, &says), "rdma_accept");
	rdma_ack_cm_event(request);
	see(active, RDMA_CM_EVENT_ESTABLISHED);
	see(passive, RDMA_CM_EVENT_ESTABLISHED);
	must(!rdma_disconnect(asks), "rdma_disconnect");
	see(passive, RDMA_CM_EVENT_DISCONNECTED);
	must(!rdma_disconnect(asked), "rdma_disconnect");
	see(active, RDMA_CM_EVENT_DISCONNECTED);
	gone(asks);
	gone(asked);
	gone(waits);
	rdma_destroy_event_channel(active);
	rdma_destroy_event_channel(passive);
	puts("connected");
}

int main(int count, char **arguments)
{
	struct all all;
	int expected = count == 3 ? atoi(arguments[2]) : 0;
	if (expected < 1 || expected > DATAGRAMS || make_all(&all))
		return 1;
	datagrams(&all, expected);
	connection(arguments[1]);
	return give_back(&all);
}
