/* A connection whose primary path, between 192.0.2.1 and 192.0.2.1, is cut by the plan of tests/migration.rs in the
 * middle of a transfer: it goes on by 192.0.2.2, and both sides are told. */
#include "expect.h"
#include <arpa/inet.h>

#define MESSAGES 40
#define WORDS 100

static int index_of(const char *address)
{
	union ibv_gid gid, wanted = {.raw = {[10] = 0xff, [11] = 0xff}};
	CLAIM(inet_pton(AF_INET, address, &wanted.raw[12]) == 1);
	for (int index = 0; index < 1024; index++)
		if (!ibv_query_gid(ctx, 1, index, &gid) && !memcmp(&gid, &wanted, sizeof(gid)))
			return index;
	fprintf(stderr, "the device has no address %s\n", address);
	exit(1);
}

static struct ibv_ah_attr path(int index)
{
	struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = index, .hop_limit = 64}};
	FAILS(ibv_query_gid(ctx, 1, index, &attr.grh.dgid), 0);
	return attr;
}

static void arm(struct ibv_qp *qp, uint32_t peer, int primary, int alternate)
{
	init(qp);
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer, .rq_psn = 100,
		.max_dest_rd_atomic = 4, .min_rnr_timer = 12, .ah_attr = path(primary),
		.alt_ah_attr = path(alternate), .alt_port_num = 1, .alt_timeout = 14,
	};
	FAILS(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN
		| IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER | IBV_QP_ALT_PATH), 0);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .sq_psn = 100, .timeout = 10, .retry_cnt = 2, .rnr_retry = 7,
		.max_rd_atomic = 4, .path_mig_state = IBV_MIG_REARM,
	};
	FAILS(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT
		| IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_PATH_MIG_STATE), 0);
}

static struct ibv_qp_attr query(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init_attr;
	FAILS(ibv_query_qp(qp, &attr, IBV_QP_PATH_MIG_STATE | IBV_QP_AV, &init_attr), 0);
	return attr;
}

static void write_message(struct ibv_qp *qp, int message)
{
	struct ibv_sge sge = piece(message * WORDS * 8, WORDS * 8);
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
	wr.wr.rdma.remote_addr = (uintptr_t)&memory[(MESSAGES + message) * WORDS];
	wr.wr.rdma.rkey = mr->rkey;
	post(qp, &wr);
}

int main(void)
{
	open_device();
	int primary = index_of("192.0.2.1"), alternate = index_of("192.0.2.2");
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	struct ibv_qp *a = ibv_create_qp(pd, &wants), *b = ibv_create_qp(pd, &wants);
	CLAIM(a && b);
	arm(a, b->qp_num, primary, alternate);
	arm(b, a->qp_num, primary, alternate);
	CLAIM(query(a).path_mig_state == IBV_MIG_REARM && query(a).ah_attr.grh.sgid_index == primary);
	for (int word = 0; word < MESSAGES * WORDS; word++)
		memory[word] = 7 * word + 1;
	for (int message = 0; message < MESSAGES; message++) {
		write_message(a, message);
		completions(1);
		if (message == 9)
			CLAIM(query(a).path_mig_state == IBV_MIG_ARMED && query(b).path_mig_state == IBV_MIG_ARMED);
	}
	CLAIM(!memcmp(memory, &memory[MESSAGES * WORDS], MESSAGES * WORDS * 8));
	struct ibv_qp *told[2];
	for (int event = 0; event < 2; event++) {
		struct ibv_async_event got;
		CLAIM(ibv_get_async_event(ctx, &got) == 0 && got.event_type == IBV_EVENT_PATH_MIG);
		told[event] = got.element.qp;
		ibv_ack_async_event(&got);
	}
	CLAIM((told[0] == a && told[1] == b) || (told[0] == b && told[1] == a));
	struct ibv_qp_attr now = query(a);
	CLAIM(now.path_mig_state == IBV_MIG_MIGRATED && now.ah_attr.grh.sgid_index == alternate);
	CLAIM(query(b).path_mig_state == IBV_MIG_MIGRATED);
	/* Nothing is armed now. */
	struct ibv_qp_attr attr = {.path_mig_state = IBV_MIG_REARM};
	FAILS(ibv_modify_qp(a, &attr, IBV_QP_PATH_MIG_STATE), EINVAL);
	return 0;
}
