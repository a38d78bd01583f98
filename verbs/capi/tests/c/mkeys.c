/* A device that looks like a ConnectX-7: indirect memory keys, copies and raw requests, within one process. */
#include "expect.h"
#include <endian.h>

/* `struct mlx5dv_qp_init_attr`. */
struct qp_attr {
	uint64_t comp_mask;
	uint32_t create_flags;
	uint64_t dc[2], send_ops_flags;
};
/* `struct mlx5dv_mkey_init_attr`. */
struct key_attr {
	struct ibv_pd *pd;
	uint32_t create_flags;
	uint16_t max_entries;
};
struct key {
	uint32_t lkey, rkey;
};
/* `struct mlx5dv_mkey_conf_attr`. */
struct configuration {
	uint32_t conf_flags;
	uint64_t comp_mask;
};
/* `struct mlx5dv_mr_interleaved`. */
struct interleaved {
	uint64_t addr;
	uint32_t bytes_count, bytes_skip, lkey;
};
/* `struct mlx5dv_sig_t10dif` and `_crc`, `_block_domain`, `_block_attr`. */
struct dif {
	uint32_t checksum;
	uint16_t seed, app_tag;
	uint32_t ref_tag;
	uint16_t flags;
};
struct crc {
	uint32_t type;
	uint64_t seed;
};
struct blocks {
	uint32_t type;
	const void *of;
	uint32_t size;
	uint64_t comp_mask;
};
struct signatures {
	const struct blocks *memory, *wire;
	uint32_t flags;
	uint8_t check_mask, copy_mask;
	uint64_t comp_mask;
};
/* `struct mlx5dv_mkey_err`. */
struct error {
	uint32_t type;
	uint64_t actual, expected, offset;
};
/* `struct mlx5dv_qp_ex`. */
struct setter {
	uint64_t comp_mask;
	void *set_dc_addr;
	void (*mr_interleaved)(struct setter *, struct key *, uint32_t, uint32_t, uint16_t, struct interleaved *);
	void (*mr_list)(struct setter *, struct key *, uint32_t, uint16_t, struct ibv_sge *);
	void (*configure)(struct setter *, struct key *, uint8_t, struct configuration *);
	void (*access)(struct setter *, uint32_t);
	void (*list)(struct setter *, uint16_t, const struct ibv_sge *);
	void (*interleaved)(struct setter *, uint32_t, uint16_t, const struct interleaved *);
	void (*signature)(struct setter *, const struct signatures *);
	void (*raw)(struct setter *, const void *);
	void *set_dc_addr_stream;
	void (*copy)(struct setter *, uint32_t, uint64_t, uint32_t, uint64_t, size_t);
	void *crypto;
};
enum { INTERLEAVED = 1, LIST = 2, CONFIGURE = 4, RAW = 8, COPY = 16, ALL = 31, OPERATIONS = 4, FLAGS = 1 };
enum { INDIRECT = 1, SIGNATURE = 2, PEER_INVALIDATES = 16 };

struct ibv_qp *create(struct ibv_context *, void *, void *) __asm__("mlx5dv_create_qp");
struct setter *setter_of(struct ibv_qp_ex *) __asm__("mlx5dv_qp_ex_from_ibv_qp_ex");
struct key *make_key(struct key_attr *) __asm__("mlx5dv_create_mkey");
int check_key(struct key *, struct error *, size_t) __asm__("_mlx5dv_mkey_check");
int end_key(struct key *) __asm__("mlx5dv_destroy_mkey");
int query(struct ibv_context *, void *) __asm__("mlx5dv_query_device");
int cancel(struct setter *, uint64_t) __asm__("mlx5dv_qp_cancel_posted_send_wrs");

static struct ibv_qp *one, *two;
static struct ibv_qp_ex *ex;
static struct setter *mlx5;
static char *bytes = (char *)memory;

static uint32_t create_flags;

static struct ibv_qp *queue_pair(uint64_t operations)
{
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	struct ibv_qp_init_attr_ex extended = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = wants.cap,
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ |
				  IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_LOCAL_INV,
	};
	struct qp_attr attr = {
		.comp_mask = FLAGS | OPERATIONS, .create_flags = create_flags, .send_ops_flags = operations};
	return create(ctx, &extended, &attr);
}

