/* Every wrong argument gives the errno that verbs programs expect, and never a crash. */
#include "expect.h"

static void null_arguments(void)
{
	struct ibv_async_event event = {0};
	void *cookie;
	struct ibv_cq *fired;
	union ibv_gid gid;
	REFUSED(ibv_open_device(NULL), EINVAL);
	REFUSED(ibv_alloc_pd(NULL), EINVAL);
	REFUSED(ibv_create_comp_channel(NULL), EINVAL);
	REFUSED(ibv_create_cq(NULL, 1, NULL, NULL, 0), EINVAL);
	REFUSED(ibv_create_qp(NULL, NULL), EINVAL);
	REFUSED(ibv_create_qp(pd, NULL), EINVAL);
	REFUSED(ibv_create_srq(pd, NULL), EINVAL);
	REFUSED(ibv_create_ah(pd, NULL), EINVAL);
	REFUSED((ibv_reg_mr)(NULL, memory, 8, 0), EINVAL);
	REFUSED(ibv_qp_to_qp_ex(NULL), EINVAL);
	FAILS(ibv_close_device(NULL), EINVAL);
	FAILS(ibv_dealloc_pd(NULL), EINVAL);
	FAILS(ibv_dereg_mr(NULL), EINVAL);
	FAILS(ibv_destroy_cq(NULL), EINVAL);
	FAILS(ibv_destroy_qp(NULL), EINVAL);
	FAILS(ibv_destroy_srq(NULL), EINVAL);
	FAILS(ibv_destroy_ah(NULL), EINVAL);
	FAILS(ibv_destroy_comp_channel(NULL), EINVAL);
	FAILS(ibv_resize_cq(NULL, 3), EINVAL);
	FAILS(ibv_modify_qp(NULL, NULL, 0), EINVAL);
	FAILS(ibv_query_qp(NULL, NULL, 0, NULL), EINVAL);
	FAILS(ibv_modify_srq(NULL, NULL, 0), EINVAL);
	FAILS(ibv_query_device(ctx, NULL), EINVAL);
	FAILS(ibv_attach_mcast(NULL, NULL, 0), EINVAL);
	CLAIM(ibv_get_cq_event(NULL, &fired, &cookie) == -1 && errno == EINVAL);
	CLAIM(ibv_get_async_event(NULL, &event) == -1 && errno == EINVAL);
	CLAIM(ibv_query_gid(NULL, 1, 0, &gid) == -1 && errno == EINVAL);
	CLAIM(ibv_get_device_name(NULL) == NULL);
	ibv_ack_cq_events(NULL, 1);
	ibv_ack_async_event(NULL);
	ibv_free_device_list(NULL);
}

static void queries(void)
{
	union ibv_gid gid;
	__be16 pkey;
	struct ibv_port_attr port;
	struct ibv_gid_entry entry, table[4];
	CLAIM(ibv_query_gid(ctx, 1, 1023, &gid) == 0 && gid.global.interface_id == 0);
	CLAIM(ibv_query_gid(ctx, 1, 1024, &gid) == -1 && errno == EINVAL);
	CLAIM(ibv_query_gid(ctx, 1, -1, &gid) == -1 && errno == EINVAL);
	CLAIM(ibv_query_gid(ctx, 2, 0, &gid) == -1);
	CLAIM(ibv_query_pkey(ctx, 1, 0, &pkey) == 0 && pkey == 0xffff);
	CLAIM(ibv_query_pkey(ctx, 1, 1, &pkey) == -1 && errno == ENOENT);
	CLAIM(ibv_query_pkey(ctx, 2, 0, &pkey) == -1 && errno == ENOENT);
	CLAIM(ibv_get_pkey_index(ctx, 1, 0xff7f) == 0 && ibv_get_pkey_index(ctx, 1, 0x1234) == -1);
	FAILS(ibv_query_port(ctx, 0, &port), EINVAL);
	FAILS(ibv_query_port(ctx, 1, &port), 0);
	CLAIM(port.state == IBV_PORT_ACTIVE && port.link_layer == IBV_LINK_LAYER_ETHERNET);
	CLAIM(port.gid_tbl_len == 1024 && port.flags & IBV_QPF_GRH_REQUIRED);
	FAILS(ibv_query_gid_ex(ctx, 1, 0, &entry, 0), 0);
	CLAIM(entry.gid_type == IBV_GID_TYPE_ROCE_V2 && !memcmp(&entry.gid, &own_gid, 16));
	FAILS(ibv_query_gid_ex(ctx, 1, 5, &entry, 0), ENODATA);
	FAILS(ibv_query_gid_ex(ctx, 1, 1024, &entry, 0), EINVAL);
	struct ibv_ah_attr empty = own_address();
	empty.grh.sgid_index = 5;
	REFUSED(ibv_create_ah(pd, &empty), ENODATA);
	/* What ibv_query_gid said of the empty place, sent to and fro. */
	memset(&empty.grh.dgid, 0, sizeof(empty.grh.dgid));
	REFUSED(ibv_create_ah(pd, &empty), ENODATA);
	CLAIM(ibv_query_gid_table(ctx, table, 4, 0) == 1);
	CLAIM(ibv_query_gid_table(ctx, table, 4, 1) == -EINVAL);
}

