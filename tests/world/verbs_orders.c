/*
 * verbs_orders count | signal | datagrams | create | event: mistakes that only some orders show, on a device that talks to itself.
 *
 *   count      counts a request after it was posted, so that its completion may come before
 *   signal     looks at what another thread did without the lock of the condition that it then waits for
 *   datagrams  takes datagrams in the order in which they come for the order in which they were sent
 *   create     two threads look whether there is a domain, and make one
 *   event      notes that a queue pair is to end after it has ended it, so that its event may come before
 *
 * With FIXED each of them is right.
 */
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { QKEY = 0x77, BYTES = 1 << 16, HALF = BYTES / 2, DATAGRAMS = 8, ROOM = 256, GRH = 40 };

#define MUST(condition) do { if (!(condition)) { perror(#condition); exit(9); } } while (0)

static struct ibv_context *context;
static struct ibv_pd *domain;
static struct ibv_mr *region;
static char *memory;
static union ibv_gid gid;

static void open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	MUST(list && list[0] && (context = ibv_open_device(list[0])));
	MUST((domain = ibv_alloc_pd(context)));
	MUST((memory = calloc(1, BYTES)));
	MUST((region = ibv_reg_mr(domain, memory, BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)));
	MUST(!ibv_query_gid(context, 1, 0, &gid));
}

static struct ibv_cq *new_queue(void)
{
	struct ibv_cq *queue = ibv_create_cq(context, 64, NULL, NULL, 0);

	MUST(queue);
	return queue;
}