/* Like a ConnectX, the device has its first address behind empty entries. */
static int gid_index;

static void connects(struct ibv_qp *qp, struct ibv_qp *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qp_num, .rq_psn = 100,
		.max_dest_rd_atomic = 4, .min_rnr_timer = 12, .ah_attr = own_address(),
	};
	attr.ah_attr.grh.sgid_index = gid_index;
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	init(qp);
	FAILS(ibv_modify_qp(qp, &attr, mask | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), 0);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .sq_psn = 100, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 4};
	mask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
	FAILS(ibv_modify_qp(qp, &attr, mask | IBV_QP_MAX_QP_RD_ATOMIC), 0);
}

static void make_pair(void)
{
	CLAIM((one = queue_pair(ALL)) && (two = queue_pair(ALL)));
	connects(one, two);
	connects(two, one);
	CLAIM((ex = ibv_qp_to_qp_ex(one)) && (mlx5 = setter_of(ex)));
}

static void end_pair(void)
{
	FAILS(ibv_destroy_qp(one), 0);
	FAILS(ibv_destroy_qp(two), 0);
	struct ibv_wc wc;
	while (ibv_poll_cq(cq, 1, &wc))
		CLAIM(wc.status == IBV_WC_WR_FLUSH_ERR);
}

static struct key *key_for(uint32_t flags, uint16_t pieces)
{
	struct key_attr attr = {.pd = pd, .create_flags = INDIRECT | flags, .max_entries = pieces};
	struct key *key = make_key(&attr);
	CLAIM(key && key->lkey == key->rkey && attr.max_entries >= pieces);
	return key;
}

static void begin(uint64_t id, int flags)
{
	ibv_wr_start(ex);
	ex->wr_id = id;
	ex->wr_flags = flags;
}

/* Posts what was begun, which completes like this. */
static void end(uint64_t id, unsigned opcode)
{
	FAILS(ibv_wr_complete(ex), 0);
	struct ibv_wc wc = completion();
	CLAIM(wc.wr_id == id && wc.status == IBV_WC_SUCCESS && (unsigned)wc.opcode == opcode);
}

enum { SIGNALED = IBV_SEND_SIGNALED | IBV_SEND_INLINE };

static void configure_list(struct key *key, int rights, unsigned first, unsigned second)
{
	struct configuration none = {};
	struct ibv_sge pieces[] = {piece(first, 8), piece(second, 8)};
	begin(1, SIGNALED);
	mlx5->configure(mlx5, key, 2, &none);
	mlx5->access(mlx5, rights);
	mlx5->list(mlx5, 2, pieces);
	end(1, IBV_WC_DRIVER1);
}

/* Half of the pieces here, and half of the bytes there. */
static void sends_between_layouts(void)
{
	struct key *from = key_for(0, 2), *to = key_for(0, 3);
	configure_list(from, 0, 0, 64);
	struct interleaved pieces[] = {
		{.addr = (uintptr_t)bytes + 1000, .bytes_count = 3, .bytes_skip = 2, .lkey = mr->lkey},
		{.addr = (uintptr_t)bytes + 2000, .bytes_count = 1, .bytes_skip = 1, .lkey = mr->lkey},
	};
	begin(2, SIGNALED);
	mlx5->mr_interleaved(mlx5, to, IBV_ACCESS_LOCAL_WRITE, 4, 2, pieces);
	end(2, IBV_WC_DRIVER1);
	memcpy(bytes, "ABCDEFGH", 8);
	memcpy(bytes + 64, "IJKLMNOP", 8);
	memset(bytes + 1000, '.', 20);
	memset(bytes + 2000, '.', 8);
	struct ibv_sge there = {.addr = 0, .length = 16, .lkey = to->lkey};
	struct ibv_recv_wr receive = {.wr_id = 3, .sg_list = &there, .num_sge = 1}, *bad;
	FAILS(ibv_post_recv(two, &receive, &bad), 0);
	begin(4, IBV_SEND_SIGNALED);
	ibv_wr_send(ex);
	ibv_wr_set_sge(ex, from->lkey, 0, 16);
	FAILS(ibv_wr_complete(ex), 0);
	for (int i = 0; i < 2; i++)
		CLAIM(completion().status == IBV_WC_SUCCESS);
	CLAIM(memcmp(bytes + 1000, "ABC..EFG..IJK..MNO..", 20) == 0);
	CLAIM(memcmp(bytes + 2000, "D.H.L.P.", 8) == 0);
	FAILS(end_key(from), 0);
	FAILS(end_key(to), 0);
	FAILS(end_key(NULL), EINVAL);
}

