/* Threads on shared objects: posting, sleeping on events, modifying, making and destroying, fetching asynchronous events.
 * No event and no completion is lost, and nothing stands still. PUMICE_STRESS_SECONDS makes it longer than two seconds. */
#include "expect.h"
#include <pthread.h>
#include <stdatomic.h>

static struct ibv_qp *one, *other;
static atomic_int stopping, posting = 2;
static atomic_ulong posted, completed, communications, established;

static struct ibv_qp *made(struct ibv_cq *queue)
{
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	wants.send_cq = wants.recv_cq = queue;
	struct ibv_qp *qp = ibv_create_qp(pd, &wants);
	CLAIM(qp);
	init(qp);
	return qp;
}

static void *post_writes(void *argument)
{
	struct ibv_qp *qp = argument;
	struct ibv_sge sge = piece(0, 2000);
	struct ibv_send_wr *bad, wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
	wr.wr.rdma.remote_addr = (uintptr_t)&memory[1000];
	wr.wr.rdma.rkey = mr->rkey;
	while (!stopping) {
		int failure = ibv_post_send(qp, &wr, &bad);
		CLAIM(failure == 0 || failure == ENOMEM);
		posted += failure == 0;
		if (failure)
			usleep(10);
	}
	posting--;
	return NULL;
}

/* Arm, take what is there, sleep: an event that does not come while something is there is lost. */
static void *take_completions(void *unused)
{
	struct pollfd waiting = {.fd = channel->fd, .events = POLLIN};
	struct ibv_wc wc[8];
	while (posting || completed != posted) {
		int count;
		FAILS(ibv_req_notify_cq(cq, 0), 0);
		while ((count = ibv_poll_cq(cq, 8, wc)) > 0) {
			for (int i = 0; i < count; i++)
				CLAIM(wc[i].status == IBV_WC_SUCCESS);
			completed += count;
		}
		CLAIM(count == 0);
		if (poll(&waiting, 1, 500) == 1) {
			struct ibv_cq *from;
			void *cookie;
			CLAIM(ibv_get_cq_event(channel, &from, &cookie) == 0 && from == cq);
			ibv_ack_cq_events(cq, 1);
		} else {
			CLAIM(ibv_poll_cq(cq, 1, wc) == 0);
		}
	}
	return unused;
}

/* COMM_EST of the queue pairs that `churn` makes. */
static void *take_events(void *unused)
{
	struct ibv_async_event event;
	struct pollfd waiting = {.fd = ctx->async_fd, .events = POLLIN};
	while (!stopping || posting) {
		if (poll(&waiting, 1, 50) != 1)
			continue;
		/* It may vanish with its object in between: then the descriptor is quiet again. */
		if (ibv_get_async_event(ctx, &event))
			CLAIM(errno == EAGAIN);
		else {
			communications += event.event_type == IBV_EVENT_COMM_EST;
			ibv_ack_async_event(&event);
		}
	}
	return unused;
}

static void *churn(void *unused)
{
	while (!stopping) {
		struct ibv_cq *queue = ibv_create_cq(ctx, 16, NULL, channel, 0);
		CLAIM(queue);
		struct ibv_qp *a = made(queue), *b = made(queue);
		struct ibv_mr *region = ibv_reg_mr(pd, memory, 4096, RIGHTS);
		struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = a->qp_num, .rq_psn = 100,
					   .max_dest_rd_atomic = 1, .ah_attr = own_address()};
		CLAIM(region);
		/* RTR only: the first message raises COMM_EST. */
		FAILS(ibv_modify_qp(b, &attr,
				    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
		      0);
		connect_to(a, b->qp_num);
		post_receive(b, 1, 0, 64);
		struct ibv_sge sge = piece(0, 8);
		struct ibv_send_wr *bad, wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
		struct ibv_wc wc;
		FAILS(ibv_post_send(a, &wr, &bad), 0);
		time_t end = time(NULL) + 60;
		int count;
		while ((count = ibv_poll_cq(queue, 1, &wc)) == 0)
			CLAIM(time(NULL) <= end);
		CLAIM(count == 1 && wc.status == IBV_WC_SUCCESS);
		established++;
		FAILS(ibv_destroy_qp(b), 0);
		FAILS(ibv_destroy_qp(a), 0);
		FAILS(ibv_destroy_cq(queue), 0);
		FAILS(ibv_dereg_mr(region), 0);
		FAILS(ibv_resize_cq(cq, established % 2 ? 512 : 256), 0);
	}
	return unused;
}

int main(void)
{
	const char *seconds = getenv("PUMICE_STRESS_SECONDS");
	pthread_t threads[5];
	open_device();
	CLAIM(fcntl(ctx->async_fd, F_SETFL, O_NONBLOCK) == 0);
	FAILS(ibv_resize_cq(cq, 256), 0);
	one = made(cq);
	other = made(cq);
	connect_to(one, other->qp_num);
	connect_to(other, one->qp_num);
	CLAIM(pthread_create(&threads[0], NULL, post_writes, one) == 0);
	CLAIM(pthread_create(&threads[1], NULL, post_writes, other) == 0);
	CLAIM(pthread_create(&threads[2], NULL, take_completions, NULL) == 0);
	CLAIM(pthread_create(&threads[3], NULL, take_events, NULL) == 0);
	CLAIM(pthread_create(&threads[4], NULL, churn, NULL) == 0);
	sleep(seconds ? atoi(seconds) : 2);
	stopping = 1;
	for (int i = 0; i < 5; i++)
		CLAIM(pthread_join(threads[i], NULL) == 0);
	CLAIM(completed == posted && completed > 100 && established > 3);
	/* Those that were not fetched in time went with their queue pairs; none came twice. */
	CLAIM(communications <= established);
	FAILS(ibv_destroy_qp(one), 0);
	FAILS(ibv_destroy_qp(other), 0);
	FAILS(ibv_dereg_mr(mr), 0);
	FAILS(ibv_destroy_cq(cq), 0);
	FAILS(ibv_destroy_comp_channel(channel), 0);
	FAILS(ibv_dealloc_pd(pd), 0);
	FAILS(ibv_close_device(ctx), 0);
	printf("%lu completions, %lu queue pairs, %lu events\n", posted, established, communications);
	return 0;
}
