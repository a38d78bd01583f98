/* A device that looks like a ConnectX-7: an initiator of DC, targets, and their errors, within one process. */
#include "expect.h"

/* `struct mlx5dv_qp_init_attr`: dc_type and the union are a structure of 8 byte alignment. */
struct qp_attr {
	uint64_t comp_mask;
	uint32_t create_flags;
	struct {
		uint32_t type;
		union {
			uint64_t access_key;
			struct {
				uint8_t log_concurrent, log_errored;
			};
		};
	} dc;
	uint64_t send_ops_flags;
};
struct setter {
	uint64_t comp_mask;
	void (*set_dc_addr)(struct setter *, struct ibv_ah *, uint32_t, uint64_t);
	void *of_keys[8];
	void (*set_dc_addr_stream)(struct setter *, struct ibv_ah *, uint32_t, uint64_t, uint16_t);
	void *of_memory[2];
};
struct device {
	uint8_t version;
	uint64_t flags, comp_mask;
	uint32_t of_rings[15], dc_odp_caps;
	void *clock;
	uint8_t lag_ports;
	uint64_t signatures[2];
	uint8_t max_log_concurrent, max_log_errored;
	uint64_t memcpy_length, crypto[2], max_dc_rd_atom, max_dc_init_rd_atom, reg, ooo[3];
};
enum { FLAGS = 1, DC = 2, OPERATIONS = 4, STREAMS = 8, TARGET = 1, INITIATOR = 2 };

struct ibv_qp *create_dc(struct ibv_context *, void *, void *) __asm__("mlx5dv_create_qp");
struct setter *setter_of(struct ibv_qp_ex *) __asm__("mlx5dv_qp_ex_from_ibv_qp_ex");
int reset_stream(struct ibv_qp *, uint16_t) __asm__("mlx5dv_dci_stream_id_reset");
int map_ah(struct ibv_ah *, uint32_t) __asm__("mlx5dv_map_ah_to_qp");
int query(struct ibv_context *, void *) __asm__("mlx5dv_query_device");

#define DRIVER ((enum ibv_qp_type)0xff)
#define KEY 0xffeeddcc00112233ull
static struct ibv_srq *srq;
static struct ibv_ah *ah;
static struct ibv_cq *sends;

static struct ibv_qp_init_attr_ex wants(uint64_t operations)
{
	struct ibv_qp_init_attr_ex wants = {
		.send_cq = sends,
		.recv_cq = cq,
		.srq = srq,
		.cap = {.max_send_wr = 32, .max_send_sge = 2, .max_inline_data = 64},
		.qp_type = DRIVER,
		.comp_mask = IBV_QP_INIT_ATTR_PD | (operations ? IBV_QP_INIT_ATTR_SEND_OPS_FLAGS : 0),
		.pd = pd,
		.send_ops_flags = operations,
	};
	return wants;
}

static void says_what_dc_can_do(void)
{
	struct device device;
	memset(&device, 0xff, sizeof(device));
	device.comp_mask = 0;
	FAILS(query(ctx, &device), 0);
	CLAIM(device.version == 0 && device.comp_mask == 0 && device.dc_odp_caps == ~0u && device.max_dc_rd_atom == ~0ull);
	device.comp_mask = 1 << 7 | 1 << 11 | 1 << 8;
	FAILS(query(ctx, &device), 0);
	CLAIM(device.comp_mask == (1 << 7 | 1 << 11) && device.dc_odp_caps == 0x3f && device.max_log_concurrent >= 3);
	CLAIM(device.max_log_errored >= 3 && device.max_dc_rd_atom == ~0ull && device.clock == (void *)~0ul);
	device.comp_mask = ~0ull;
	FAILS(query(ctx, &device), 0);
	CLAIM(device.max_dc_rd_atom == 16 && device.comp_mask == (1 | 1 << 7 | 1 << 10 | 1 << 11 | 1 << 12 | 1 << 14 | 1 << 16));
	FAILS(query(ctx, NULL), EINVAL);
	FAILS(map_ah(ah, 5), 0);
}