static void peers_reach_a_layout(void)
{
	struct key *key = key_for(PEER_INVALIDATES, 2);
	/* The request behind the one that configures the key needs no completion of that. */
	struct ibv_sge pieces[] = {piece(100, 8), piece(200, 8)};
	memset(bytes + 100, '.', 120);
	memcpy(bytes, "0123456789abcdef", 16);
	begin(1, IBV_SEND_INLINE);
	mlx5->mr_list(mlx5, key, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ, 2, pieces);
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(ex, key->rkey, 4);
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)bytes, 10);
	end(1, IBV_WC_RDMA_WRITE);
	CLAIM(memcmp(bytes + 100, "....0123..", 10) == 0 && memcmp(bytes + 200, "456789..", 8) == 0);
	begin(2, IBV_SEND_SIGNALED);
	ibv_wr_rdma_read(ex, key->rkey, 6);
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)bytes + 400, 4);
	end(2, IBV_WC_RDMA_READ);
	CLAIM(memcmp(bytes + 400, "2345", 4) == 0);

	/* The peer takes the key away; it can be configured again, and used. */
	struct ibv_recv_wr receive = {.wr_id = 3}, *bad;
	FAILS(ibv_post_recv(two, &receive, &bad), 0);
	begin(4, IBV_SEND_SIGNALED);
	ibv_wr_send_inv(ex, key->rkey);
	ibv_wr_set_sge(ex, mr->lkey, 0, 0);
	FAILS(ibv_wr_complete(ex), 0);
	for (int i = 0; i < 2; i++) {
		struct ibv_wc wc = completion();
		CLAIM(wc.status == IBV_WC_SUCCESS);
		CLAIM(wc.wr_id == 4 || ((wc.wc_flags & IBV_WC_WITH_INV) && wc.invalidated_rkey == key->rkey));
	}
	begin(5, SIGNALED);
	mlx5->mr_list(mlx5, key, IBV_ACCESS_REMOTE_READ, 2, pieces);
	end(5, IBV_WC_DRIVER1);
	begin(6, IBV_SEND_SIGNALED);
	ibv_wr_rdma_read(ex, key->rkey, 0);
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)bytes + 400, 16);
	end(6, IBV_WC_RDMA_READ);
	/* Its owner takes it away, and a peer finds nothing. */
	begin(7, IBV_SEND_SIGNALED);
	ibv_wr_local_inv(ex, key->lkey);
	end(7, IBV_WC_LOCAL_INV);
	begin(8, IBV_SEND_SIGNALED);
	ibv_wr_rdma_read(ex, key->rkey, 0);
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)bytes + 400, 1);
	FAILS(ibv_wr_complete(ex), 0);
	struct ibv_wc wc = completion();
	CLAIM(wc.wr_id == 8 && wc.status == IBV_WC_REM_ACCESS_ERR);
	FAILS(end_key(key), 0);
}

/* What a key's check says: the part of a field that is wrong, or 0. */
static uint32_t wrong_part(struct key *key, uint64_t offset)
{
	struct error error = {.type = 99};
	FAILS(check_key(key, &error, sizeof(error)), 0);
	CLAIM(error.type == 0 || (error.offset == offset && error.actual != error.expected));
	return error.type;
}

