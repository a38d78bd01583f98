/*
 * Memory that the program gives back under traffic: registered, used, deregistered or its queue pair destroyed, and
 * unmapped at once, while peers go on. A thread that touches it then kills the process. GIVEN_BACK_SECONDS says how long; 1.
 */
#include "expect.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define LENGTH (64 << 10)

static time_t seconds;
static unsigned rounds, delivered;

static double now(void)
{
	struct timespec at;
	clock_gettime(CLOCK_MONOTONIC, &at);
	return at.tv_sec + at.tv_nsec / 1e9;
}

static void *mapped(void)
{
	void *place = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CLAIM(place != MAP_FAILED);
	return place;
}

static void nap(long us)
{
	struct timespec time = {.tv_nsec = us * 1000};
	nanosleep(&time, NULL);
}

/* The other process: datagrams without end, to the queue pair that is named through the pipe. */
static void flood(int in)
{
	open_device();
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_UD);
	struct ibv_qp *qp = ibv_create_qp(pd, &wants);
	CLAIM(qp);
	init(qp);
	connect_to(qp, 0);
	struct ibv_ah_attr address = own_address();
	struct ibv_ah *ah = ibv_create_ah(pd, &address);
	CLAIM(ah && fcntl(in, F_SETFL, O_NONBLOCK) == 0);
	uint32_t number = 0;
	for (;;) {
		ssize_t got = read(in, &number, sizeof(number));
		if (got == 0)
			_exit(0);
		if (!number)
			continue;
		struct ibv_sge sge = piece(0, 900);
		struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = number;
		wr.wr.ud.remote_qkey = 7;
		for (int i = 0; i < 8; i++)
			FAILS(ibv_post_send(qp, &wr, &bad), 0);
		for (int i = 0; i < 8; i++)
			CLAIM(completion().status == IBV_WC_SUCCESS);
	}
}

/*
 * Datagrams: the program unmaps first, as UCX does, then destroys and deregisters. The program does not poll: the device's own
 * thread delivers, and finds that the memory is gone.
 */
static void datagrams(int out)
{
	struct ibv_cq *own = ibv_create_cq(ctx, 64, NULL, NULL, 0);
	CLAIM(own);
	for (double end = now() + seconds; now() < end; rounds++) {
		char *place = mapped();
		struct ibv_mr *region = ibv_reg_mr(pd, place, LENGTH, IBV_ACCESS_LOCAL_WRITE);
		struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_UD);
		wants.recv_cq = own;
		struct ibv_qp *qp = ibv_create_qp(pd, &wants);
		CLAIM(region && qp);
		init(qp);
		for (int i = 0; i < 20; i++) {
			struct ibv_sge sge = {.addr = (uintptr_t)place + i * 2048, .length = 2048, .lkey = region->lkey};
			struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1}, *bad;
			FAILS(ibv_post_recv(qp, &wr, &bad), 0);
		}
		connect_to(qp, 0);
		CLAIM(write(out, &qp->qp_num, sizeof(qp->qp_num)) == sizeof(qp->qp_num));
		nap(200 + rounds % 7 * 300);
		struct ibv_wc wc;
		/* Every other time something has been delivered before. */
		if (rounds % 2 && ibv_poll_cq(own, 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS) {
			CLAIM(wc.byte_len == 940);
			delivered++;
		}
		CLAIM(munmap(place, LENGTH) == 0);
		/* Polling another queue is no promise about the memory either. */
		if (rounds % 3)
			nap(100 + rounds % 5 * 200);
		else
			for (int i = 0; i < 20; i++)
				ibv_poll_cq(cq, 1, &wc);
		FAILS(ibv_destroy_qp(qp), 0);
		FAILS(ibv_dereg_mr(region), 0);
	}
	FAILS(ibv_destroy_cq(own), 0);
}

static struct ibv_qp *writer, *target;
static _Atomic uint64_t address, key;
static atomic_bool stop, broken, writing;

/* A thread that writes to the region that exists at the moment. */
static void *writes(void *unused)
{
	while (!stop) {
		if (!key || broken) {
			nap(20);
			continue;
		}
		writing = 1;
		enum ibv_wc_status status = outcome(writer, IBV_WR_RDMA_WRITE, piece(0, 4096), address, key);
		CLAIM(status == IBV_WC_SUCCESS || status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_WR_FLUSH_ERR);
		if (status == IBV_WC_SUCCESS)
			delivered++;
		else
			broken = 1;
		writing = 0;
	}
	return unused;
}

/* RDMA WRITEs: deregistered and unmapped at once. ibv_dereg_mr waits for what is being written. */
static void connection(void)
{
	target = NULL;
	writer = pair(IBV_QPT_RC, &target);
	pthread_t thread;
	CLAIM(pthread_create(&thread, NULL, writes, NULL) == 0);
	for (double end = now() + seconds; now() < end; rounds++) {
		char *place = mapped();
		struct ibv_mr *region = ibv_reg_mr(pd, place, LENGTH, RIGHTS);
		CLAIM(region);
		address = (uintptr_t)place;
		key = region->rkey;
		nap(50 + rounds % 11 * 40);
		FAILS(ibv_dereg_mr(region), 0);
		CLAIM(munmap(place, LENGTH) == 0);
		while (!broken)
			nap(20);
		key = 0;
		while (writing)
			nap(10);
		reconnect(writer, target);
		broken = 0;
	}
	stop = 1;
	CLAIM(pthread_join(thread, NULL) == 0);
	FAILS(ibv_destroy_qp(writer), 0);
	FAILS(ibv_destroy_qp(target), 0);
}

int main(void)
{
	const char *wanted = getenv("GIVEN_BACK_SECONDS");
	seconds = wanted ? atoi(wanted) : 1;
	int ends[2];
	CLAIM(pipe(ends) == 0);
	pid_t child = fork();
	CLAIM(child >= 0);
	if (child == 0) {
		close(ends[1]);
		flood(ends[0]);
	}
	close(ends[0]);
	open_device();
	datagrams(ends[1]);
	close(ends[1]);
	int status;
	CLAIM(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CLAIM(rounds > 10 && delivered > 0);
	unsigned datagram_rounds = rounds;
	rounds = delivered = 0;
	connection();
	CLAIM(rounds > 10 && delivered > 0);
	printf("%u rounds of datagrams, %u of writes\n", datagram_rounds, rounds);
	FAILS(ibv_close_device(ctx), 0);
	return 0;
}