static void sizes_and_rights(void)
{
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	REFUSED(ibv_create_cq(ctx, 0, NULL, NULL, 0), EINVAL);
	REFUSED(ibv_create_cq(ctx, -1, NULL, NULL, 0), EINVAL);
	REFUSED(ibv_create_cq(ctx, 1, NULL, NULL, ctx->num_comp_vectors), EINVAL);
	REFUSED(ibv_create_cq(ctx, 1, NULL, NULL, -1), EINVAL);
	wants.cap.max_inline_data = 1 << 20;
	REFUSED(ibv_create_qp(pd, &wants), EINVAL);
	wants = qp_wants(IBV_QPT_RC);
	wants.send_cq = NULL;
	REFUSED(ibv_create_qp(pd, &wants), EINVAL);
	wants = qp_wants(IBV_QPT_DRIVER);
	REFUSED(ibv_create_qp(pd, &wants), EOPNOTSUPP);
	wants = qp_wants(77);
	REFUSED(ibv_create_qp(pd, &wants), EINVAL);
	REFUSED((ibv_reg_mr)(pd, memory, 8, IBV_ACCESS_REMOTE_WRITE), EINVAL);
	REFUSED((ibv_reg_mr)(pd, memory, 8, 1 << 15), EINVAL);
	struct ibv_mr *hinted = ibv_reg_mr_iova2(pd, memory, 8, (uintptr_t)memory % 4096, IBV_ACCESS_RELAXED_ORDERING | 1 << 27);
	CLAIM(hinted);
	FAILS(ibv_dereg_mr(hinted), 0);
	struct ibv_ah_attr nowhere = {.port_num = 1};
	REFUSED(ibv_create_ah(pd, &nowhere), EINVAL);
	FAILS(ibv_dealloc_pd(pd), EBUSY);
	FAILS(ibv_destroy_comp_channel(channel), EBUSY);
	CLAIM(ibv_rereg_mr(mr, 8, NULL, NULL, 0, 0) == -1 && errno == EINVAL);
	CLAIM(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, 0, 0) == -1 && errno == EINVAL);
}

