/* What the programs beside this header share: a device, and a queue pair that is connected to itself. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char memory[4096];

__attribute__((unused)) static struct ibv_context *open_first(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	if (!list)
		return NULL;
	struct ibv_context *context = list[0] ? ibv_open_device(list[0]) : NULL;
	ibv_free_device_list(list);
	return context;
}

__attribute__((unused)) static struct ibv_qp *make_qp(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr wants = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	return ibv_create_qp(pd, &wants);
}

/* 0, or the errno of the call that failed. */
__attribute__((unused)) static int connect_to_itself(struct ibv_qp *qp)
{
	union ibv_gid gid;
	if (ibv_query_gid(qp->context, 1, 0, &gid))
		return errno ? errno : EIO;
	struct ibv_qp_attr init = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_LOCAL_WRITE};
	int failed = ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (failed)
		return failed;
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = qp->qp_num,
		.min_rnr_timer = 1,
		.ah_attr = {.is_global = 1, .grh = {.dgid = gid, .hop_limit = 64}, .port_num = 1},
	};
	failed = ibv_modify_qp(qp, &rtr,
			       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (failed)
		return failed;
	struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7};
	return ibv_modify_qp(qp, &rts,
			     IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				     IBV_QP_MAX_QP_RD_ATOMIC);
}

__attribute__((unused)) static int post_receive(struct ibv_qp *qp, struct ibv_mr *mr)
{
	struct ibv_sge sge = {.addr = (uintptr_t)memory, .length = 8, .lkey = mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
	return ibv_post_recv(qp, &wr, &bad);
}

__attribute__((unused)) static int post_send(struct ibv_qp *qp, struct ibv_mr *mr)
{
	struct ibv_sge sge = {.addr = (uintptr_t)memory + 64, .length = 8, .lkey = mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
	return ibv_post_send(qp, &wr, &bad);
}

/* All that a program needs for a message to itself. */
struct all {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
};

static int complain(const char *what, int failed)
{
	if (failed)
		fprintf(stderr, "%s: %s\n", what, strerror(failed));
	return failed;
}

/* Gives back everything that is there; a step that fails keeps no other from being taken. */
__attribute__((unused)) static int give_back(struct all *all)
{
	int failed = 0;
	if (all->qp)
		failed |= complain("ibv_destroy_qp", ibv_destroy_qp(all->qp));
	if (all->mr)
		failed |= complain("ibv_dereg_mr", ibv_dereg_mr(all->mr));
	if (all->cq)
		failed |= complain("ibv_destroy_cq", ibv_destroy_cq(all->cq));
	if (all->channel)
		failed |= complain("ibv_destroy_comp_channel", ibv_destroy_comp_channel(all->channel));
	if (all->pd)
		failed |= complain("ibv_dealloc_pd", ibv_dealloc_pd(all->pd));
	if (all->context && ibv_close_device(all->context))
		failed |= complain("ibv_close_device", errno);
	return failed != 0;
}

/* Makes everything; what could not be made is NULL, and all after it. */
__attribute__((unused)) static int make_all(struct all *all)
{
	memset(all, 0, sizeof(*all));
	if (!(all->context = open_first()))
		return complain("opening the device", errno);
	if (!(all->pd = ibv_alloc_pd(all->context)))
		return complain("ibv_alloc_pd", errno);
	if (!(all->channel = ibv_create_comp_channel(all->context)))
		return complain("ibv_create_comp_channel", errno);
	if (!(all->cq = ibv_create_cq(all->context, 8, NULL, all->channel, 0)))
		return complain("ibv_create_cq", errno);
	if (!(all->mr = ibv_reg_mr(all->pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE)))
		return complain("ibv_reg_mr", errno);
	if (!(all->qp = make_qp(all->pd, all->cq)))
		return complain("ibv_create_qp", errno);
	return complain("connecting", connect_to_itself(all->qp));
}
