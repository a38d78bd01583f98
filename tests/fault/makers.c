/* Threads that all make queue pairs at the same time, connect them in pairs, and send:
 *
 *   makers THREADS PAIRS MESSAGES
 *
 * Each thread makes a thread that does the work of its second half, so makers have makers. Thread n sends n messages more
 * than thread 0, so a report shows which one has made a queue pair. */
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static struct ibv_context *context;
static struct ibv_pd *pd;
static union ibv_gid gid;
static pthread_barrier_t begin;
static int pairs, messages;

static void must(int so, const char *what)
{
	if (so)
		return;
	perror(what);
	exit(9);
}

static struct ibv_qp *make(struct ibv_cq *cq)
{
	struct ibv_qp_init_attr wanted = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &wanted);
	must(qp != NULL, "ibv_create_qp");
	return qp;
}

static void connect_to(struct ibv_qp *qp, struct ibv_qp *peer)
{
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qp_num, .rq_psn = 7,
		.min_rnr_timer = 1,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .hop_limit = 8 } },
	};
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS, .sq_psn = 7, .timeout = 8, .retry_cnt = 7, .rnr_retry = 7,
	};
	must(!ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	must(!ibv_modify_qp(qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
	must(!ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

static void converse(int count, long more)
{
	struct ibv_cq *cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	char bytes[64] = "";
	struct ibv_mr *mr = ibv_reg_mr(pd, bytes, sizeof bytes, IBV_ACCESS_LOCAL_WRITE);
	must(cq && mr, "ibv_create_cq");
	for (int pair = 0; pair < count; pair++) {
		struct ibv_qp *from = make(cq), *to = make(cq);
		connect_to(from, to);
		connect_to(to, from);
		for (int i = 0; i < messages + more; i++) {
			struct ibv_sge sge = { (uintptr_t)bytes, 16, mr->lkey };
			struct ibv_recv_wr recv = { .sg_list = &sge, .num_sge = 1 }, *bad_recv;
			struct ibv_send_wr send = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad_send;
			must(!ibv_post_recv(to, &recv, &bad_recv), "ibv_post_recv");
			must(!ibv_post_send(from, &send, &bad_send), "ibv_post_send");
			for (int done = 0; done < 2;) {
				struct ibv_wc wc;
				int found = ibv_poll_cq(cq, 1, &wc);
				must(found >= 0 && (!found || wc.status == IBV_WC_SUCCESS), "ibv_poll_cq");
				done += found;
			}
		}
	}
}

static void *second_half(void *more)
{
	converse(pairs / 2, (long)more);
	return NULL;
}

static void *work(void *more)
{
	pthread_t other;
	pthread_barrier_wait(&begin);
	must(!pthread_create(&other, NULL, second_half, more), "pthread_create");
	converse(pairs - pairs / 2, (long)more);
	must(!pthread_join(other, NULL), "pthread_join");
	return NULL;
}

int main(int count, char **words)
{
	must(count == 4, "makers THREADS PAIRS MESSAGES");
	int threads = atoi(words[1]);
	pairs = atoi(words[2]);
	messages = atoi(words[3]);
	struct ibv_device **devices = ibv_get_device_list(NULL);
	must(devices && devices[0], "ibv_get_device_list");
	context = ibv_open_device(devices[0]);
	must(context != NULL, "ibv_open_device");
	pd = ibv_alloc_pd(context);
	must(pd && !ibv_query_gid(context, 1, 0, &gid), "ibv_query_gid");
	must(!pthread_barrier_init(&begin, NULL, threads), "pthread_barrier_init");
	pthread_t all[16];
	must(threads <= 16, "at most 16 threads");
	for (long i = 0; i < threads; i++)
		must(!pthread_create(&all[i], NULL, work, (void *)i), "pthread_create");
	for (int i = 0; i < threads; i++)
		must(!pthread_join(all[i], NULL), "pthread_join");
	return 0;
}
