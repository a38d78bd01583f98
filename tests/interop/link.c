/* A device, memory, and a connected pair of queue pairs. */
#include "interop.h"

#include <stdlib.h>

void open_side(struct side *s, const char *device)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	for (int i = 0; i < count; i++)
		if (!strcmp(ibv_get_device_name(list[i]), device))
			s->context = ibv_open_device(list[i]);
	if (!s->context) {
		fprintf(stderr, "there is no device %s\n", device);
		exit(2);
	}
	ibv_free_device_list(list);
	struct ibv_device_attr_ex attr;
	if (!ibv_query_device_ex(s->context, NULL, &attr))
		s->abilities = attr.device_cap_flags_ex;
	s->memory = aligned_alloc(4096, MEMORY);
	if (!s->memory || ibv_query_gid(s->context, 1, s->gid_index, &s->own.gid)) {
		perror("memory or GID");
		exit(2);
	}
}

static int rights(const struct plan *plan)
{
	return IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | plan->more_rights;
}

static void create(struct side *s, const struct plan *plan)
{
	CLAIM(s->pd = ibv_alloc_pd(s->context));
	CLAIM(s->cq = ibv_create_cq(s->context, 4 * DEPTH, NULL, NULL, 0));
	CLAIM(s->mr = ibv_reg_mr(s->pd, s->memory, MEMORY, rights(plan) | IBV_ACCESS_MW_BIND));
	if (plan->shared_receives) {
		struct ibv_srq_init_attr wants = {.attr = {.max_wr = DEPTH, .max_sge = 1}};
		CLAIM(s->srq = ibv_create_srq(s->pd, &wants));
	}
	struct ibv_qp_cap cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 4, .max_recv_sge = 4, .max_inline_data = 64};
	if (plan->extended) {
		struct ibv_qp_init_attr_ex wants = {
			.qp_type = plan->type, .send_cq = s->cq, .recv_cq = s->cq, .srq = s->srq, .cap = cap, .pd = s->pd,
			.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .send_ops_flags = plan->extended};
		CLAIM(s->qp = ibv_create_qp_ex(s->context, &wants));
	} else {
		struct ibv_qp_init_attr wants = {.qp_type = plan->type, .send_cq = s->cq, .recv_cq = s->cq, .srq = s->srq, .cap = cap};
		CLAIM(s->qp = ibv_create_qp(s->pd, &wants));
	}
}

static struct ibv_ah_attr path_to(struct side *s, const union ibv_gid *gid, const struct plan *plan)
{
	return (struct ibv_ah_attr){.is_global = 1,
				    .port_num = 1,
				    .grh = {.dgid = *gid,
					    .sgid_index = s->gid_index,
					    .hop_limit = 64,
					    .traffic_class = plan->traffic_class,
					    .flow_label = plan->flow_label}};
}

static void connect_to_peer(struct side *s, const struct plan *plan)
{
	bool datagrams = plan->type == IBV_QPT_UD, reliable = plan->type == IBV_QPT_RC;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY,
				   .qp_access_flags = rights(plan) & ~plan->no_rights};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	CLAIM(!ibv_modify_qp(s->qp, &attr, mask | (datagrams ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)));

	int depth = plan->rd_atomic ? plan->rd_atomic : 16;
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = s->mtu, .rq_psn = s->peer.psn,
				    .dest_qp_num = plan->wrong_qpn ? plan->wrong_qpn : s->peer.qpn,
				    .max_dest_rd_atomic = depth, .min_rnr_timer = plan->rnr_timer ? plan->rnr_timer : 1,
				    .ah_attr = path_to(s, &s->peer.gid, plan)};
	mask = IBV_QP_STATE;
	if (!datagrams)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (reliable)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	CLAIM(!ibv_modify_qp(s->qp, &attr, mask));

	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .sq_psn = s->own.psn, .max_rd_atomic = depth,
				    .timeout = plan->timeout ? plan->timeout : 14, .retry_cnt = plan->retries ? plan->retries : 7,
				    .rnr_retry = plan->rnr_retries < 0 ? 0 : plan->rnr_retries ? plan->rnr_retries : 7};
	mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (reliable)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	CLAIM(!ibv_modify_qp(s->qp, &attr, mask));
}

void connect_pair(struct side *s, const struct plan *plan)
{
	memset(s->memory, 0xee, MEMORY);
	create(s, plan);
	s->own.qpn = s->qp->qp_num;
	s->own.psn = plan->first_psn ? plan->first_psn : mixed(s->qp->qp_num + s->client) & 0xffffff;
	s->own.rkey = s->mr->rkey;
	s->own.address = (uintptr_t)s->memory;
	s->own.abilities = s->abilities;
	meet(s);
	CLAIM(say(s->control, &s->own, sizeof(s->own)));
	CLAIM(hear(s->control, &s->peer, sizeof(s->peer)));
	connect_to_peer(s, plan);
	meet(s);
}

void disconnect(struct side *s)
{
	if (s->qp)
		ibv_destroy_qp(s->qp);
	if (s->srq)
		ibv_destroy_srq(s->srq);
	if (s->mr)
		ibv_dereg_mr(s->mr);
	if (s->cq)
		ibv_destroy_cq(s->cq);
	if (s->pd)
		ibv_dealloc_pd(s->pd);
	s->qp = NULL;
	s->srq = NULL;
	s->mr = NULL;
	s->cq = NULL;
	s->pd = NULL;
}

struct ibv_ah *address_of_peer(struct side *s)
{
	struct ibv_ah_attr attr = path_to(s, &s->peer.gid, &(struct plan){0});
	struct ibv_ah *ah = ibv_create_ah(s->pd, &attr);
	CLAIM(ah);
	return ah;
}

uint64_t remote(struct side *s, uint64_t offset)
{
	return s->peer.address + offset;
}