static struct ibv_qp *new_pair(struct ibv_cq *queue, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr attributes = {.send_cq = queue, .recv_cq = queue, .qp_type = type,
		.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_qp *pair = ibv_create_qp(domain, &attributes);

	MUST(pair);
	return pair;
}

static void connect_to(struct ibv_qp *pair, struct ibv_qp *peer)
{
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
	struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qp_num,
		.min_rnr_timer = 1, .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .hop_limit = 4}}};
	struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7};

	MUST(!ibv_modify_qp(pair, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	MUST(!ibv_modify_qp(pair, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	MUST(!ibv_modify_qp(pair, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

/* A pair of queue pairs; the first one writes. */
static struct ibv_qp *connected(struct ibv_cq *queue)
{
	struct ibv_qp *sender = new_pair(queue, IBV_QPT_RC), *receiver = new_pair(queue, IBV_QPT_RC);

	connect_to(receiver, sender);
	connect_to(sender, receiver);
	return sender;
}

static void post_write(struct ibv_qp *pair, uint64_t id)
{
	struct ibv_sge part = {(uintptr_t)memory, 8, region->lkey};
	struct ibv_send_wr request = {.wr_id = id, .sg_list = &part, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED, .wr.rdma = {(uintptr_t)memory + HALF, region->rkey}}, *bad;

	MUST(!ibv_post_send(pair, &request, &bad));
}

static struct ibv_cq *queue;
static atomic_int requests, done, is_early, is_over;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void wait_for_completion(void)
{
	struct ibv_wc completion;
	int count;

	while (!(count = ibv_poll_cq(queue, 1, &completion)) && !is_over)
		usleep(50);
	MUST(is_over || (count == 1 && completion.status == IBV_WC_SUCCESS));
}

static void *count_completions(void *argument)
{
	for (;;) {
		wait_for_completion();
		if (is_over)
			return argument;
		if (atomic_fetch_sub(&requests, 1) <= 0)
			is_early = 1;
	}
}

static int check_counts(void)
{
	struct ibv_qp *pair = connected(queue = new_queue());
	pthread_t thread;

	MUST(!pthread_create(&thread, NULL, count_completions, NULL));
	for (int i = 0; i < 8; i++) {
#ifdef FIXED
		requests++;
		post_write(pair, i);
#else
		post_write(pair, i);
		requests++;
#endif
		usleep(400);
	}
	usleep(20000);
	is_over = 1;
	pthread_join(thread, NULL);
	if (is_early)
		puts("a completion came before its request was counted");
	return is_early;
}

static void *signal_completion(void *argument)
{
	wait_for_completion();
	pthread_mutex_lock(&lock);
	done++;
	pthread_cond_signal(&changed);
	pthread_mutex_unlock(&lock);
	return argument;
}

static int check_signal(void)
{
	struct ibv_qp *pair = connected(queue = new_queue());
	pthread_t thread;

	MUST(!pthread_create(&thread, NULL, signal_completion, NULL));
	post_write(pair, 0);
#ifdef FIXED
	pthread_mutex_lock(&lock);
	while (!done)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
#else
	if (!done) {
		pthread_mutex_lock(&lock);
		pthread_cond_wait(&changed, &lock);
		pthread_mutex_unlock(&lock);
	}
#endif
	pthread_join(thread, NULL);
	return 0;
}

static void make_ready(struct ibv_qp *pair)
{
	struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};

	MUST(!ibv_modify_qp(pair, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	attributes.qp_state = IBV_QPS_RTR;
	MUST(!ibv_modify_qp(pair, &attributes, IBV_QP_STATE));
	attributes.qp_state = IBV_QPS_RTS;
	MUST(!ibv_modify_qp(pair, &attributes, IBV_QP_STATE | IBV_QP_SQ_PSN));
}

static int check_datagrams(void)
{
	struct ibv_cq *sent = new_queue(), *received = new_queue();
	struct ibv_qp *from = new_pair(sent, IBV_QPT_UD), *to = new_pair(received, IBV_QPT_UD);
	struct ibv_ah_attr address = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .hop_limit = 4}};
	struct ibv_ah *handle = ibv_create_ah(domain, &address);
	int wrong = 0;

	MUST(handle);
	make_ready(from);
	make_ready(to);
	for (int i = 0; i < DATAGRAMS; i++) {
		struct ibv_sge part = {(uintptr_t)memory + HALF + i * ROOM, ROOM, region->lkey};
		struct ibv_recv_wr request = {.wr_id = i, .sg_list = &part, .num_sge = 1}, *bad;

		MUST(!ibv_post_recv(to, &request, &bad));
	}
	for (int i = 0; i < DATAGRAMS; i++) {
		struct ibv_sge part = {(uintptr_t)memory + i * sizeof(i), sizeof(i), region->lkey};
		struct ibv_send_wr request = {.sg_list = &part, .num_sge = 1, .opcode = IBV_WR_SEND,
			.wr.ud = {handle, to->qp_num, QKEY}}, *bad;

		memcpy(memory + i * sizeof(i), &i, sizeof(i));
		MUST(!ibv_post_send(from, &request, &bad));
	}
	for (int came = 0; came < DATAGRAMS; came++) {
		struct ibv_wc completion;
		int number;

		while (!ibv_poll_cq(received, 1, &completion))
			usleep(50);
		MUST(completion.status == IBV_WC_SUCCESS);
		memcpy(&number, memory + HALF + completion.wr_id * ROOM + GRH, sizeof(number));
#ifndef FIXED
		wrong |= number != came;
#else
		wrong |= number < 0 || number >= DATAGRAMS;
#endif
	}
	if (wrong)
		puts("the datagrams came in another order");
	return wrong;
}

static struct ibv_pd *shared_domain;
static atomic_int domains_made;

static void *use_shared_domain(void *argument)
{
#ifdef FIXED
	pthread_mutex_lock(&lock);
#endif
	if (!shared_domain) {
		MUST((shared_domain = ibv_alloc_pd(context)));
		domains_made++;
	}
#ifdef FIXED
	pthread_mutex_unlock(&lock);
#endif
	return argument;
}

static int check_creation(void)
{
	pthread_t threads[2];

	for (int i = 0; i < 2; i++)
		MUST(!pthread_create(&threads[i], NULL, use_shared_domain, NULL));
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	if (domains_made != 1)
		puts("two domains were made");
	return domains_made != 1;
}

static atomic_int is_ending;

static void *take_event(void *argument)
{
	struct ibv_async_event event;

	MUST(!ibv_get_async_event(context, &event));
	MUST(event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED);
	is_early = !is_ending;
	ibv_ack_async_event(&event);
	return argument;
}

static int check_event(void)
{
	struct ibv_srq_init_attr shared = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_qp_init_attr attributes = {.qp_type = IBV_QPT_RC, .cap = {.max_send_wr = 1, .max_send_sge = 1}};
	struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
	struct ibv_qp *pair;
	pthread_t thread;

	attributes.send_cq = attributes.recv_cq = new_queue();
	MUST((attributes.srq = ibv_create_srq(domain, &shared)));
	MUST((pair = ibv_create_qp(domain, &attributes)));
	connect_to(pair, pair);
	MUST(!pthread_create(&thread, NULL, take_event, NULL));
#ifdef FIXED
	is_ending = 1;
#endif
	MUST(!ibv_modify_qp(pair, &error, IBV_QP_STATE));
	is_ending = 1;
	pthread_join(thread, NULL);
	if (is_early)
		puts("an event came before the program noted its cause");
	return is_early;
}

int main(int count, char **arguments)
{
	const char *mistake = count > 1 ? arguments[1] : "";

	open_device();
	if (!strcmp(mistake, "count"))
		return check_counts();
	if (!strcmp(mistake, "create"))
		return check_creation();
	if (!strcmp(mistake, "event"))
		return check_event();
	return strcmp(mistake, "signal") ? check_datagrams() : check_signal();
}