static struct ibv_qp *target(uint64_t key)
{
	struct ibv_qp_init_attr_ex of = wants(0);
	struct qp_attr attr = {.comp_mask = DC, .dc = {.type = TARGET, .access_key = key}};
	of.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	REFUSED(create_dc(ctx, &of, &attr), EINVAL);
	of = wants(0);
	attr.comp_mask = DC | STREAMS;
	REFUSED(create_dc(ctx, &of, &attr), EINVAL);
	attr.comp_mask = DC;
	of.srq = NULL;
	REFUSED(create_dc(ctx, &of, &attr), EINVAL);
	of = wants(0);
	struct ibv_qp *qp = create_dc(ctx, &of, &attr);
	CLAIM(qp && qp->qp_num == 0 && qp->qp_type == DRIVER && qp->state == IBV_QPS_RESET);
	struct ibv_qp_attr state = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = RIGHTS};
	FAILS(ibv_modify_qp(qp, &state, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT), EINVAL);
	FAILS(ibv_modify_qp(qp, &state, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
	CLAIM(qp->qp_num == 0);
	state.qp_state = IBV_QPS_RTR;
	state.path_mtu = IBV_MTU_1024;
	state.min_rnr_timer = 12;
	state.ah_attr = own_address();
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER;
	FAILS(ibv_modify_qp(qp, &state, mask | IBV_QP_RETRY_CNT), EINVAL);
	FAILS(ibv_modify_qp(qp, &state, mask), 0);
	CLAIM(qp->qp_num != 0 && qp->state == IBV_QPS_RTR);
	state.qp_state = IBV_QPS_RTS;
	FAILS(ibv_modify_qp(qp, &state, IBV_QP_STATE), EINVAL);
	return qp;
}

static void starts_initiator(struct ibv_qp *qp)
{
	struct ibv_qp_attr state = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	FAILS(ibv_modify_qp(qp, &state, IBV_QP_STATE | IBV_QP_PKEY_INDEX), EINVAL);
	FAILS(ibv_modify_qp(qp, &state, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT), 0);
	state = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024};
	FAILS(ibv_modify_qp(qp, &state, IBV_QP_STATE | IBV_QP_PATH_MTU), 0);
	state = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .timeout = 12, .retry_cnt = 2, .rnr_retry = 7, .max_rd_atomic = 8};
	FAILS(ibv_modify_qp(qp, &state,
			    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				    IBV_QP_MAX_QP_RD_ATOMIC),
	      0);
}

static struct ibv_qp *initiator(uint64_t comp_mask, uint8_t log_concurrent, uint8_t log_errored)
{
	struct ibv_qp_init_attr_ex of = wants(0x7f);
	struct qp_attr attr = {.comp_mask = DC | comp_mask, .dc = {.type = 3}};
	REFUSED(create_dc(ctx, &of, &attr), EINVAL);
	attr.dc.type = INITIATOR;
	attr.comp_mask = 0;
	REFUSED(create_dc(ctx, &of, &attr), EINVAL);
	REFUSED(create_dc(ctx, &of, NULL), EINVAL);
	attr.comp_mask = DC | 1 << 4;
	REFUSED(create_dc(ctx, &of, &attr), EINVAL);
	attr = (struct qp_attr){.comp_mask = DC | FLAGS, .create_flags = 3 << 3, .dc = {.type = INITIATOR}};
	REFUSED(create_dc(ctx, &of, &attr), EINVAL);
	attr.create_flags = 1 << 6;
	REFUSED(create_dc(ctx, &of, &attr), EOPNOTSUPP);
	attr = (struct qp_attr){.comp_mask = DC | OPERATIONS, .dc = {.type = INITIATOR}, .send_ops_flags = 1};
	REFUSED(create_dc(ctx, &of, &attr), EOPNOTSUPP);
	attr = (struct qp_attr){.comp_mask = DC | STREAMS, .dc = {.type = INITIATOR}};
	attr.dc.log_concurrent = 60;
	REFUSED(create_dc(ctx, &of, &attr), EINVAL);
	attr.comp_mask = DC | comp_mask;
	attr.dc.log_concurrent = log_concurrent;
	attr.dc.log_errored = log_errored;
	struct ibv_qp *qp = create_dc(ctx, &of, &attr);
	CLAIM(qp && qp->qp_num != 0);
	starts_initiator(qp);
	return qp;
}

/* One completion of a queue, which must be this. */
static struct ibv_wc ends(struct ibv_cq *of, uint64_t wr_id, enum ibv_wc_status status)
{
	struct ibv_wc wc;
	time_t end = time(NULL) + 60;
	while (ibv_poll_cq(of, 1, &wc) == 0)
		CLAIM(time(NULL) <= end);
	if (wc.wr_id != wr_id || wc.status != status)
		fprintf(stderr, "wr_id %lu: %s\n", (unsigned long)wc.wr_id, ibv_wc_status_str(wc.status));
	CLAIM(wc.wr_id == wr_id && wc.status == status);
	return wc;
}

