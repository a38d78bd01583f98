/* Descriptors that programs poll, waits that signals and cancellations end, and processes that fork. */
#include "expect.h"
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

static struct ibv_qp *own_peer(void)
{
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	struct ibv_qp *qp = ibv_create_qp(pd, &wants);
	CLAIM(qp);
	init(qp);
	connect_to(qp, qp->qp_num);
	return qp;
}

static void send_to_self(struct ibv_qp *qp)
{
	struct ibv_sge sge = piece(0, 10);
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
	post_receive(qp, 4, 100, 10);
	FAILS(ibv_post_send(qp, &wr, &bad), 0);
}

static void completion_events(void)
{
	struct ibv_qp *qp = own_peer();
	struct ibv_cq *fired = NULL;
	void *cookie = NULL;
	/* Blocking. */
	FAILS(ibv_req_notify_cq(cq, 0), 0);
	send_to_self(qp);
	CLAIM(ibv_get_cq_event(channel, &fired, &cookie) == 0 && fired == cq && cookie == &cq);
	CLAIM(completions(1) == 4);
	/* Not blocking, with poll(2): the background thread drives. */
	CLAIM(fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
	CLAIM(ibv_get_cq_event(channel, &fired, &cookie) == -1 && errno == EAGAIN);
	FAILS(ibv_req_notify_cq(cq, 0), 0);
	send_to_self(qp);
	struct pollfd waiting = {.fd = channel->fd, .events = POLLIN};
	CLAIM(poll(&waiting, 1, 60000) == 1 && waiting.revents == POLLIN);
	CLAIM(ibv_get_cq_event(channel, &fired, &cookie) == 0 && fired == cq);
	CLAIM(completions(1) == 4);
	ibv_ack_cq_events(cq, 2);
	CLAIM(fcntl(channel->fd, F_SETFL, 0) == 0);
	FAILS(ibv_destroy_qp(qp), 0);
}

/* A completion that came when the program had found the queue empty, while it looked at another one: it is there, and
 * fires only on a device that compares with what was polled. */
static void arming_late(int fires)
{
	struct ibv_cq *sends = ibv_create_cq(ctx, 8, NULL, NULL, 0), *fired = NULL;
	CLAIM(sends);
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	wants.send_cq = sends;
	wants.sq_sig_all = 1;
	struct ibv_qp *qp = ibv_create_qp(pd, &wants);
	CLAIM(qp);
	init(qp);
	connect_to(qp, qp->qp_num);
	struct ibv_wc wc;
	CLAIM(ibv_poll_cq(cq, 1, &wc) == 0);
	send_to_self(qp);
	time_t end = time(NULL) + 60;
	while (ibv_poll_cq(sends, 1, &wc) == 0)
		CLAIM(time(NULL) <= end);
	FAILS(ibv_req_notify_cq(cq, 0), 0);
	struct pollfd waiting = {.fd = channel->fd, .events = POLLIN};
	CLAIM(poll(&waiting, 1, fires ? 5000 : 50) == fires);
	if (fires) {
		void *cookie;
		CLAIM(ibv_get_cq_event(channel, &fired, &cookie) == 0 && fired == cq);
		ibv_ack_cq_events(cq, 1);
		/* The event has told of it. */
		FAILS(ibv_req_notify_cq(cq, 0), 0);
		CLAIM(poll(&waiting, 1, 0) == 0);
	}
	CLAIM(completions(1) == 4);
	FAILS(ibv_destroy_qp(qp), 0);
	FAILS(ibv_destroy_cq(sends), 0);
}

static void *wait_for_completion(void *unused)
{
	struct ibv_cq *fired;
	void *cookie;
	ibv_get_cq_event(channel, &fired, &cookie);
	return unused;
}

static void *wait_for_async(void *unused)
{
	struct ibv_async_event event;
	ibv_get_async_event(ctx, &event);
	return unused;
}

static void cancellation(void)
{
	void *(*waits[])(void *) = {wait_for_completion, wait_for_async};
	for (int i = 0; i < 2; i++) {
		pthread_t thread;
		void *end = NULL;
		CLAIM(pthread_create(&thread, NULL, waits[i], NULL) == 0);
		usleep(20000);
		CLAIM(pthread_cancel(thread) == 0);
		CLAIM(pthread_join(thread, &end) == 0 && end == PTHREAD_CANCELED);
	}
}

static void nothing(int signal)
{
	(void)signal;
}

static void signals(void)
{
	struct sigaction action = {.sa_handler = nothing};
	struct ibv_async_event event;
	CLAIM(sigaction(SIGALRM, &action, NULL) == 0);
	ualarm(20000, 20000);
	CLAIM(ibv_get_async_event(ctx, &event) == -1 && errno == EINTR);
	ualarm(0, 0);
}

static void other_context_and_fork(void)
{
	/* A second context of the process: its own objects, the same device. */
	struct ibv_context *other = ibv_open_device(ctx->device);
	CLAIM(other && other != ctx && other->async_fd != ctx->async_fd);
	CLAIM(ibv_alloc_pd(other));
	FAILS(ibv_close_device(other), 0);
	/* A child may close what it inherited, without harm to the parent, and opens the device for itself. */
	CLAIM(ibv_fork_init() == 0);
	fflush(NULL);
	pid_t child = fork();
	if (child == 0) {
		struct ibv_device *device = ctx->device;
		if (ibv_close_device(ctx))
			_exit(1);
		struct ibv_context *own = ibv_open_device(device);
		if (!own || !ibv_alloc_pd(own) || ibv_close_device(own))
			_exit(2);
		_exit(0);
	}
	int status = -1;
	CLAIM(waitpid(child, &status, 0) == child);
	CLAIM(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	/* The parent goes on. */
	struct ibv_qp *qp = own_peer();
	send_to_self(qp);
	CLAIM(completions(1) == 4);
	FAILS(ibv_destroy_qp(qp), 0);
}

int main(void)
{
	open_device();
	completion_events();
	const char *profile = getenv("PUMICE_PROFILE");
	arming_late(!profile || strcmp(profile, "rxe"));
	signals();
	cancellation();
	other_context_and_fork();
	/* One queue pair is left for the context to take with it; its event is never got. */
	own_peer();
	FAILS(ibv_close_device(ctx), 0);
	return 0;
}
