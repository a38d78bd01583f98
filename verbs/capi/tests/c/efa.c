/* A device that looks like EFA: what it says, what it refuses, and SRD between queue pairs of one process. */
#include "expect.h"
#include <stdbool.h>

struct device_attr {
	uint64_t comp_mask;
	uint32_t max_sq_wr, max_rq_wr;
	uint16_t max_sq_sge, max_rq_sge, inline_buf_size, inline_buf_size_ex;
	uint32_t device_caps, max_rdma_size;
	uint64_t of_later;
};
struct ah_attr {
	uint64_t comp_mask;
	uint16_t ahn;
	uint8_t reserved[6];
};
struct qp_attr {
	uint64_t comp_mask;
	uint32_t driver_qp_type;
	uint16_t flags;
	uint8_t sl, reserved;
	uint64_t wr_flags, of_later;
};
struct cq_attr {
	uint64_t comp_mask, wc_flags;
};
struct mr_attr {
	uint64_t comp_mask;
	uint16_t ic_id_validity, recv_ic_id, rdma_read_ic_id, rdma_recv_ic_id;
};
struct sq_depth {
	uint64_t comp_mask;
	uint32_t flags, max_send_sge, max_rdma_sge, max_inline_data;
};
struct rq_depth {
	uint64_t comp_mask;
	uint32_t max_recv_sge;
};
struct hinter {
	uint64_t comp_mask;
	void (*set_hints)(struct hinter *, uint32_t);
};
struct reader {
	uint64_t comp_mask;
	int (*read_sgid)(struct reader *, union ibv_gid *);
	bool (*is_unsolicited)(struct reader *);
};

int query_device(struct ibv_context *, void *, uint32_t) __asm__("efadv_query_device");
int query_ah(struct ibv_ah *, void *, uint32_t) __asm__("efadv_query_ah");
struct ibv_qp *create_driver_qp(struct ibv_pd *, void *, uint32_t) __asm__("efadv_create_driver_qp");
struct ibv_qp *create_srd(struct ibv_context *, void *, void *, uint32_t) __asm__("efadv_create_qp_ex");
struct ibv_cq_ex *create_efa_cq(struct ibv_context *, void *, void *, uint32_t) __asm__("efadv_create_cq");
struct reader *reader_of(struct ibv_cq_ex *) __asm__("efadv_cq_from_ibv_cq_ex");
int query_mr(struct ibv_mr *, void *, uint32_t) __asm__("efadv_query_mr");
int max_sq_depth(struct ibv_context *, void *, uint32_t) __asm__("efadv_get_max_sq_depth");
int max_rq_depth(struct ibv_context *, void *, uint32_t) __asm__("efadv_get_max_rq_depth");
struct hinter *hinter_of(struct ibv_qp_ex *) __asm__("efadv_qp_from_ibv_qp_ex");
int mlx5_query(struct ibv_context *, void *) __asm__("mlx5dv_query_device");
bool is_mlx5(struct ibv_device *) __asm__("mlx5dv_is_supported");

enum { QKEY = 0x11111111 };
#define DRIVER ((enum ibv_qp_type)0xff)
static struct ibv_cq_ex *cq_ex;
static struct ibv_ah *ah;

