/*
 * A benchmark as those that are published for MRC: linked with -l_mrc, one queue pair, masks of MRC of 0, WRITEs of
 * which each 64th is signaled, and a WRITE with immediate at the end, whose receive has no buffer.
 *   mrc_bench server|client ADDRESS PORT BYTES COUNT
 */
#include "mrc_kit.h"

enum { DEPTH = 128, SIGNALED_EACH = 64, QUEUE = 256 };

static struct mrc_context *mrc;
static struct mrc_cq *send_cq, *recv_cq;
static struct mrc_qp *qp;

static struct ibv_wc wait_for(struct mrc_cq *queue)
{
	struct ibv_wc wc = {0};
	time_t end = time(NULL) + 60;
	int count;
	while ((count = mrc_poll_cq(queue, 1, &wc)) == 0)
		CLAIM(time(NULL) <= end);
	CLAIM(count == 1);
	if (wc.status)
		fprintf(stderr, "%s\n", ibv_wc_status_str(wc.status));
	CLAIM(wc.status == IBV_WC_SUCCESS);
	return wc;
}

static void make(uint32_t *qpn)
{
	int supported = 0;
	struct mrc_device_attr device;
	CLAIM(mrc_query_device(ctx, &device, &supported) == 0 && supported);
	CLAIM(device.mpr_attr.max_mpr >= 8 && device.wimm_attr.max_wimm >= 32 && device.mpr_attr.mpr_resolution == 128);
	struct mrc_context_attr wants = {.mrc_api_version_used = 1};
	CLAIM((mrc = mrc_create_context(ctx, &wants)));
	CLAIM((send_cq = mrc_create_cq(mrc, QUEUE, NULL, NULL, 0)));
	CLAIM((recv_cq = mrc_create_cq(mrc, QUEUE, NULL, NULL, 0)));
	struct mrc_qp_init_attr init = {
		.send_cq = send_cq,
		.recv_cq = recv_cq,
		.cap = {.max_send_wr = DEPTH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		.pd = pd,
	};
	CLAIM((qp = mrc_create_qp(mrc, &init)));
	CLAIM(mrc_get_qpn(qp, qpn) == 0);
}

static void modify(struct ibv_qp_attr attr, int mask)
{
	FAILS(mrc_modify_qp(qp, &attr, mask, NULL, 0), 0);
}

static void connect_qp(const struct side *own, const struct side *other)
{
	struct ibv_qp_attr init = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE};
	modify(init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	struct ibv_recv_wr receive = {.wr_id = 77}, *bad;
	FAILS(mrc_post_recv(qp, &receive, &bad), 0);
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = other->qpn,
		.rq_psn = other->psn,
		.ah_attr = {.is_global = 1,
			    .grh = {.dgid = other->gid, .sgid_index = own_gid_index, .hop_limit = 64},
			    .port_num = 1},
	};
	modify(rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_PATH_MTU);
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS, .sq_psn = own->psn, .retry_cnt = 7, .rnr_retry = 7, .timeout = 14};
	modify(rts, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_TIMEOUT);
	struct ibv_qp_attr now;
	struct mrc_qp_attr of_mrc;
	struct mrc_qp_init_attr made;
	FAILS(mrc_query_qp(qp, &now, IBV_QP_STATE, &of_mrc, 0, &made), 0);
	CLAIM(now.qp_state == IBV_QPS_RTS && now.dest_qp_num == other->qpn && made.pd == pd && made.send_cq == send_cq);
	/* A timeout of verbs has a unit that is four times as long. */
	CLAIM(of_mrc.timeout == 16 && of_mrc.retry.linear_cnt == 7 && of_mrc.mpr.mpr == 8 && of_mrc.wimm.max_wimm == 32);
}