static void sign(struct key *key, unsigned first, uint32_t length, const struct signatures *of, int result)
{
	struct configuration none = {};
	struct ibv_sge all = piece(first, length);
	begin(1, SIGNALED);
	mlx5->configure(mlx5, key, 3, &none);
	mlx5->access(mlx5, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	mlx5->list(mlx5, 1, &all);
	mlx5->signature(mlx5, of);
	if (result)
		FAILS(ibv_wr_complete(ex), result);
	else
		end(1, IBV_WC_DRIVER1);
}

/* Sends data of one key into another one: `wire` bytes arrive. */
static void send_signed(struct key *from, struct key *to, uint32_t data, uint32_t wire)
{
	struct ibv_sge there = {.addr = 0, .length = data, .lkey = to->lkey};
	struct ibv_recv_wr receive = {.wr_id = 3, .sg_list = &there, .num_sge = 1}, *bad;
	FAILS(ibv_post_recv(two, &receive, &bad), 0);
	begin(4, IBV_SEND_SIGNALED);
	ibv_wr_send(ex);
	ibv_wr_set_sge(ex, from->lkey, 0, data);
	FAILS(ibv_wr_complete(ex), 0);
	for (int i = 0; i < 2; i++) {
		struct ibv_wc wc = completion();
		CLAIM(wc.status == IBV_WC_SUCCESS && (wc.wr_id == 4 || wc.byte_len == wire));
	}
}

static void signatures(void)
{
	enum { FROM = 0, TO = 8192, DATA = 4096 };
	struct dif dif = {.seed = 0xffff, .app_tag = 0xabcd, .ref_tag = 0x1234567, .flags = 1};
	struct crc crc = {.type = 1, .seed = 0xffffffff};
	struct blocks with_dif = {.type = 0, .of = &dif}, with_crc = {.type = 1, .of = &crc};
	struct key *from = key_for(SIGNATURE, 1), *to = key_for(SIGNATURE, 1), *plain = key_for(0, 1);
	struct error error;
	uint64_t device[25] = {0, 0, 1 << 10};
	FAILS(query(ctx, device), 0);
	CLAIM(device[2] == 1 << 10 && device[13] == 0x1f);

	/* T10-DIF on the wire alone: eight blocks of 512 bytes, each with eight bytes more. */
	for (unsigned at = 0; at < DATA; at++)
		bytes[FROM + at] = at % 251;
	memset(bytes + TO, 0, 2 * DATA);
	struct signatures of = {.wire = &with_dif, .check_mask = 0xff};
	sign(from, FROM, DATA, &of, 0);
	sign(to, TO, DATA, &of, 0);
	send_signed(from, to, DATA, DATA + 8 * 8);
	CLAIM(memcmp(bytes + FROM, bytes + TO, DATA) == 0 && wrong_part(from, 0) == 0 && wrong_part(to, 0) == 0);
	/* The other end expects another tag. */
	dif.app_tag = 1;
	sign(to, TO, DATA, &of, 0);
	send_signed(from, to, DATA, DATA + 8 * 8);
	CLAIM(wrong_part(to, 0) == 3 && wrong_part(to, 0) == 0 && wrong_part(from, 0) == 0);

	/* CRCs in the memory of one side; a block that does not fit its field is found when it leaves. */
	of = (struct signatures){.memory = &with_crc, .check_mask = 0xf0};
	sign(to, TO, DATA + 8 * 4, &of, 0);
	begin(5, SIGNALED);
	mlx5->configure(mlx5, from, 0, &(struct configuration){.conf_flags = 1});
	end(5, IBV_WC_DRIVER1);
	send_signed(from, to, DATA, DATA);
	CLAIM(memcmp(bytes + FROM, bytes + TO, 512) == 0 && memcmp(bytes + FROM + 512, bytes + TO + 516, 512) == 0);
	send_signed(to, from, DATA, DATA);
	CLAIM(wrong_part(to, 0) == 0);
	bytes[TO + 516 * 3 + 5] ^= 1;
	send_signed(to, from, DATA, DATA);
	CLAIM(wrong_part(to, 512 * 3) == 1 && bytes[FROM + 512 * 3 + 5] == (char)(bytes[TO + 516 * 3 + 5]));

	/* A peer reads the bytes of the wire. */
	of = (struct signatures){.wire = &with_crc};
	sign(from, FROM, 512, &of, 0);
	begin(6, IBV_SEND_SIGNALED);
	ibv_wr_rdma_read(ex, from->rkey, 0);
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)bytes + TO, 516);
	end(6, IBV_WC_RDMA_READ);
	CLAIM(memcmp(bytes + FROM, bytes + TO, 512) == 0);

	with_crc.size = 5;
	sign(from, FROM, DATA, &of, EINVAL);
	with_crc.size = 0;
	crc.seed = 5;
	sign(from, FROM, DATA, &of, EINVAL);
	crc.seed = 0;
	crc.type = 3;
	sign(from, FROM, DATA, &of, EINVAL);
	crc.type = 2;
	sign(plain, FROM, DATA, &of, EINVAL);
	of.wire = NULL;
	sign(from, FROM, DATA, &of, EINVAL);
	FAILS(check_key(plain, &error, sizeof(error)), EINVAL);
	FAILS(check_key(from, NULL, sizeof(error)), EINVAL);
	FAILS(end_key(from), 0);
	FAILS(end_key(to), 0);
	FAILS(end_key(plain), 0);
}

