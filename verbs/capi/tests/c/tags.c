/* Tag matching: a shared receive queue with a list of tags, eager messages, unexpected ones, and a rendezvous. */
#include "expect.h"
#include <endian.h>
#include <infiniband/tm_types.h>

enum { SENT = 0, TAGGED = 8192, PLAIN = 16384, ANSWER = 24576, SOURCE = 32768 };

static struct ibv_cq_ex *tag_cq;
static struct ibv_srq *srq;
static struct ibv_qp *sender;

static struct ibv_sge at(int offset, int length)
{
	return (struct ibv_sge){.addr = (uintptr_t)memory + offset, .length = length, .lkey = mr->lkey};
}

/* Waits for a completion of the queue with tags. */
static uint64_t polled(unsigned opcode, uint64_t wr_id, unsigned flags, enum ibv_wc_status status, struct ibv_wc_tm_info *info)
{
	struct ibv_poll_cq_attr none = {0};
	time_t end = time(NULL) + 60;
	while (ibv_start_poll(tag_cq, &none) == ENOENT)
		CLAIM(time(NULL) <= end);
	CLAIM(tag_cq->status == status && tag_cq->wr_id == wr_id);
	uint64_t length = 0;
	if (status == IBV_WC_SUCCESS) {
		CLAIM(ibv_wc_read_opcode(tag_cq) == opcode && ibv_wc_read_wc_flags(tag_cq) == flags);
		length = ibv_wc_read_byte_len(tag_cq);
		if (info)
			ibv_wc_read_tm_info(tag_cq, info);
	}
	ibv_end_poll(tag_cq);
	return length;
}

static uint32_t add(uint64_t tag, int length)
{
	struct ibv_sge sge = at(TAGGED, length);
	struct ibv_ops_wr op = {.wr_id = tag + 500, .opcode = IBV_WR_TAG_ADD, .flags = IBV_OPS_SIGNALED}, *bad;
	op.tm.add.recv_wr_id = tag;
	op.tm.add.tag = tag;
	op.tm.add.mask = 0xffff;
	op.tm.add.sg_list = &sge;
	op.tm.add.num_sge = 1;
	FAILS(ibv_post_srq_ops(srq, &op, &bad), 0);
	CLAIM(op.tm.handle);
	return op.tm.handle;
}

static void sends(int kind, uint64_t tag, int length)
{
	struct ibv_tmh header = {.opcode = kind, .app_ctx = htobe32(77), .tag = htobe64(tag)};
	memcpy((char *)memory + SENT, &header, sizeof(header));
	struct ibv_sge sge = at(SENT, length);
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
	FAILS(ibv_post_send(sender, &wr, &bad), 0);
	CLAIM(completion().status == IBV_WC_SUCCESS);
}

static void make(void)
{
	struct ibv_device_attr_ex attr;
	FAILS(ibv_query_device_ex(ctx, NULL, &attr), 0);
	CLAIM(attr.tm_caps.flags == IBV_TM_CAP_RC && attr.tm_caps.max_num_tags >= 1024 && attr.tm_caps.max_sge >= 1);
	struct ibv_cq_init_attr_ex wants = {.cqe = 64, .wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_TM_INFO};
	CLAIM((tag_cq = ibv_create_cq_ex(ctx, &wants)));
	struct ibv_srq_init_attr_ex tags = {
		.attr = {.max_wr = 8, .max_sge = 1},
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM,
		.srq_type = IBV_SRQT_TM,
		.pd = pd,
		.cq = ibv_cq_ex_to_cq(tag_cq),
		.tm_cap = {.max_num_tags = 16, .max_ops = 4},
	};
	tags.comp_mask &= ~IBV_SRQ_INIT_ATTR_CQ;
	REFUSED(ibv_create_srq_ex(ctx, &tags), EINVAL);
	tags.comp_mask |= IBV_SRQ_INIT_ATTR_CQ;
	CLAIM((srq = ibv_create_srq_ex(ctx, &tags)));
	struct ibv_qp_init_attr init_attr = qp_wants(IBV_QPT_RC);
	CLAIM((sender = ibv_create_qp(pd, &init_attr)));
	init_attr.srq = srq;
	REFUSED(ibv_create_qp(pd, &init_attr), EINVAL);
	memset(&init_attr.cap, 0, sizeof(init_attr.cap));
	struct ibv_qp *receiver = ibv_create_qp(pd, &init_attr);
	CLAIM(receiver);
	init(sender);
	init(receiver);
	connect_to(sender, receiver->qp_num);
	connect_to(receiver, sender->qp_num);
	for (int k = 0; k < 4; k++) {
		struct ibv_sge sge = at(PLAIN, 2048);
		struct ibv_recv_wr wr = {.wr_id = 900 + k, .sg_list = &sge, .num_sge = 1}, *bad;
		FAILS(ibv_post_srq_recv(srq, &wr, &bad), 0);
	}
	struct ibv_sge answer = at(ANSWER, 64);
	struct ibv_recv_wr wr = {.wr_id = 40, .sg_list = &answer, .num_sge = 1}, *bad;
	FAILS(ibv_post_recv(sender, &wr, &bad), 0);
	/* The send queue is the device's. */
	struct ibv_send_wr own = {.opcode = IBV_WR_SEND}, *bad_send;
	CLAIM(ibv_post_send(receiver, &own, &bad_send) != 0);
}

