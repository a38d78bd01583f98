// Chapter 2: bring two queue pairs from RESET to RTS. "forget" leaves one attribute out.
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *names[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};

static void need(int good, const char *what)
{
	if (good)
		return;
	perror(what);
	exit(1);
}

static void move(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	errno = ibv_modify_qp(qp, attr, IBV_QP_STATE | mask);
	need(errno == 0, names[attr->qp_state]);
	printf("queue pair %d: %s\n", *(int *)qp->qp_context, names[qp->state]);
}

int main(int count, char **words)
{
	int is_forgotten = count > 1 && strcmp(words[1], "forget") == 0;

	struct ibv_device **devices = ibv_get_device_list(NULL);
	need(devices && devices[0], "no RDMA device");
	struct ibv_context *context = ibv_open_device(devices[0]);
	need(context != NULL, "ibv_open_device");
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
	need(pd && cq, "a domain and a completion queue");
	union ibv_gid gid; // the address of this device: both ends are here
	need(ibv_query_gid(context, 1, 0, &gid) == 0, "ibv_query_gid");

	struct ibv_qp *qp[2];
	int number[2] = {0, 1};
	for (int k = 0; k < 2; k++) {
		struct ibv_qp_init_attr ends = {
			.qp_context = &number[k], .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
			.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		};
		qp[k] = ibv_create_qp(pd, &ends);
		need(qp[k] != NULL, "ibv_create_qp");
	}
	for (int k = 0; k < 2; k++) {
		struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1};
		move(qp[k], &init, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);

		struct ibv_qp_attr rtr = {
			.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp[1 - k]->qp_num,
			.max_dest_rd_atomic = 1, .min_rnr_timer = 12,
			.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .hop_limit = 64}},
		};
		move(qp[k], &rtr, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | (is_forgotten ? 0 : IBV_QP_MIN_RNR_TIMER));

		struct ibv_qp_attr rts = {
			.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 6, .max_rd_atomic = 1};
		move(qp[k], &rts, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			IBV_QP_MAX_QP_RD_ATOMIC);
	}
	for (int k = 0; k < 2; k++)
		ibv_destroy_qp(qp[k]);
	ibv_destroy_cq(cq);
	ibv_dealloc_pd(pd);
	ibv_close_device(context);
	ibv_free_device_list(devices);
	return 0;
}