/* A transfer and, behind a fence, the answer that says it is good: of bad data the answer is taken back. */
static void bad_data_stops_the_queue(void)
{
	create_flags = 1 << 6;
	make_pair();
	create_flags = 0;
	struct key *from = key_for(SIGNATURE, 1);
	struct crc crc = {.seed = 0xffffffff};
	struct blocks blocks = {.type = 1, .of = &crc};
	struct signatures of = {.memory = &blocks, .check_mask = 0xf0};
	sign(from, 0, 516, &of, 0);
	memset(bytes, 1, 516);
	memset(bytes + 1000, 0, 512);
	struct ibv_async_event event;
	for (int round = 0; round < 2; round++) {
		post_receive(two, 7, 2000, 32);
		begin(5, 0);
		ibv_wr_rdma_write(ex, mr->rkey, (uintptr_t)bytes + 1000);
		ibv_wr_set_sge(ex, from->lkey, 0, 512);
		ex->wr_id = 6;
		ex->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE;
		ibv_wr_send(ex);
		ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)bytes + 3000, 16);
		FAILS(ibv_wr_complete(ex), 0);
		CLAIM(ibv_get_async_event(ctx, &event) == 0);
		CLAIM(event.event_type == IBV_EVENT_SQ_DRAINED && event.element.qp == one);
		ibv_ack_async_event(&event);
		struct ibv_wc wc;
		CLAIM(ibv_poll_cq(cq, 1, &wc) == 0 && bytes[1000] == 1 && wrong_part(from, 0) == 1);
		CLAIM(cancel(mlx5, 5) == 0 && cancel(mlx5, 6) == 1);
		begin(8, IBV_SEND_SIGNALED);
		ibv_wr_send(ex);
		ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)bytes + 3000, 8);
		FAILS(ibv_wr_complete(ex), 0);
		struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_SQD};
		FAILS(ibv_modify_qp(one, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE), 0);
		wc = completion();
		CLAIM(wc.wr_id == 6 && wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_SEND);
		for (int i = 0; i < 2; i++) {
			wc = completion();
			CLAIM(wc.status == IBV_WC_SUCCESS && (wc.wr_id == 8 || (wc.wr_id == 7 && wc.byte_len == 8)));
		}
	}
	CLAIM(cancel(mlx5, 6) == -EINVAL && cancel(NULL, 6) == -EINVAL);
	end_pair();
	FAILS(end_key(from), 0);
	struct ibv_qp_init_attr_ex wants = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD, .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
	};
	REFUSED(create(ctx, &wants, &(struct qp_attr){.comp_mask = FLAGS, .create_flags = 1 << 6}), EOPNOTSUPP);
}

