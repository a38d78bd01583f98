// What chapters 1 and 2 explain, for the programs of chapters 3 to 5: two connected ends.
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 4096, REQUESTS = 32 };

struct end {
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char memory[BYTES];
};

static inline void need(int good, const char *what)
{
	if (good)
		return;
	perror(what);
	exit(1);
}

static inline struct ibv_context *open_first_device(void)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	need(devices && devices[0], "no RDMA device");
	struct ibv_context *context = ibv_open_device(devices[0]);
	need(context != NULL, "ibv_open_device");
	ibv_free_device_list(devices);
	return context;
}

// One end: its own memory with these rights, its own completion queue, its own queue pair.
static inline void open_end(struct end *end, struct ibv_context *context, int access, int sq_sig_all)
{
	end->pd = ibv_alloc_pd(context);
	end->channel = ibv_create_comp_channel(context);
	need(end->pd && end->channel, "a domain and a channel");
	end->cq = ibv_create_cq(context, 2 * REQUESTS, NULL, end->channel, 0);
	end->mr = ibv_reg_mr(end->pd, end->memory, BYTES, access);
	need(end->cq && end->mr, "a completion queue and a region");
	struct ibv_qp_init_attr attr = {
		.send_cq = end->cq, .recv_cq = end->cq, .qp_type = IBV_QPT_RC, .sq_sig_all = sq_sig_all,
		.cap = {.max_send_wr = REQUESTS, .max_recv_wr = REQUESTS, .max_send_sge = 1, .max_recv_sge = 1},
	};
	end->qp = ibv_create_qp(end->pd, &attr);
	need(end->qp != NULL, "ibv_create_qp");
}

static inline void connect_end(struct end *end, struct end *peer, int access, int rnr_retry)
{
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access};
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qp->qp_num,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64}},
	};
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = rnr_retry, .max_rd_atomic = 1};
	need(ibv_query_gid(peer->qp->context, 1, 0, &rtr.ah_attr.grh.dgid) == 0, "ibv_query_gid");
	errno = ibv_modify_qp(end->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	need(errno == 0, "INIT");
	errno = ibv_modify_qp(end->qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
		IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	need(errno == 0, "RTR");
	errno = ibv_modify_qp(end->qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
		IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
	need(errno == 0, "RTS");
}

// What chapter 3 explains: a receive, and a send, of 64 bytes in these places of the memory.
static inline void post_receive_at(struct end *end, int place)
{
	struct ibv_sge into = {(uintptr_t)end->memory + place, 64, end->mr->lkey};
	struct ibv_recv_wr receive = {.wr_id = place, .sg_list = &into, .num_sge = 1}, *bad;
	errno = ibv_post_recv(end->qp, &receive, &bad);
	need(errno == 0, "ibv_post_recv");
}

static inline void post_send_of(struct end *end, int place, uint32_t number, int flags)
{
	struct ibv_sge from = {(uintptr_t)end->memory + place, 64, end->mr->lkey};
	struct ibv_send_wr send = {.wr_id = place, .sg_list = &from, .num_sge = 1, .send_flags = flags,
		.opcode = IBV_WR_SEND_WITH_IMM, .imm_data = htonl(number)}, *bad;
	errno = ibv_post_send(end->qp, &send, &bad);
	need(errno == 0, "ibv_post_send");
}

static inline void close_end(struct end *end)
{
	ibv_destroy_qp(end->qp);
	ibv_dereg_mr(end->mr);
	ibv_destroy_cq(end->cq);
	ibv_destroy_comp_channel(end->channel);
	ibv_dealloc_pd(end->pd);
}