static void queue_pair_rules(void)
{
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC), got;
	struct ibv_qp *qp = ibv_create_qp(pd, &wants);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};
	CLAIM(qp && qp->state == IBV_QPS_RESET && qp->qp_type == IBV_QPT_RC && qp->qp_num > 1);
	CLAIM(wants.cap.max_send_wr >= 20 && wants.cap.max_inline_data >= 256);
	FAILS(ibv_destroy_cq(cq), EBUSY);
	FAILS(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
	FAILS(ibv_modify_qp(qp, &attr, 1 << 30), EOPNOTSUPP);
	CLAIM(qp->state == IBV_QPS_RESET);
	struct ibv_sge sge = piece(0, 8);
	struct ibv_recv_wr receive = {.sg_list = &sge, .num_sge = 1}, *bad_receive = NULL;
	FAILS(ibv_post_recv(qp, &receive, &bad_receive), EINVAL);
	CLAIM(bad_receive == &receive);
	init(qp);
	struct ibv_send_wr second = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
	struct ibv_send_wr first = {.next = &second, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad = NULL;
	FAILS(ibv_post_send(qp, &first, &bad), EINVAL);
	CLAIM(bad == &first);
	connect_to(qp, qp->qp_num);
	second.opcode = 99;
	FAILS(ibv_post_send(qp, &first, &bad), EINVAL);
	CLAIM(bad == &second);
	second.opcode = IBV_WR_SEND;
	second.num_sge = 5;
	FAILS(ibv_post_send(qp, &second, &bad), EINVAL);
	second.num_sge = -1;
	FAILS(ibv_post_send(qp, &second, &bad), EINVAL);
	second.num_sge = 1;
	second.sg_list = NULL;
	FAILS(ibv_post_send(qp, &second, &bad), EINVAL);
	FAILS(ibv_post_send(qp, NULL, &bad), 0);
	FAILS(ibv_query_qp(qp, &attr, IBV_QP_STATE, &got), 0);
	CLAIM(attr.qp_state == IBV_QPS_RTS && attr.dest_qp_num == qp->qp_num && attr.timeout == 14);
	CLAIM(got.cap.max_send_wr == wants.cap.max_send_wr && got.send_cq == cq && got.qp_type == IBV_QPT_RC);
	FAILS(ibv_destroy_qp(qp), 0);
}

static void what_hardware_has(void)
{
	struct ibv_cq_init_attr_ex tagged = {.cqe = 4, .wc_flags = IBV_WC_EX_WITH_FLOW_TAG};
	struct ibv_flow_attr flow = {0};
	struct ibv_counters_init_attr counters = {0};
	struct ibv_wq_init_attr wq = {
		.pd = pd, .cq = cq, .max_wr = 1, .max_sge = 1, .comp_mask = IBV_WQ_INIT_ATTR_FLAGS, .create_flags = IBV_WQ_FLAGS_CVLAN_STRIPPING};
	struct ibv_rwq_ind_table_init_attr table = {0};
	struct ibv_qp_rate_limit_attr rate = {0};
	struct ibv_ops_wr tag_operation = {0}, *bad_operation;
	struct ibv_srq_init_attr_ex tags = {
		.attr = {.max_wr = 1, .max_sge = 1},
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM,
		.srq_type = IBV_SRQT_TM,
		.pd = pd,
		.cq = cq,
	};
	struct ibv_srq_init_attr plain = {.attr = {.max_wr = 1, .max_sge = 1}};
	struct ibv_qp_init_attr qp_init = qp_wants(IBV_QPT_RC);
	struct ibv_qp *qp = ibv_create_qp(pd, &qp_init);
	struct ibv_srq *srq = ibv_create_srq(pd, &plain);
	CLAIM(qp && srq);
	REFUSED(ibv_create_cq_ex(ctx, &tagged), EOPNOTSUPP);
	REFUSED(ibv_create_flow(qp, &flow), EINVAL);
	REFUSED(ibv_create_counters(ctx, &counters), EOPNOTSUPP);
	REFUSED(ibv_create_wq(ctx, &wq), EOPNOTSUPP);
	REFUSED(ibv_create_rwq_ind_table(ctx, &table), EINVAL);
	/* The list has no room, the queue pair is none for raw packets, the queue has no list. */
	REFUSED(ibv_create_srq_ex(ctx, &tags), EINVAL);
	FAILS(ibv_modify_qp_rate_limit(qp, &rate), EINVAL);
	FAILS(ibv_post_srq_ops(srq, &tag_operation, &bad_operation), EINVAL);
	CLAIM(bad_operation == &tag_operation);
	FAILS(ibv_destroy_srq(srq), 0);
	FAILS(ibv_destroy_qp(qp), 0);
	REFUSED(ibv_reg_dmabuf_mr(pd, 0, 8, 0, -1, 0), EOPNOTSUPP);
	CLAIM(fcntl(ctx->cmd_fd, F_GETFD) >= 0 && ctx->num_comp_vectors >= 1);
}

int main(void)
{
	open_device();
	null_arguments();
	queries();
	sizes_and_rights();
	queue_pair_rules();
	what_hardware_has();
	/* Everything that is left goes with the context. */
	FAILS(ibv_close_device(ctx), 0);
	return 0;
}