/* A buffer beyond the layout, and a region that is gone. */
static void local_buffers_are_checked(void)
{
	for (int gone = 0; gone < 2; gone++) {
		make_pair();
		struct key *key = key_for(0, 2);
		struct ibv_mr *region = ibv_reg_mr(pd, memory, 64, IBV_ACCESS_LOCAL_WRITE);
		CLAIM(region);
		struct ibv_sge pieces[] = {{.addr = (uintptr_t)memory, .length = 16, .lkey = region->lkey}};
		begin(1, SIGNALED);
		mlx5->mr_list(mlx5, key, IBV_ACCESS_LOCAL_WRITE, 1, pieces);
		end(1, IBV_WC_DRIVER1);
		if (gone)
			FAILS(ibv_dereg_mr(region), 0);
		begin(2, IBV_SEND_SIGNALED);
		ibv_wr_send(ex);
		ibv_wr_set_sge(ex, key->lkey, 0, gone ? 16 : 17);
		FAILS(ibv_wr_complete(ex), 0);
		struct ibv_wc wc = completion();
		CLAIM(wc.wr_id == 2 && wc.status == IBV_WC_LOC_PROT_ERR);
		end_pair();
		FAILS(end_key(key), 0);
		if (!gone)
			FAILS(ibv_dereg_mr(region), 0);
	}
}

static void requests_are_refused(void)
{
	struct key *key = key_for(0, 4);
	struct configuration none = {}, unknown = {.conf_flags = 2};
	struct ibv_sge pieces[5] = {piece(0, 1)};
	/* Setters: none missing, none twice, none too many; no builder without IBV_SEND_INLINE. */
	begin(1, SIGNALED);
	mlx5->configure(mlx5, key, 2, &none);
	mlx5->access(mlx5, 0);
	FAILS(ibv_wr_complete(ex), EINVAL);
	begin(1, SIGNALED);
	mlx5->configure(mlx5, key, 2, &none);
	mlx5->access(mlx5, 0);
	mlx5->access(mlx5, 0);
	FAILS(ibv_wr_complete(ex), EINVAL);
	begin(1, SIGNALED);
	mlx5->configure(mlx5, key, 0, &none);
	mlx5->access(mlx5, 0);
	FAILS(ibv_wr_complete(ex), EINVAL);
	begin(1, SIGNALED);
	mlx5->configure(mlx5, key, 1, &none);
	mlx5->access(mlx5, IBV_ACCESS_MW_BIND);
	FAILS(ibv_wr_complete(ex), EINVAL);
	begin(1, SIGNALED);
	mlx5->list(mlx5, 1, pieces);
	FAILS(ibv_wr_complete(ex), EINVAL);
	begin(1, SIGNALED);
	mlx5->configure(mlx5, key, 1, &none);
	mlx5->list(mlx5, 5, pieces);
	FAILS(ibv_wr_complete(ex), ENOMEM);
	begin(1, IBV_SEND_SIGNALED);
	mlx5->mr_list(mlx5, key, 0, 1, pieces);
	FAILS(ibv_wr_complete(ex), EOPNOTSUPP);
	begin(1, SIGNALED);
	mlx5->configure(mlx5, key, 0, &unknown);
	FAILS(ibv_wr_complete(ex), EOPNOTSUPP);
	/* Nothing of that was posted. */
	begin(9, SIGNALED);
	mlx5->configure(mlx5, key, 0, &none);
	end(9, IBV_WC_DRIVER1);
	FAILS(end_key(key), 0);
	FAILS(end_key(key), ENOENT);

	struct key_attr attr = {.pd = pd, .max_entries = 1};
	REFUSED(make_key(&attr), EOPNOTSUPP);
	attr.create_flags = 1 << 9;
	REFUSED(make_key(&attr), EOPNOTSUPP);
	attr = (struct key_attr){.create_flags = INDIRECT, .max_entries = 1};
	REFUSED(make_key(&attr), EINVAL);
	REFUSED(make_key(NULL), EINVAL);
	REFUSED(queue_pair(1 << 5), EOPNOTSUPP);
	/* What a queue pair was not made with it does not have. */
	struct ibv_qp *few = queue_pair(COPY);
	CLAIM(few);
	struct setter *its = setter_of(ibv_qp_to_qp_ex(few));
	CLAIM(its && its->copy && !its->raw && !its->configure && !its->mr_list && !its->crypto);
	FAILS(ibv_destroy_qp(few), 0);
}