static void takes(uint64_t wr_id, size_t offset, uint32_t length)
{
	struct ibv_sge sge = piece(offset, length);
	struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad;
	FAILS(ibv_post_srq_recv(srq, &wr, &bad), 0);
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

static void posts(struct ibv_qp_ex *ex, struct ibv_qp *to, uint64_t key, struct ibv_sge sge)
{
	struct setter *setter = setter_of(ex);
	CLAIM(setter && setter == setter_of(ex));
	setter->set_dc_addr(setter, ah, to->qp_num, key);
	ibv_wr_set_sge(ex, sge.lkey, sge.addr, sge.length);
	FAILS(ibv_wr_complete(ex), 0);
}

int main(void)
{
	open_device();
	struct ibv_ah_attr address = own_address();
	int first = -1;
	while (ibv_query_gid(ctx, 1, ++first, &own_gid) != 0 || own_gid.global.interface_id == 0)
		CLAIM(first < 16);
	address.grh.dgid = own_gid;
	address.grh.sgid_index = first;
	CLAIM((ah = ibv_create_ah(pd, &address)));
	CLAIM((sends = ibv_create_cq(ctx, 64, NULL, NULL, 0)));
	struct ibv_srq_init_attr of = {.attr = {.max_wr = 32, .max_sge = 1}};
	CLAIM((srq = ibv_create_srq(pd, &of)));
	says_what_dc_can_do();

	struct ibv_qp *one = target(KEY), *two = target(7), *from = initiator(0, 0, 0);
	CLAIM(one->qp_num != two->qp_num && !ibv_qp_to_qp_ex(one) && !setter_of(NULL));
	uint32_t number;
	FAILS(ibv_get_srq_num(srq, &number), 0);
	memset(memory, 'a', 16000);

	/* To one target and the other in turn: in order, from one shared receive queue. */
	takes(1, 16384, 16384);
	takes(2, 32768, 100);
	struct ibv_qp_ex *ex = starts(from, 10);
	ibv_wr_send_imm(ex, 77);
	posts(ex, one, KEY, piece(0, 16000));
	ex = starts(from, 11);
	ibv_wr_send(ex);
	posts(ex, two, 7, piece(0, 100));
	struct ibv_wc wc = ends(cq, 1, IBV_WC_SUCCESS);
	CLAIM(wc.opcode == IBV_WC_RECV && wc.byte_len == 16000 && wc.imm_data == 77 && wc.wc_flags == IBV_WC_WITH_IMM);
	CLAIM(wc.qp_num == one->qp_num && wc.src_qp == from->qp_num);
	CLAIM(memcmp(memory, (char *)memory + 16384, 16000) == 0);
	wc = ends(cq, 2, IBV_WC_SUCCESS);
	CLAIM(wc.qp_num == two->qp_num && wc.byte_len == 100);
	ends(sends, 10, IBV_WC_SUCCESS);
	ends(sends, 11, IBV_WC_SUCCESS);

	/* RDMA and atomics. */
	memory[6000] = 41;
	ex = starts(from, 12);
	ibv_wr_rdma_write(ex, mr->rkey, (uintptr_t)memory + 40000);
	posts(ex, one, KEY, piece(0, 7000));
	ex = starts(from, 13);
	ibv_wr_rdma_read(ex, mr->rkey, (uintptr_t)memory + 40000);
	posts(ex, one, KEY, piece(33000, 6500));
	ex = starts(from, 14);
	ibv_wr_atomic_fetch_add(ex, mr->rkey, (uintptr_t)&memory[6000], 1);
	posts(ex, one, KEY, piece(8 * 6001, 8));
	ex = starts(from, 15);
	ibv_wr_atomic_cmp_swp(ex, mr->rkey, (uintptr_t)&memory[6000], 42, 50);
	posts(ex, one, KEY, piece(8 * 6002, 8));
	CLAIM(ends(sends, 12, IBV_WC_SUCCESS).opcode == IBV_WC_RDMA_WRITE);
	CLAIM(ends(sends, 13, IBV_WC_SUCCESS).opcode == IBV_WC_RDMA_READ);
	CLAIM(ends(sends, 14, IBV_WC_SUCCESS).opcode == IBV_WC_FETCH_ADD);
	CLAIM(ends(sends, 15, IBV_WC_SUCCESS).opcode == IBV_WC_COMP_SWAP);
	CLAIM(memcmp(memory, (char *)memory + 40000, 7000) == 0 && memcmp(memory, (char *)memory + 33000, 6500) == 0);
	CLAIM(memory[6001] == 41 && memory[6002] == 42 && memory[6000] == 50);

	/* Without a target nothing is posted. */
	ex = starts(from, 16);
	ibv_wr_send(ex);
	struct ibv_sge some = piece(0, 8);
	ibv_wr_set_sge(ex, some.lkey, some.addr, some.length);
	FAILS(ibv_wr_complete(ex), EINVAL);
	struct ibv_send_wr wr = {.wr_id = 17, .opcode = IBV_WR_SEND, .wr.ud = {ah, one->qp_num, 0}}, *bad;
	FAILS(ibv_post_send(from, &wr, &bad), EINVAL);
	/* A target sends nothing, in any state: as before RTS on an adapter like this. */
	FAILS(ibv_post_send(one, &wr, &bad), ENOMEM);

	/* A wrong access key ends the request and the initiator, and the target hears of it. */
	ex = starts(from, 18);
	ibv_wr_rdma_write(ex, mr->rkey, (uintptr_t)memory + 40000);
	posts(ex, one, KEY + 1, piece(0, 8));
	ends(sends, 18, IBV_WC_REM_INV_REQ_ERR);
	struct ibv_async_event event;
	FAILS(ibv_get_async_event(ctx, &event), 0);
	CLAIM(event.event_type == IBV_EVENT_QP_ACCESS_ERR && event.element.qp == one);
	ibv_ack_async_event(&event);
	ex = starts(from, 19);
	ibv_wr_send(ex);
	posts(ex, one, KEY, piece(0, 8));
	ends(sends, 19, IBV_WC_WR_FLUSH_ERR);
	FAILS(reset_stream(from, 0), EOPNOTSUPP);
	FAILS(reset_stream(one, 0), EINVAL);
	struct ibv_qp_attr state = {.qp_state = IBV_QPS_RESET};
	struct ibv_qp_init_attr made;
	FAILS(ibv_query_qp(from, &state, IBV_QP_STATE, &made), 0);
	CLAIM(state.qp_state == IBV_QPS_ERR);
	state.qp_state = IBV_QPS_RESET;
	FAILS(ibv_modify_qp(from, &state, IBV_QP_STATE), 0);
	starts_initiator(from);

	/* A wrong key of memory, and a number that no target has. */
	ex = starts(from, 20);
	ibv_wr_rdma_write(ex, mr->rkey ^ 0x5500, (uintptr_t)memory);
	posts(ex, one, KEY, piece(0, 8));
	ends(sends, 20, IBV_WC_REM_ACCESS_ERR);
	struct ibv_qp *second = initiator(0, 0, 0);
	ex = starts(second, 21);
	ibv_wr_send(ex);
	struct ibv_qp missing = {.qp_num = one->qp_num ^ 0x40};
	posts(ex, &missing, KEY, piece(0, 8));
	ends(sends, 21, IBV_WC_RETRY_EXC_ERR);

	/* Streams fail alone, until so many have failed. */
	struct ibv_qp *streams = initiator(STREAMS, 2, 1);
	struct setter *setter = setter_of(ibv_qp_to_qp_ex(streams));
	uint32_t wrong = mr->rkey ^ 0x5500;
	for (int round = 0; round < 3; round++) {
		ex = starts(streams, 30 + round);
		ibv_wr_rdma_write(ex, wrong, (uintptr_t)memory);
		setter->set_dc_addr_stream(setter, ah, one->qp_num, KEY, 1 + round / 2);
		ibv_wr_set_sge(ex, some.lkey, some.addr, some.length);
		FAILS(ibv_wr_complete(ex), 0);
		ends(sends, 30 + round, IBV_WC_REM_ACCESS_ERR);
		FAILS(ibv_query_qp(streams, &state, IBV_QP_STATE, &made), 0);
		CLAIM(state.qp_state == (round < 2 ? IBV_QPS_RTS : IBV_QPS_ERR));
		if (round == 0)
			FAILS(reset_stream(streams, 1), 0);
	}
	FAILS(reset_stream(streams, 1), EOPNOTSUPP);

	FAILS(ibv_destroy_qp(streams), 0);
	FAILS(ibv_destroy_qp(second), 0);
	FAILS(ibv_destroy_qp(from), 0);
	FAILS(ibv_destroy_qp(one), 0);
	FAILS(ibv_destroy_qp(two), 0);
	FAILS(ibv_destroy_srq(srq), 0);
	FAILS(ibv_destroy_cq(sends), 0);
	return 0;
}
