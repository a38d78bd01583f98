/* Hosts that answer no ARP on purpose. The arguments: an address of a silent host, and one of a host that answers. */
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>

#include "expect.h"

static union ibv_gid mapped(const char *text)
{
	union ibv_gid gid = {.raw = {[10] = 0xff, [11] = 0xff}};
	CLAIM(inet_pton(AF_INET, text, gid.raw + 12) == 1);
	return gid;
}

static int to_rtr(const char *peer)
{
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	struct ibv_qp *qp = ibv_create_qp(pd, &wants);
	CLAIM(qp);
	init(qp);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = 9, .max_dest_rd_atomic = 1, .ah_attr = own_address()};
	attr.ah_attr.grh.dgid = mapped(peer);
	int failed = ibv_modify_qp(qp, &attr,
				   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
					   IBV_QP_MIN_RNR_TIMER);
	/* What failed changed nothing. */
	CLAIM(qp->state == (failed ? IBV_QPS_INIT : IBV_QPS_RTR));
	FAILS(ibv_destroy_qp(qp), 0);
	return failed;
}

static struct ibv_ah *handle(const char *peer)
{
	struct ibv_ah_attr attr = own_address();
	attr.grh.dgid = mapped(peer);
	return ibv_create_ah(pd, &attr);
}

/* The event that rdma_resolve_addr leads to, and its status. */
static enum rdma_cm_event_type resolved(const char *peer, int *status)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(7471)};
	struct rdma_event_channel *events = rdma_create_event_channel();
	struct rdma_cm_id *id;
	struct rdma_cm_event *event;
	CLAIM(events && rdma_create_id(events, &id, NULL, RDMA_PS_TCP) == 0);
	CLAIM(inet_pton(AF_INET, peer, &address.sin_addr) == 1);
	CLAIM(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000) == 0);
	CLAIM(rdma_get_cm_event(events, &event) == 0);
	enum rdma_cm_event_type type = event->event;
	*status = event->status;
	CLAIM(rdma_ack_cm_event(event) == 0 && rdma_destroy_id(id) == 0);
	rdma_destroy_event_channel(events);
	return type;
}

int main(int argc, char **argv)
{
	CLAIM(argc == 3);
	const char *silent = argv[1], *there = argv[2];
	int status;
	open_device();
	FAILS(to_rtr(silent), ETIMEDOUT);
	FAILS(to_rtr(there), 0);
	REFUSED(handle(silent), ETIMEDOUT);
	struct ibv_ah *made = handle(there);
	CLAIM(made);
	FAILS(ibv_destroy_ah(made), 0);
	CLAIM(resolved(silent, &status) == RDMA_CM_EVENT_ADDR_ERROR && status == -ETIMEDOUT);
	CLAIM(resolved(there, &status) == RDMA_CM_EVENT_ADDR_RESOLVED && status == 0);
	return 0;
}