int main(void)
{
	const unsigned match = IBV_WC_TM_MATCH, valid = IBV_WC_TM_DATA_VALID;
	open_device();
	make();
	struct ibv_wc_tm_info info;
	add(5, 64);
	polled(IBV_WC_TM_ADD, 505, 0, IBV_WC_SUCCESS, NULL);
	memcpy((char *)memory + 16, "payload", 8);
	sends(IBV_TMH_EAGER, 5, 24);
	CLAIM(polled(IBV_WC_TM_RECV, 5, match | valid, IBV_WC_SUCCESS, &info) == 8);
	CLAIM(info.tag == 5 && info.priv == 77 && !strcmp((char *)memory + TAGGED, "payload"));
	/* Unexpected: new buffers wait. */
	sends(IBV_TMH_EAGER, 6, 24);
	CLAIM(polled(IBV_WC_TM_RECV, 900, 0, IBV_WC_SUCCESS, &info) == 24 && info.tag == 0);
	uint32_t handle = add(6, 64);
	polled(IBV_WC_TM_ADD, 506, IBV_WC_TM_SYNC_REQ, IBV_WC_SUCCESS, NULL);
	struct ibv_ops_wr sync = {.wr_id = 1, .opcode = IBV_WR_TAG_SYNC, .flags = IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC}, *bad;
	struct ibv_ops_wr wrong = {.opcode = 9};
	sync.tm.unexpected_cnt = 1;
	sync.next = &wrong;
	FAILS(ibv_post_srq_ops(srq, &sync, &bad), EINVAL);
	CLAIM(bad == &wrong);
	polled(IBV_WC_TM_SYNC, 1, 0, IBV_WC_SUCCESS, NULL);
	struct ibv_ops_wr del = {.wr_id = 2, .opcode = IBV_WR_TAG_DEL, .flags = IBV_OPS_SIGNALED};
	del.tm.handle = handle;
	FAILS(ibv_post_srq_ops(srq, &del, &bad), 0);
	polled(IBV_WC_TM_DEL, 2, 0, IBV_WC_SUCCESS, NULL);
	FAILS(ibv_post_srq_ops(srq, &del, &bad), 0);
	polled(IBV_WC_TM_DEL, 2, 0, IBV_WC_TM_ERR, NULL);
	sends(IBV_TMH_NO_TAG, 5, 24);
	polled(IBV_WC_TM_NO_TAG, 901, 0, IBV_WC_SUCCESS, NULL);
	/* Rendezvous. */
	add(7, 6000);
	polled(IBV_WC_TM_ADD, 507, 0, IBV_WC_SUCCESS, NULL);
	memset((char *)memory + SOURCE, 'r', 6000);
	struct ibv_rvh source = {.va = htobe64((uintptr_t)memory + SOURCE), .rkey = htobe32(mr->rkey), .len = htobe32(6000)};
	memcpy((char *)memory + 16, &source, sizeof(source));
	struct ibv_tmh header = {.opcode = IBV_TMH_RNDV, .tag = htobe64(7)};
	memcpy((char *)memory + SENT, &header, sizeof(header));
	struct ibv_sge sge = at(SENT, 40);
	struct ibv_send_wr wr = {.wr_id = 41, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad_send;
	FAILS(ibv_post_send(sender, &wr, &bad_send), 0);
	polled(IBV_WC_TM_RECV, 7, match, IBV_WC_SUCCESS, &info);
	CLAIM(info.tag == 7);
	CLAIM(polled(IBV_WC_TM_RECV, 7, valid, IBV_WC_SUCCESS, &info) == 6000 && info.tag == 0);
	CLAIM(!memcmp((char *)memory + TAGGED, (char *)memory + SOURCE, 6000));
	/* The sender's own completion, and the end of the rendezvous. */
	uint64_t seen = completion().wr_id;
	seen += completion().wr_id;
	CLAIM(seen == 40 + 41 && ((struct ibv_tmh *)((char *)memory + ANSWER))->opcode == IBV_TMH_FIN);
	FAILS(ibv_close_device(ctx), 0);
	return 0;
}
