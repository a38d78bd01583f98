/* Messages that take their time for one cause: causes STYLE [TIME IN MS]. Two queue pairs of one process, each
 * with completion queues of its own, are connected to each other. What a fault plan does needs the style "single",
 * "reads" or "burst"; the others make their cause themselves, for the time. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(condition)                                                                                                \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, strerror(errno));           \
			exit(99);                                                                                      \
		}                                                                                                      \
	} while (0)

enum { BYTES = 1 << 20, LONG = 1 << 19, SHORT = 700 };

struct end {
	struct ibv_comp_channel *channel;
	struct ibv_cq *sends, *receives;
	struct ibv_qp *qp;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static union ibv_gid gid;
static char *memory;
static struct end here, there;
static const char *style;
static int milliseconds;

static int is(const char *name)
{
	return strcmp(style, name) == 0;
}

static void rest(int ms)
{
	usleep((useconds_t)ms * 1000);
}

static void make(struct end *end, int depth)
{
	MUST(end->channel = ibv_create_comp_channel(context));
	MUST(end->sends = ibv_create_cq(context, 256, NULL, end->channel, 0));
	MUST(end->receives = ibv_create_cq(context, 256, NULL, NULL, 0));
	struct ibv_qp_init_attr wants = {
		.send_cq = end->sends,
		.recv_cq = end->receives,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = depth, .max_recv_wr = 128, .max_send_sge = 1, .max_recv_sge = 1},
	};
	MUST(end->qp = ibv_create_qp(pd, &wants));
}

static void join(struct end *end, struct end *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
	};
	MUST(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->qp->qp_num,
		.rq_psn = 5,
		.max_dest_rd_atomic = 16,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .hop_limit = 16}},
	};
	MUST(!ibv_modify_qp(end->qp, &attr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.sq_psn = 5,
		/* 67 ms. */
		.timeout = 14,
		.retry_cnt = is("gone") ? 1 : 7,
		.rnr_retry = 7,
		.max_rd_atomic = is("depth") ? 1 : 16,
	};
	MUST(!ibv_modify_qp(end->qp, &attr,
			    IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				    IBV_QP_MAX_QP_RD_ATOMIC));
}

static int post(enum ibv_wr_opcode opcode, uint32_t length, int signaled)
{
	static uint64_t next;
	struct ibv_sge sge = {(uintptr_t)memory, length, mr->lkey};
	struct ibv_send_wr *bad, request = {
		.wr_id = next,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = signaled ? IBV_SEND_SIGNALED : 0,
		.wr.rdma = {(uintptr_t)memory + BYTES / 2, mr->rkey},
	};
	int refused = ibv_post_send(here.qp, &request, &bad);
	next += !refused;
	return refused;
}

static void receive(void)
{
	struct ibv_sge sge = {(uintptr_t)memory, SHORT, mr->lkey};
	struct ibv_recv_wr *bad, request = {.sg_list = &sge, .num_sge = 1};
	MUST(!ibv_post_recv(there.qp, &request, &bad));
}

/* Polls until a completion is there; its status. */
static enum ibv_wc_status done(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	while (ibv_poll_cq(cq, 1, &wc) == 0)
		usleep(20);
	return wc.status;
}

static void drain(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	while (ibv_poll_cq(cq, 1, &wc) > 0)
		;
}

/* One after the other, with a receive request each. */
static int singles(int count, enum ibv_wr_opcode opcode)
{
	for (int i = 0; i < count; i++) {
		if (is("stopped-idle") && i == count / 2) {
			rest(100);
			raise(SIGSTOP);
		}
		receive();
		MUST(!post(opcode, SHORT, 1));
		if (is("lazy") && i == count / 2)
			rest(milliseconds);
		if (is("stopped") && i == count / 2) {
			/* Another process lets this one go on. */
			raise(SIGSTOP);
		}
		if (done(here.sends) != IBV_WC_SUCCESS)
			return 1;
		drain(there.receives);
	}
	return 0;
}

static int bursts(int count, int group, enum ibv_wr_opcode opcode, uint32_t length, int thin)
{
	for (int i = 0; i < count; i += group) {
		for (int j = 0; j < group; j++) {
			MUST(!post(opcode, length, !thin || j == group - 1));
			if (thin)
				rest(milliseconds / group);
		}
		for (int j = 0; j < (thin ? 1 : group); j++)
			if (done(here.sends) != IBV_WC_SUCCESS)
				return 1;
	}
	return 0;
}

