/* Two writers send one message each to a keeper, which takes the first one for that of writer 0: that is the mistake.
 *
 *   turns told     writer 1 is told to send first, and writer 0 when that has arrived: the mistake shows, and the exit code is 1
 *   turns free     both are told at once, writer 0 a little earlier
 *   turns one      only writer 0 is told
 *
 * Processes are connected by pairs of sockets that are there before they are, so nothing but the messages has an order. */
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define WRITERS 2

struct end {
	uint32_t qpn;
	union ibv_gid gid;
};

struct side {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	union ibv_gid gid;
	char bytes[256];
};

static void must(int so, const char *what)
{
	if (so)
		return;
	perror(what);
	exit(9);
}

static void tell(int to, const void *what, size_t bytes)
{
	must(write(to, what, bytes) == (ssize_t)bytes, "write");
}

static void hear(int from, void *what, size_t bytes)
{
	must(recv(from, what, bytes, MSG_WAITALL) == (ssize_t)bytes, "recv");
}

static void begin(struct side *side)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	must(devices && devices[0], "ibv_get_device_list");
	side->context = ibv_open_device(devices[0]);
	must(side->context != NULL, "ibv_open_device");
	ibv_free_device_list(devices);
	side->pd = ibv_alloc_pd(side->context);
	side->cq = ibv_create_cq(side->context, 16, NULL, NULL, 0);
	must(side->pd && side->cq, "ibv_create_cq");
	side->mr = ibv_reg_mr(side->pd, side->bytes, sizeof side->bytes, IBV_ACCESS_LOCAL_WRITE);
	must(side->mr && !ibv_query_gid(side->context, 1, 0, &side->gid), "ibv_reg_mr");
}

static struct ibv_qp *queue_pair(struct side *side)
{
	struct ibv_qp_init_attr wanted = {.send_cq = side->cq, .recv_cq = side->cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_qp *qp = ibv_create_qp(side->pd, &wanted);
	must(qp != NULL, "ibv_create_qp");
	return qp;
}

static void connect_to(struct side *side, struct ibv_qp *qp, int peer)
{
	struct end own = {qp->qp_num, side->gid}, other;
	tell(peer, &own, sizeof own);
	hear(peer, &other, sizeof other);
	struct ibv_qp_attr to = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	must(!ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	to = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = other.qpn, .max_dest_rd_atomic = 1,
		.min_rnr_timer = 12, .ah_attr = {.is_global = 1, .grh = {.dgid = other.gid, .hop_limit = 64}, .port_num = 1}};
	must(!ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
	to = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
	must(!ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
	/* Both can receive before one of them sends. */
	tell(peer, "c", 1);
	hear(peer, &own, 1);
}

static uint64_t completed(struct side *side)
{
	struct ibv_wc wc;
	int found;
	while ((found = ibv_poll_cq(side->cq, 1, &wc)) == 0)
		;
	must(found == 1 && wc.status == IBV_WC_SUCCESS, "ibv_poll_cq");
	return wc.wr_id;
}

static int writer(int keeper, int number)
{
	struct side side = {0};
	char go;
	begin(&side);
	struct ibv_qp *qp = queue_pair(&side);
	connect_to(&side, qp, keeper);
	side.bytes[0] = (char)number;
	hear(keeper, &go, 1);
	if (go == 'g') {
		struct ibv_sge sge = {(uintptr_t)side.bytes, 1, side.mr->lkey};
		struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
		must(!ibv_post_send(qp, &wr, &bad), "ibv_post_send");
		completed(&side);
	}
	hear(keeper, &go, 1);
	return 0;
}

int main(int count, char **words)
{
	const char *mode = count > 1 ? words[1] : "free";
	int told = !strcmp(mode, "told"), one = !strcmp(mode, "one"), to[WRITERS], failed = 0, status;
	for (int number = 0; number < WRITERS; number++) {
		int pair[2];
		must(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair), "socketpair");
		pid_t child = fork();
		must(child >= 0, "fork");
		if (!child) {
			setenv("PUMICE_TAG", number ? "writer1" : "writer0", 1);
			exit(writer(pair[1], number));
		}
		to[number] = pair[0];
	}
	struct side side = {0};
	struct ibv_qp *qps[WRITERS];
	begin(&side);
	for (int number = 0; number < WRITERS; number++) {
		qps[number] = queue_pair(&side);
		connect_to(&side, qps[number], to[number]);
		struct ibv_sge sge = {(uintptr_t)side.bytes + number, 1, side.mr->lkey};
		struct ibv_recv_wr wr = {.wr_id = (uint64_t)number, .sg_list = &sge, .num_sge = 1}, *bad;
		must(!ibv_post_recv(qps[number], &wr, &bad), "ibv_post_recv");
	}
	if (!told)
		tell(to[0], "g", 1);
	tell(to[1], one ? "n" : "g", 1);
	uint64_t first = completed(&side);
	if (told)
		tell(to[0], "g", 1);
	if (!one)
		completed(&side);
	for (int number = 0; number < WRITERS; number++)
		tell(to[number], "e", 1);
	while (wait(&status) > 0)
		failed |= status;
	must(!failed, "a writer");
	printf("the first message is that of writer %d\n", (int)first);
	return first != 0;
}