static void says_what_efa_says(void)
{
	struct ibv_device_attr device;
	FAILS(ibv_query_device(ctx, &device), 0);
	CLAIM(device.vendor_id == 0x1d0f && device.vendor_part_id == 0xefa1 && device.sys_image_guid == 0);
	CLAIM(device.max_qp == 256 && device.max_sge_rd == 1 && device.max_srq == 0 && device.max_srq_wr == 0);
	CLAIM(device.max_mw == 0 && device.max_qp_rd_atom == 0 && device.atomic_cap == IBV_ATOMIC_NONE);
	CLAIM(ctx->device->node_type == (enum ibv_node_type)7 && ctx->device->transport_type == (enum ibv_transport_type)4);
	struct ibv_port_attr port;
	FAILS(ibv_query_port(ctx, 1, &port), 0);
	CLAIM(port.link_layer == IBV_LINK_LAYER_UNSPECIFIED && port.gid_tbl_len == 1 && port.max_msg_sz == 8928);
	CLAIM(port.lmc == 1 && port.lid == 0 && port.state == IBV_PORT_ACTIVE && port.pkey_tbl_len == 1);
	union ibv_gid gid;
	CLAIM(ibv_query_gid(ctx, 1, 1, &gid) == -1);

	struct device_attr attr;
	memset(&attr, 0xff, sizeof(attr));
	FAILS(query_device(ctx, &attr, 23), EINVAL);
	FAILS(query_device(ctx, &attr, 24), 0);
	CLAIM(attr.max_sq_wr == 4096 && attr.comp_mask == 0 && attr.device_caps == ~0u);
	FAILS(query_device(ctx, &attr, sizeof(attr)), 0);
	CLAIM(attr.inline_buf_size == 32 && attr.inline_buf_size_ex == 32 && attr.device_caps == 0x1f && attr.max_rdma_size == 1u << 30);
	CLAIM(attr.of_later == 0);
	FAILS(query_device(ctx, NULL, sizeof(attr)), EINVAL);

	struct ibv_ah_attr address = own_address();
	CLAIM((ah = ibv_create_ah(pd, &address)));
	struct ah_attr number = {.ahn = 0xffff};
	FAILS(query_ah(ah, &number, 9), EINVAL);
	FAILS(query_ah(ah, &number, sizeof(number)), 0);
	CLAIM(number.ahn != 0xffff);
	/* All of a domain that lead to one address have one number, also when the first one is gone. */
	struct ibv_ah *second = ibv_create_ah(pd, &address), *third;
	struct ah_attr same = {}, other = {};
	CLAIM(second && (third = ibv_create_ah(pd, &address)));
	FAILS(query_ah(second, &same, sizeof(same)), 0);
	CLAIM(same.ahn == number.ahn);
	FAILS(ibv_destroy_ah(ah), 0);
	FAILS(query_ah(third, &same, sizeof(same)), 0);
	CLAIM(same.ahn == number.ahn);
	address.grh.dgid.raw[15] ^= 3;
	CLAIM((ah = ibv_create_ah(pd, &address)));
	FAILS(query_ah(ah, &other, sizeof(other)), 0);
	CLAIM(other.ahn != number.ahn);
	FAILS(ibv_destroy_ah(ah), 0);
	FAILS(ibv_destroy_ah(second), 0);
	ah = third;
	uint64_t theirs[8] = {0};
	FAILS(mlx5_query(ctx, theirs), EOPNOTSUPP);
	CLAIM(!is_mlx5(ctx->device));
}

/* The questions that rdma-core 65 has beside those. */
static void answers_the_newest_questions(void)
{
	struct mr_attr region;
	memset(&region, 0xff, sizeof(region));
	FAILS(query_mr(mr, &region, 15), EINVAL);
	FAILS(query_mr(mr, &region, sizeof(region)), 0);
	CLAIM(region.comp_mask == 0 && region.ic_id_validity == 0 && region.rdma_recv_ic_id == 0);
	FAILS(query_mr(NULL, &region, sizeof(region)), EINVAL);

	struct sq_depth sends = {.max_send_sge = 2, .max_rdma_sge = 1, .max_inline_data = 32};
	CLAIM(max_sq_depth(ctx, &sends, sizeof(sends)) == 4096);
	sends.flags = 1;
	CLAIM(max_sq_depth(ctx, &sends, sizeof(sends)) == 2048);
	CLAIM(max_sq_depth(ctx, &sends, 23) == -EINVAL && max_sq_depth(ctx, NULL, sizeof(sends)) == -EINVAL);
	sends.max_send_sge = 3;
	CLAIM(max_sq_depth(ctx, &sends, sizeof(sends)) == -EINVAL);
	sends = (struct sq_depth){.max_inline_data = 33};
	CLAIM(max_sq_depth(ctx, &sends, sizeof(sends)) == -EINVAL);
	sends = (struct sq_depth){.comp_mask = 1};
	CLAIM(max_sq_depth(ctx, &sends, sizeof(sends)) == -EINVAL);
	struct rq_depth receives = {.max_recv_sge = 1};
	CLAIM(max_rq_depth(ctx, &receives, 12) == 4096 && max_rq_depth(ctx, &receives, 11) == -EINVAL);
	receives.max_recv_sge = 2;
	CLAIM(max_rq_depth(ctx, &receives, sizeof(receives)) == 2048);
	receives.max_recv_sge = 3;
	CLAIM(max_rq_depth(ctx, &receives, sizeof(receives)) == -EINVAL);
}