static void copies(void)
{
	uint64_t device[25] = {0, 0, 1 << 12};
	FAILS(query(ctx, device), 0);
	CLAIM(device[2] == 1 << 12 && device[16] >= 4096);
	for (unsigned at = 0; at < 20000; at++)
		bytes[at] = at % 251;
	begin(1, IBV_SEND_SIGNALED);
	mlx5->copy(mlx5, mr->lkey, (uintptr_t)bytes + 30001, mr->lkey, (uintptr_t)bytes, 20000);
	end(1, IBV_WC_DRIVER3);
	CLAIM(memcmp(bytes, bytes + 30001, 20000) == 0);
	begin(2, IBV_SEND_SIGNALED);
	mlx5->copy(mlx5, mr->lkey, (uintptr_t)bytes, mr->lkey, (uintptr_t)bytes, device[16] + 1);
	FAILS(ibv_wr_complete(ex), EINVAL);
}

/* A SEND of two segments, and a WRITE with inline data, as an adapter reads them. */
static void raw_requests(void)
{
	uint32_t wqe[12] = {htobe32(0x0a), htobe32(one->qp_num << 8 | 3), htobe32(8)};
	for (int i = 0; i < 2; i++) {
		wqe[4 + 4 * i] = htobe32(8);
		wqe[5 + 4 * i] = htobe32(mr->lkey);
		uint64_t address = htobe64((uintptr_t)bytes + 64 * i);
		memcpy(&wqe[6 + 4 * i], &address, 8);
	}
	memcpy(bytes, "first...", 8);
	memcpy(bytes + 64, "second..", 8);
	post_receive(two, 7, 500, 32);
	begin(3, 0);
	mlx5->raw(mlx5, wqe);
	FAILS(ibv_wr_complete(ex), 0);
	for (int i = 0; i < 2; i++) {
		struct ibv_wc wc = completion();
		CLAIM(wc.status == IBV_WC_SUCCESS);
		CLAIM((unsigned)wc.opcode == (wc.wr_id == 3 ? (unsigned)IBV_WC_DRIVER2 : (unsigned)IBV_WC_RECV));
	}
	CLAIM(memcmp(bytes + 500, "first...second..", 16) == 0);

	uint64_t target = htobe64((uintptr_t)bytes + 600);
	uint32_t write[12] = {htobe32(0x08), htobe32(3), htobe32(8)};
	memcpy(&write[4], &target, 8);
	write[6] = htobe32(mr->rkey);
	write[8] = htobe32(0x80000000 | 5);
	memcpy(&write[9], "hello", 5);
	begin(4, 0);
	mlx5->raw(mlx5, write);
	end(4, IBV_WC_DRIVER2);
	CLAIM(memcmp(bytes + 600, "hello", 5) == 0);

	/* No size, more inline data than there is, an operation that is none. */
	wqe[1] = 0;
	begin(5, 0);
	mlx5->raw(mlx5, wqe);
	FAILS(ibv_wr_complete(ex), EINVAL);
	write[8] = htobe32(0x80000000 | 13);
	begin(5, 0);
	mlx5->raw(mlx5, write);
	FAILS(ibv_wr_complete(ex), EINVAL);
	write[0] = htobe32(0x77);
	begin(5, 0);
	mlx5->raw(mlx5, write);
	FAILS(ibv_wr_complete(ex), EOPNOTSUPP);
	begin(5, 0);
	mlx5->raw(mlx5, NULL);
	FAILS(ibv_wr_complete(ex), EINVAL);
}

int main(void)
{
	open_device();
	while (ibv_query_gid(ctx, 1, gid_index, &own_gid) != 0 || own_gid.global.interface_id == 0)
		CLAIM(++gid_index < 16);
	make_pair();
	sends_between_layouts();
	copies();
	raw_requests();
	signatures();
	requests_are_refused();
	peers_reach_a_layout();
	end_pair();
	bad_data_stops_the_queue();
	local_buffers_are_checked();
	/* A key keeps its domain; one that stays goes with the context. */
	struct ibv_pd *other = ibv_alloc_pd(ctx);
	CLAIM(other);
	struct key_attr attr = {.pd = other, .create_flags = INDIRECT, .max_entries = 1};
	struct key *key = make_key(&attr);
	CLAIM(key);
	FAILS(ibv_dealloc_pd(other), EBUSY);
	FAILS(end_key(key), 0);
	FAILS(ibv_dealloc_pd(other), 0);
	key_for(0, 1);
	return 0;
}
