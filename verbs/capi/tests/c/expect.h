/* What every program of these tests needs: claims, a device, a pair of connected queue pairs. */
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CLAIM(claim)                                                                                         \
	do {                                                                                                 \
		if (!(claim)) {                                                                              \
			fprintf(stderr, "%s:%d: not so: %s (errno %d)\n", __FILE__, __LINE__, #claim, errno); \
			exit(1);                                                                             \
		}                                                                                            \
	} while (0)

/* A call that returns NULL and this errno. */
#define REFUSED(call, number) CLAIM((errno = 0, (call) == NULL) && errno == (number))
/* A call that returns this errno. */
#define FAILS(call, number)                                                                                  \
	do {                                                                                                 \
		int failed_with = (call);                                                                    \
		if (failed_with != (number)) {                                                               \
			fprintf(stderr, "%s:%d: %s is %d, not %d\n", __FILE__, __LINE__, #call, failed_with, \
				number);                                                                     \
			exit(1);                                                                             \
		}                                                                                            \
	} while (0)

#define RIGHTS                                                                                               \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static uint64_t memory[8192];
static union ibv_gid own_gid;
/* The first index that has a GID: adapters of some profiles have none at 0. */
static int own_gid_index;

__attribute__((unused)) static void open_device(void)
{
	int count = -1;
	struct ibv_device **list = ibv_get_device_list(&count);
	CLAIM(list && count == 1 && list[0] && !list[1]);
	CLAIM((ctx = ibv_open_device(list[0])));
	ibv_free_device_list(list);
	CLAIM((pd = ibv_alloc_pd(ctx)));
	CLAIM((channel = ibv_create_comp_channel(ctx)));
	CLAIM((cq = ibv_create_cq(ctx, 64, &cq, channel, 0)));
	CLAIM((mr = ibv_reg_mr(pd, memory, sizeof(memory), RIGHTS | IBV_ACCESS_MW_BIND)));
	static const union ibv_gid none;
	for (own_gid_index = 0; own_gid_index < 16; own_gid_index++) {
		CLAIM(ibv_query_gid(ctx, 1, own_gid_index, &own_gid) == 0);
		if (memcmp(&own_gid, &none, sizeof(none)))
			break;
	}
	CLAIM(own_gid_index < 16);
}

__attribute__((unused)) static struct ibv_qp_init_attr qp_wants(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr wants = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 20, .max_recv_wr = 20, .max_send_sge = 4, .max_recv_sge = 4, .max_inline_data = 256},
		.qp_type = type,
	};
	return wants;
}

__attribute__((unused)) static struct ibv_ah_attr own_address(void)
{
	struct ibv_ah_attr address = {.is_global = 1, .grh = {.dgid = own_gid, .sgid_index = own_gid_index, .hop_limit = 64}, .port_num = 1};
	return address;
}

__attribute__((unused)) static void init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = RIGHTS, .qkey = 7};
	int third = qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	FAILS(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | third), 0);
}

__attribute__((unused)) static void connect_to(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer,
		.rq_psn = 100,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 12,
		.ah_attr = own_address(),
	};
	int mask = IBV_QP_STATE;
	if (qp->qp_type != IBV_QPT_UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (qp->qp_type == IBV_QPT_RC || qp->qp_type == IBV_QPT_XRC_RECV || qp->qp_type == IBV_QPT_XRC_SEND)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	FAILS(ibv_modify_qp(qp, &attr, mask), 0);
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS, .sq_psn = 100, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 4};
	mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (qp->qp_type == IBV_QPT_RC || qp->qp_type == IBV_QPT_XRC_RECV || qp->qp_type == IBV_QPT_XRC_SEND)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	FAILS(ibv_modify_qp(qp, &rts, mask), 0);
	CLAIM(qp->state == IBV_QPS_RTS);
}

/* Waits, at most a minute, for one completion. */
__attribute__((unused)) static struct ibv_wc completion(void)
{
	struct ibv_wc wc = {0};
	time_t end = time(NULL) + 60;
	int count;
	while ((count = ibv_poll_cq(cq, 1, &wc)) == 0)
		CLAIM(time(NULL) <= end);
	CLAIM(count == 1);
	return wc;
}

/* Waits for `count` successful completions; the wr_ids of receives are added up. */
__attribute__((unused)) static uint64_t completions(int count)
{
	uint64_t received = 0;
	while (count--) {
		struct ibv_wc wc = completion();
		if (wc.status)
			fprintf(stderr, "wr_id %lu: %s\n", (unsigned long)wc.wr_id, ibv_wc_status_str(wc.status));
		CLAIM(wc.status == IBV_WC_SUCCESS);
		if (wc.opcode & IBV_WC_RECV)
			received += wc.wr_id;
	}
	return received;
}

__attribute__((unused)) static struct ibv_sge piece(unsigned offset, uint32_t length)
{
	struct ibv_sge sge = {.addr = (uintptr_t)memory + offset, .length = length, .lkey = mr->lkey};
	return sge;
}

__attribute__((unused)) static void post_receive(struct ibv_qp *qp, uint64_t wr_id, unsigned offset, uint32_t length)
{
	struct ibv_sge sge = piece(offset, length);
	struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad;
	FAILS(ibv_post_recv(qp, &wr, &bad), 0);
}

/* Two connected queue pairs. */
__attribute__((unused)) static struct ibv_qp *pair(enum ibv_qp_type type, struct ibv_qp **other)
{
	struct ibv_qp_init_attr wants = qp_wants(type);
	struct ibv_qp *one = ibv_create_qp(pd, &wants);
	*other = ibv_create_qp(pd, &wants);
	CLAIM(one && *other);
	init(one);
	init(*other);
	connect_to(one, (*other)->qp_num);
	connect_to(*other, one->qp_num);
	return one;
}

__attribute__((unused)) static void post(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	FAILS(ibv_post_send(qp, wr, &bad), 0);
}

/* Connects a pair again, after an error. */
__attribute__((unused)) static void reconnect(struct ibv_qp *one, struct ibv_qp *other)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
	FAILS(ibv_modify_qp(one, &attr, IBV_QP_STATE), 0);
	FAILS(ibv_modify_qp(other, &attr, IBV_QP_STATE), 0);
	struct ibv_wc wc;
	while (ibv_poll_cq(cq, 1, &wc) == 1)
		;
	init(one);
	init(other);
	connect_to(one, other->qp_num);
	connect_to(other, one->qp_num);
}

/* Posts one operation with one element, and returns the status that it completes with. */
__attribute__((unused)) static enum ibv_wc_status outcome(struct ibv_qp *qp, enum ibv_wr_opcode opcode, struct ibv_sge sge,
							  uint64_t remote_addr, uint32_t rkey)
{
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED};
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = remote_addr;
		wr.wr.atomic.compare_add = 1;
		wr.wr.atomic.rkey = rkey;
	} else {
		wr.wr.rdma.remote_addr = remote_addr;
		wr.wr.rdma.rkey = rkey;
	}
	post(qp, &wr);
	return completion().status;
}