static void refuses_what_efa_refuses(void)
{
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 4, .max_sge = 1}};
	REFUSED(ibv_create_srq(pd, &srq), EOPNOTSUPP);
	REFUSED(ibv_alloc_mw(pd, IBV_MW_TYPE_1), EOPNOTSUPP);
	FAILS(ibv_resize_cq(cq, 100), EOPNOTSUPP);
	struct ibv_qp_init_attr rc = qp_wants(IBV_QPT_RC);
	rc.cap.max_send_sge = rc.cap.max_recv_sge = 1;
	rc.cap.max_inline_data = 0;
	REFUSED(ibv_create_qp(pd, &rc), EOPNOTSUPP);
	rc.qp_type = DRIVER;
	REFUSED(ibv_create_qp(pd, &rc), EOPNOTSUPP);
	REFUSED(create_driver_qp(pd, &rc, 1), EOPNOTSUPP);
	rc.qp_type = IBV_QPT_UD;
	REFUSED(create_driver_qp(pd, &rc, 0), EINVAL);
}

enum { UNSOLICITED = 1, INLINE_WRITE = 2, HINTS = 1 };

static struct ibv_qp *srd(uint16_t flags)
{
	struct ibv_qp_init_attr_ex wants = {
		.send_cq = ibv_cq_ex_to_cq(cq_ex),
		.recv_cq = ibv_cq_ex_to_cq(cq_ex),
		.cap = {.max_send_wr = 20, .max_recv_wr = 20, .max_send_sge = 2, .max_recv_sge = 1, .max_inline_data = 32},
		.qp_type = DRIVER,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
				  IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
	};
	struct qp_attr attr = {0};
	REFUSED(create_srd(ctx, &wants, &attr, 11), EINVAL);
	attr.of_later = 1;
	REFUSED(create_srd(ctx, &wants, &attr, sizeof(attr)), EINVAL);
	attr.of_later = 0;
	attr.driver_qp_type = 3;
	REFUSED(create_srd(ctx, &wants, &attr, 16), EOPNOTSUPP);
	attr.driver_qp_type = 0;
	attr.flags = 4;
	REFUSED(create_srd(ctx, &wants, &attr, 16), EOPNOTSUPP);
	attr.flags = flags;
	attr.wr_flags = HINTS << 1;
	REFUSED(create_srd(ctx, &wants, &attr, 24), EOPNOTSUPP);
	attr.wr_flags = HINTS;
	struct ibv_qp *qp = create_srd(ctx, &wants, &attr, sizeof(attr));
	CLAIM(qp && qp->qp_type == DRIVER && wants.cap.max_send_wr == 32 && wants.cap.max_recv_wr == 32);
	struct ibv_qp_attr state = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};
	FAILS(ibv_modify_qp(qp, &state, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
	state.qp_state = IBV_QPS_RTR;
	FAILS(ibv_modify_qp(qp, &state, IBV_QP_STATE), 0);
	state.qp_state = IBV_QPS_RTS;
	FAILS(ibv_modify_qp(qp, &state, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
	return qp;
}

/* The next completion, which must be this. */
static void ends(uint64_t wr_id, enum ibv_wc_status status, enum ibv_wc_opcode opcode)
{
	struct ibv_poll_cq_attr none = {0};
	time_t end = time(NULL) + 60;
	int empty;
	while ((empty = ibv_start_poll(cq_ex, &none)) == ENOENT)
		CLAIM(time(NULL) <= end);
	CLAIM(empty == 0);
	if (cq_ex->wr_id != wr_id || cq_ex->status != status)
		fprintf(stderr, "wr_id %lu: %s\n", (unsigned long)cq_ex->wr_id, ibv_wc_status_str(cq_ex->status));
	CLAIM(cq_ex->wr_id == wr_id && cq_ex->status == status);
	CLAIM(status != IBV_WC_SUCCESS || ibv_wc_read_opcode(cq_ex) == opcode);
}

static void posts(struct ibv_qp_ex *qp, uint64_t wr_id, struct ibv_qp *to, struct ibv_sge sge)
{
	ibv_wr_set_ud_addr(qp, ah, to->qp_num, QKEY);
	ibv_wr_set_sge(qp, sge.lkey, sge.addr, sge.length);
	(void)wr_id;
	FAILS(ibv_wr_complete(qp), 0);
}

static struct ibv_qp_ex *starts(struct ibv_qp *qp, uint64_t wr_id)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	CLAIM(ex);
	ibv_wr_start(ex);
	ex->wr_id = wr_id;
	ex->wr_flags = IBV_SEND_SIGNALED;
	return ex;
}

int main(void)
{
	open_device();
	says_what_efa_says();
	answers_the_newest_questions();
	refuses_what_efa_refuses();

	struct ibv_cq_init_attr_ex wants = {.cqe = 100, .wc_flags = IBV_WC_STANDARD_FLAGS};
	struct cq_attr sgid = {.wc_flags = 4};
	REFUSED(create_efa_cq(ctx, &wants, &sgid, sizeof(sgid)), EOPNOTSUPP);
	sgid.wc_flags = 3;
	CLAIM((cq_ex = create_efa_cq(ctx, &wants, &sgid, sizeof(sgid))));
	struct reader *reader = reader_of(cq_ex);
	CLAIM(reader && reader == reader_of(cq_ex) && !reader->is_unsolicited(reader));
	struct ibv_qp *a = srd(INLINE_WRITE), *b = srd(0), *c = srd(UNSOLICITED);
	struct hinter *hinter = hinter_of(ibv_qp_to_qp_ex(a));
	CLAIM(hinter && hinter == hinter_of(ibv_qp_to_qp_ex(a)) && !hinter_of(NULL));
	memset(memory, 0, sizeof(memory));
	memset(memory, 'a', 8928);

	/* A SEND of several packets, into one receive request, without a GRH before it. */
	post_receive(b, 1, 16384, 9000);
	struct ibv_qp_ex *ex = starts(a, 2);
	ibv_wr_send_imm(ex, 77);
	posts(ex, 2, b, piece(0, 8928));
	ends(1, IBV_WC_SUCCESS, IBV_WC_RECV);
	CLAIM(ibv_wc_read_byte_len(cq_ex) == 8928 && ibv_wc_read_imm_data(cq_ex) == 77);
	CLAIM(ibv_wc_read_src_qp(cq_ex) == a->qp_num && ibv_wc_read_wc_flags(cq_ex) == IBV_WC_WITH_IMM);
	struct ah_attr number;
	union ibv_gid gid;
	FAILS(query_ah(ah, &number, sizeof(number)), 0);
	CLAIM(ibv_wc_read_slid(cq_ex) == number.ahn && reader->read_sgid(reader, &gid) == -ENOENT);
	ibv_end_poll(cq_ex);
	CLAIM(memcmp(memory, (char *)memory + 16384, 8928) == 0);
	ends(2, IBV_WC_SUCCESS, IBV_WC_SEND);
	ibv_end_poll(cq_ex);

	/* RDMA, which completes nothing at the other end but with immediate data. */
	ex = starts(a, 3);
	ibv_wr_rdma_write(ex, mr->rkey, (uintptr_t)memory + 32768);
	posts(ex, 3, b, piece(0, 5000));
	ends(3, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	ibv_end_poll(cq_ex);
	CLAIM(memcmp(memory, (char *)memory + 32768, 5000) == 0);
	ex = starts(a, 4);
	ibv_wr_rdma_read(ex, mr->rkey, (uintptr_t)memory + 16384);
	posts(ex, 4, b, piece(49152, 8000));
	ends(4, IBV_WC_SUCCESS, IBV_WC_SEND);
	ibv_end_poll(cq_ex);
	CLAIM(memcmp(memory, (char *)memory + 49152, 8000) == 0);
	post_receive(b, 5, 0, 0);
	ex = starts(a, 6);
	ibv_wr_rdma_write_imm(ex, mr->rkey, (uintptr_t)memory + 40000, 99);
	posts(ex, 6, b, piece(0, 100));
	ends(5, IBV_WC_SUCCESS, IBV_WC_RECV_RDMA_WITH_IMM);
	CLAIM(ibv_wc_read_imm_data(cq_ex) == 99 && ibv_wc_read_byte_len(cq_ex) == 100);
	ibv_end_poll(cq_ex);
	ends(6, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	ibv_end_poll(cq_ex);

	/* The same to a queue pair that takes it unsolicited: without a receive request, and the completion says so. */
	CLAIM(!reader->is_unsolicited(reader));
	ex = starts(a, 20);
	hinter->set_hints(hinter, 1);
	ibv_wr_rdma_write_imm(ex, mr->rkey, (uintptr_t)memory + 41000, 101);
	posts(ex, 20, c, piece(0, 5000));
	ends(0, IBV_WC_SUCCESS, IBV_WC_RECV_RDMA_WITH_IMM);
	CLAIM(ibv_wc_read_imm_data(cq_ex) == 101 && ibv_wc_read_byte_len(cq_ex) == 5000);
	CLAIM(ibv_wc_read_qp_num(cq_ex) == c->qp_num && ibv_wc_read_src_qp(cq_ex) == a->qp_num);
	ibv_end_poll(cq_ex);
	CLAIM(reader->is_unsolicited(reader) && memcmp(memory, (char *)memory + 41000, 5000) == 0);
	ends(20, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	ibv_end_poll(cq_ex);
	CLAIM(!reader->is_unsolicited(reader));
	/* A SEND takes one there as well. */
	post_receive(c, 21, 16384, 64);
	ex = starts(a, 22);
	ibv_wr_send(ex);
	posts(ex, 22, c, piece(0, 64));
	ends(21, IBV_WC_SUCCESS, IBV_WC_RECV);
	ibv_end_poll(cq_ex);
	ends(22, IBV_WC_SUCCESS, IBV_WC_SEND);
	ibv_end_poll(cq_ex);

	/* A wrong key ends one request, and the queue pair goes on. */
	ex = starts(a, 7);
	ibv_wr_rdma_write(ex, mr->rkey ^ 0x5500, (uintptr_t)memory);
	posts(ex, 7, b, piece(0, 100));
	ends(7, IBV_WC_REM_ACCESS_ERR, 0);
	CLAIM(ibv_wc_read_vendor_err(cq_ex) == 7);
	ibv_end_poll(cq_ex);
	post_receive(b, 8, 16384, 64);
	ex = starts(a, 9);
	ibv_wr_send(ex);
	posts(ex, 9, b, piece(0, 64));
	ends(8, IBV_WC_SUCCESS, IBV_WC_RECV);
	ibv_end_poll(cq_ex);
	ends(9, IBV_WC_SUCCESS, IBV_WC_SEND);
	ibv_end_poll(cq_ex);

	/* Without SIGNALED nothing is posted, by either way of posting. */
	ex = starts(a, 10);
	ex->wr_flags = 0;
	ibv_wr_send(ex);
	ibv_wr_set_ud_addr(ex, ah, b->qp_num, QKEY);
	FAILS(ibv_wr_complete(ex), EINVAL);
	struct ibv_send_wr wr = {.wr_id = 11, .opcode = IBV_WR_SEND, .wr.ud = {ah, b->qp_num, QKEY}}, *bad;
	FAILS(ibv_post_send(a, &wr, &bad), EINVAL);

	/* The sender has no address handle here: its GID can be read. */
	FAILS(ibv_destroy_ah(ah), 0);
	struct ibv_pd *other = ibv_alloc_pd(ctx);
	struct ibv_ah_attr address = own_address();
	CLAIM(other && ibv_create_ah(other, &address));
	CLAIM(reader->read_sgid(reader, &gid) == -ENOENT);

	FAILS(ibv_destroy_qp(a), 0);
	FAILS(ibv_destroy_qp(b), 0);
	FAILS(ibv_destroy_qp(c), 0);
	FAILS(ibv_destroy_cq(ibv_cq_ex_to_cq(cq_ex)), 0);
	return 0;
}