static void write_all(struct ibv_mr *region, uint8_t *bytes, uint32_t length, unsigned count, const struct side *other)
{
	unsigned signaled = 0, completed = 0;
	for (unsigned round = 0; round < count; round++) {
		int is_signaled = round % SIGNALED_EACH == SIGNALED_EACH - 1 || round + 1 == count;
		if (round >= DEPTH && round % SIGNALED_EACH == 0) {
			wait_for(send_cq);
			completed++;
		}
		/* Each round has a part of the buffer of its own. */
		uint64_t offset = (uint64_t)(round % 4) * length;
		fill(bytes + offset, round < 4 ? length : 0, round % 4);
		struct ibv_sge sge = {(uintptr_t)bytes + offset, length, region->lkey};
		struct ibv_send_wr wr = {.wr_id = round,
					 .sg_list = &sge,
					 .num_sge = 1,
					 .opcode = IBV_WR_RDMA_WRITE,
					 .send_flags = is_signaled ? IBV_SEND_SIGNALED : 0,
					 .wr.rdma = {other->address + offset, other->rkey}},
				   *bad;
		FAILS(mrc_post_send(qp, &wr, &bad), 0);
		signaled += is_signaled;
	}
	for (; completed < signaled; completed++)
		CLAIM(wait_for(send_cq).opcode == IBV_WC_RDMA_WRITE);
	uint64_t *last = (uint64_t *)(bytes + 4ul * length);
	*last = 0x6d72632d656e6421;
	struct ibv_sge sge = {(uintptr_t)last, 8, region->lkey};
	struct ibv_send_wr wr = {.wr_id = 99,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
				 .imm_data = htonl(count),
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.rdma = {other->address + 4ul * length, other->rkey}},
			   *bad;
	FAILS(mrc_post_send(qp, &wr, &bad), 0);
	CLAIM(wait_for(send_cq).wr_id == 99);
}

int main(int argc, char **argv)
{
	CLAIM(argc == 6);
	int is_server = strcmp(argv[1], "server") == 0;
	uint32_t length = atoi(argv[4]);
	unsigned count = atoi(argv[5]);
	int fd = meet(is_server, argv[2], atoi(argv[3]));
	open_device();
	size_t whole = 4ul * length + 8;
	uint8_t *bytes = aligned_alloc(4096, (whole + 4095) & ~4095ul);
	CLAIM(bytes);
	memset(bytes, 0, whole);
	struct ibv_mr *region =
		ibv_reg_mr(pd, bytes, whole, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_RELAXED_ORDERING);
	CLAIM(region);
	struct side own = {own_gid, (uintptr_t)bytes, 0, is_server ? 0xfffff0 : 5, region->rkey, length}, other;
	make(&own.qpn);
	exchange(fd, &own, &other, sizeof(own));
	connect_qp(&own, &other);
	together(fd);
	struct timespec begin, end;
	clock_gettime(CLOCK_MONOTONIC, &begin);
	if (is_server) {
		struct ibv_wc wc = wait_for(recv_cq);
		CLAIM(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.wr_id == 77 && wc.byte_len == 8);
		CLAIM(ntohl(wc.imm_data) == count && (wc.wc_flags & IBV_WC_WITH_IMM) && wc.qp_num == own.qpn);
		CLAIM(*(volatile uint64_t *)(bytes + 4ul * length) == 0x6d72632d656e6421);
		/* The immediate comes last: all data is there. */
		for (unsigned part = 0; part < 4 && part < count; part++)
			holds(bytes + (size_t)part * length, length, part);
	} else {
		write_all(region, bytes, length, count, &other);
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	double seconds = (end.tv_sec - begin.tv_sec) + (end.tv_nsec - begin.tv_nsec) / 1e9;
	if (!is_server)
		printf("%u writes of %u bytes: %.0f MB/s\n", count, length, count * (double)length / seconds / 1e6);
	together(fd);
	FAILS(mrc_destroy_qp(qp), 0);
	FAILS(mrc_destroy_cq(send_cq), 0);
	FAILS(mrc_destroy_cq(recv_cq), 0);
	CLAIM(mrc_destroy_context(mrc) == 0);
	FAILS(ibv_dereg_mr(region), 0);
	FAILS(ibv_close_device(ctx), 0);
	return 0;
}
