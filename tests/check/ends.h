/* What the planted programs share: a device, and two queue pairs that are connected to each other. The programs
 * include this file, define what they change first, and are correct with -DFIXED. */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define UNUSED __attribute__((unused))

static char memory[4096];

#ifndef MIN_RNR_TIMER
/* 0.01 ms. */
#define MIN_RNR_TIMER 1
#endif

/* Two ends in one process: "here" sends, "there" receives. */
struct ends {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_comp_channel *channel;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_qp *here, *there;
};

#define MUST(condition)                                                                                                \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, strerror(errno));           \
			exit(99);                                                                                      \
		}                                                                                                      \
	} while (0)

UNUSED static void open_device(struct ends *ends)
{
	memset(ends, 0, sizeof(*ends));
	struct ibv_device **list = ibv_get_device_list(NULL);
	MUST(list && list[0]);
	MUST(ends->context = ibv_open_device(list[0]));
	ibv_free_device_list(list);
	MUST(ends->pd = ibv_alloc_pd(ends->context));
	MUST(ends->mr = ibv_reg_mr(ends->pd, memory, sizeof(memory),
				   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ));
}

UNUSED static struct ibv_qp *make_qp(struct ends *ends, enum ibv_qp_type type, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr wants = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = type,
	};
	struct ibv_qp *qp = ibv_create_qp(ends->pd, &wants);
	MUST(qp);
	return qp;
}

UNUSED static void make_ends(struct ends *ends, int depth)
{
	MUST(ends->channel = ibv_create_comp_channel(ends->context));
	MUST(ends->send_cq = ibv_create_cq(ends->context, depth, NULL, ends->channel, 0));
	MUST(ends->recv_cq = ibv_create_cq(ends->context, 64, NULL, NULL, 0));
	ends->here = make_qp(ends, IBV_QPT_RC, ends->send_cq);
	ends->there = make_qp(ends, IBV_QPT_RC, ends->recv_cq);
}

UNUSED static int to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

UNUSED static struct ibv_qp_attr rtr_attributes(struct ibv_qp *qp, uint32_t peer)
{
	union ibv_gid gid;
	struct ibv_port_attr port;
	MUST(!ibv_query_gid(qp->context, 1, 0, &gid));
	MUST(!ibv_query_port(qp->context, 1, &port));
	return (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = port.active_mtu,
		.dest_qp_num = peer,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = MIN_RNR_TIMER,
		.ah_attr = {.is_global = 1, .grh = {.dgid = gid, .hop_limit = 64}, .port_num = 1},
	};
}

#define RTR_MASK                                                                                                       \
	(IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |     \
	 IBV_QP_MIN_RNR_TIMER)

UNUSED static int to_rtr(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr attr = rtr_attributes(qp, peer);
	return ibv_modify_qp(qp, &attr, RTR_MASK);
}

#define RTS_MASK                                                                                                       \
	(IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC)

UNUSED static struct ibv_qp_attr rts_attributes(void)
{
	return (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 4};
}

UNUSED static int to_rts(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = rts_attributes();
	return ibv_modify_qp(qp, &attr, RTS_MASK);
}

/* Waits for a line, once, if it is asked to: the program is looked at meanwhile. */
static void pause_here(void)
{
	char line[8];
	static int has_paused;
	if (has_paused++ || !getenv("PAUSED"))
		return;
	puts("paused");
	fflush(stdout);
	MUST(fgets(line, sizeof(line), stdin));
}

UNUSED static void connect_ends(struct ends *ends)
{
	MUST(!to_init(ends->here) && !to_init(ends->there));
	MUST(!to_rtr(ends->here, ends->there->qp_num) && !to_rtr(ends->there, ends->here->qp_num));
	MUST(!to_rts(ends->here) && !to_rts(ends->there));
	pause_here();
}

UNUSED static struct ibv_send_wr request(struct ends *ends, struct ibv_sge *sge, enum ibv_wr_opcode opcode, int flags)
{
	*sge = (struct ibv_sge){.addr = (uintptr_t)memory, .length = 8, .lkey = ends->mr->lkey};
	return (struct ibv_send_wr){
		.sg_list = sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = flags,
		.wr.rdma = {.remote_addr = (uintptr_t)memory + 64, .rkey = ends->mr->rkey},
	};
}

UNUSED static int post(struct ends *ends, enum ibv_wr_opcode opcode, int flags)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = request(ends, &sge, opcode, flags), *bad;
	return ibv_post_send(ends->here, &wr, &bad);
}

UNUSED static int post_receive(struct ends *ends, struct ibv_qp *qp)
{
	struct ibv_sge sge = {.addr = (uintptr_t)memory + 128, .length = 8, .lkey = ends->mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
	return ibv_post_recv(qp, &wr, &bad);
}

/* Polls one completion, of any status. */
UNUSED static struct ibv_wc poll_one(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int found;
	while ((found = ibv_poll_cq(cq, 1, &wc)) == 0)
		;
	MUST(found == 1);
	return wc;
}

/* Lets what is under way arrive: a poll of an empty queue drives the device, and may yield the processor. */
UNUSED static void drive(struct ibv_cq *empty)
{
	struct ibv_wc wc;
	for (int k = 0; k < 300; k++)
		MUST(ibv_poll_cq(empty, 1, &wc) == 0);
}

UNUSED static void destroy_ends(struct ends *ends)
{
	if (ends->here)
		MUST(!ibv_destroy_qp(ends->here));
	if (ends->there)
		MUST(!ibv_destroy_qp(ends->there));
	if (ends->send_cq)
		MUST(!ibv_destroy_cq(ends->send_cq));
	if (ends->recv_cq)
		MUST(!ibv_destroy_cq(ends->recv_cq));
	if (ends->channel)
		MUST(!ibv_destroy_comp_channel(ends->channel));
}

UNUSED static void close_device(struct ends *ends)
{
	destroy_ends(ends);
	MUST(!ibv_dereg_mr(ends->mr) && !ibv_dealloc_pd(ends->pd) && !ibv_close_device(ends->context));
}