/* Sleeps on the channel for each completion. */
static int channels(int count)
{
	for (int i = 0; i < count; i++) {
		struct ibv_cq *cq;
		void *cookie;
		MUST(!ibv_req_notify_cq(here.sends, 0));
		MUST(!post(IBV_WR_RDMA_WRITE, SHORT, 1));
		MUST(!ibv_get_cq_event(here.channel, &cq, &cookie));
		ibv_ack_cq_events(cq, 1);
		if (done(here.sends) != IBV_WC_SUCCESS)
			return 1;
	}
	return 0;
}

/* The peer has one receive request, and posts the next one late: it polls at once, or late as well. */
static void *late_peer(void *unused)
{
	(void)unused;
	if (is("late-peer"))
		done(there.receives);
	rest(milliseconds);
	if (is("lazy-peer"))
		done(there.receives);
	receive();
	done(there.receives);
	return NULL;
}

static int late(void)
{
	pthread_t thread;
	receive();
	MUST(!pthread_create(&thread, NULL, late_peer, NULL));
	int failed = 0;
	for (int i = 0; i < 2; i++) {
		MUST(!post(IBV_WR_SEND, SHORT, 1));
		failed |= done(here.sends) != IBV_WC_SUCCESS;
	}
	MUST(!pthread_join(thread, NULL));
	return failed;
}

/* Posts again and again, also while the queue is full: nothing is polled meanwhile. */
static int full(void)
{
	int posted = 0;
	while (post(IBV_WR_RDMA_WRITE, SHORT, 1) == 0)
		posted++;
	for (int i = 0; i < milliseconds; i++) {
		MUST(post(IBV_WR_RDMA_WRITE, SHORT, 1) == ENOMEM);
		rest(1);
	}
	for (; posted > 0; posted--)
		if (done(here.sends) != IBV_WC_SUCCESS)
			return 1;
	return 0;
}

static int gone(void)
{
	MUST(!ibv_destroy_qp(there.qp));
	there.qp = NULL;
	MUST(!post(IBV_WR_RDMA_WRITE, SHORT, 1));
	return done(here.sends) == IBV_WC_SUCCESS;
}

static int idle(void)
{
	int failed = singles(2, IBV_WR_RDMA_WRITE);
	rest(milliseconds);
	return failed | singles(2, IBV_WR_RDMA_WRITE);
}

static int hang(void)
{
	for (int i = 0; i < 4; i++)
		MUST(!post(IBV_WR_RDMA_WRITE, SHORT, 0));
	drain(here.sends);
	for (;;)
		pause();
}

static int run(void)
{
	if (is("burst"))
		return bursts(48, 24, IBV_WR_RDMA_WRITE, SHORT, 0);
	if (is("thin"))
		return bursts(48, 24, IBV_WR_RDMA_WRITE, SHORT, 1);
	if (is("depth"))
		return bursts(24, 24, IBV_WR_RDMA_READ, LONG, 0);
	if (is("window"))
		return bursts(16, 16, IBV_WR_RDMA_WRITE, LONG, 0);
	if (is("reads"))
		return singles(24, IBV_WR_RDMA_READ);
	if (is("channel"))
		return channels(24);
	if (is("late-peer") || is("lazy-peer"))
		return late();
	if (is("full"))
		return full();
	if (is("gone"))
		return gone();
	if (is("idle"))
		return idle();
	if (is("hang"))
		return hang();
	return singles(24, IBV_WR_RDMA_WRITE_WITH_IMM);
}

int main(int argc, char **argv)
{
	style = argc > 1 ? argv[1] : "single";
	milliseconds = argc > 2 ? atoi(argv[2]) : 0;
	if (!strncmp(style, "stopped", 7) && fork() == 0) {
		/* Waits until its parent has stopped, and some time longer. */
		pid_t parent = getppid();
		char path[64], line[256];
		snprintf(path, sizeof(path), "/proc/%d/stat", parent);
		for (;;) {
			FILE *file = fopen(path, "r");
			if (!file || !fgets(line, sizeof(line), file))
				_exit(0);
			fclose(file);
			if (strstr(line, ") T "))
				break;
			usleep(200);
		}
		rest(milliseconds);
		kill(parent, SIGCONT);
		_exit(0);
	}
	struct ibv_device **list = ibv_get_device_list(NULL);
	MUST(list && list[0]);
	MUST(context = ibv_open_device(list[0]));
	ibv_free_device_list(list);
	MUST(pd = ibv_alloc_pd(context));
	MUST(!ibv_query_gid(context, 1, 0, &gid));
	MUST(memory = calloc(1, BYTES));
	MUST(mr = ibv_reg_mr(pd, memory, BYTES,
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
				     IBV_ACCESS_REMOTE_ATOMIC));
	make(&here, is("full") ? 8 : 128);
	make(&there, 16);
	join(&here, &there);
	join(&there, &here);
	return run();
}
