/* Programs that sleep on their completion channels wake up as soon as a message comes: in poll(2), in level- and edge-triggered
 * epoll, with one channel and with many, in one thread and in several. Each message is a WRITE with immediate data from another
 * process, which sleeps on a channel of its own; between two messages there is a pause, so that the background threads sleep too.
 *
 * How late a wake-up is says nothing on a machine that has no processor to give. So the time for which the kernel reports that a
 * thread of the receiver was runnable and did not run (schedstat) is not counted, and a datagram of UDP, sent before each message
 * to a thread that sleeps in the same way, tells what remains on this machine: a message may take a millisecond more.
 *
 * The host of a virtual machine may take a processor away, and the kernel does not notice. Such a pause is in no schedstat.
 * Datagrams of UDP meet it too: 2 to 4 ms, about once in each second of waiting for them. So RARE of 100 messages may take longer
 * than the millisecond. None may take as long as a transport timer: a message that only a timer delivers is a lost wake-up.
 *
 * WAKEUPS_ROUNDS: messages for each way of sleeping (100). Under PUMICE_LOSS a message may also take the time that it takes to
 * send it again: the line of the table is printed, and only what is later than that fails. */
#include "expect.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define THREADS 4
#define PER_THREAD 4
#define PAIRS (THREADS * PER_THREAD)
#define MAX_ROUNDS 20000
#define TIMER_NS (4096ll << 14) /* The transport timer of these queue pairs. */
#define SENT_AGAIN_NS (4 * TIMER_NS) /* A message that is lost three times in a row. */
#define RARE 3 /* Of 100 messages: those that a pause of the whole machine may make late. */
/* So many polls that the background thread takes the program for one that never sleeps, if they take no longer than its look at
 * them does. Where other programs want the processor, each poll yields to them: 700 polls would take seconds and show nothing. */
#define SPINS 700
#define SPIN_NS 10000000

enum way { POLL, LEVEL, EDGE, SPINNING, WAYS };
static const char *const names[WAYS] = {"poll", "epoll, level", "epoll, edge", "after polling"};

/* What both processes see. */
struct both {
	_Atomic long long sent_ns, raw_sent_ns;
	_Atomic long long late_ns, raw_late_ns;
	atomic_int handled, raw_handled, stop;
	struct {
		uint32_t qpn;
		uint32_t rkey;
		uint64_t address;
	} receiver[PAIRS];
	uint32_t sender[PAIRS];
	struct sockaddr_in raw;
};
static struct both *both;
static int lossy;

static long long now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

/* How long the threads of a process have been runnable without running, so far. */
static long long starved_ns(pid_t process)
{
	char name[300];
	long long all = 0;
	snprintf(name, sizeof(name), "/proc/%d/task", process);
	DIR *folder = opendir(name);
	CLAIM(folder);
	for (struct dirent *task; (task = readdir(folder));) {
		long long ran, waited;
		snprintf(name, sizeof(name), "/proc/%d/task/%s/schedstat", process, task->d_name);
		FILE *file = task->d_name[0] == '.' ? NULL : fopen(name, "r");
		if (file && fscanf(file, "%lld %lld", &ran, &waited) == 2)
			all += waited;
		if (file)
			fclose(file);
	}
	closedir(folder);
	return all;
}

struct sleeper {
	enum way way;
	struct ibv_comp_channel *channel[PER_THREAD];
	struct ibv_cq *cq[PER_THREAD];
	struct ibv_qp *qp[PER_THREAD];
	int epoll;
	int first;
};

static void take(struct sleeper *of, int i)
{
	struct ibv_cq *from;
	void *cookie;
	struct ibv_wc wc;
	int count;
	if (ibv_get_cq_event(of->channel[i], &from, &cookie)) {
		CLAIM(errno == EAGAIN);
		return;
	}
	CLAIM(from == of->cq[i]);
	ibv_ack_cq_events(from, 1);
	FAILS(ibv_req_notify_cq(from, 0), 0);
	while ((count = ibv_poll_cq(from, 1, &wc)) > 0) {
		CLAIM(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM);
		both->late_ns = now_ns() - both->sent_ns;
		post_receive(of->qp[i], 0, 0, 8);
		both->handled++;
	}
	CLAIM(count == 0);
	long long end_ns = now_ns() + SPIN_NS;
	for (int n = 0; of->way == SPINNING && n < SPINS && now_ns() < end_ns; n++)
		CLAIM(ibv_poll_cq(from, 1, &wc) == 0);
}

static void *sleeps(void *argument)
{
	struct sleeper *self = argument;
	struct pollfd fds[PER_THREAD];
	struct epoll_event events[PER_THREAD];
	for (int i = 0; i < PER_THREAD; i++)
		fds[i] = (struct pollfd){.fd = self->channel[i]->fd, .events = POLLIN};
	while (!both->stop) {
		if (self->way == POLL) {
			CLAIM(poll(fds, PER_THREAD, 100) >= 0);
			for (int i = 0; i < PER_THREAD; i++)
				if (fds[i].revents)
					take(self, i);
		} else {
			int count = epoll_wait(self->epoll, events, PER_THREAD, 100);
			CLAIM(count >= 0);
			while (count-- > 0)
				take(self, events[count].data.u32);
		}
	}
	return NULL;
}

/* A thread that sleeps for datagrams of UDP. */
static void *sleeps_for_datagrams(void *argument)
{
	int fd = *(int *)argument;
	struct pollfd wait = {.fd = fd, .events = POLLIN};
	while (!both->stop) {
		char byte;
		if (poll(&wait, 1, 100) == 1 && recv(fd, &byte, 1, MSG_DONTWAIT) == 1) {
			both->raw_late_ns = now_ns() - both->raw_sent_ns;
			both->raw_handled++;
		}
	}
	return NULL;
}

static void make(struct sleeper *of, enum way way, int first)
{
	*of = (struct sleeper){.way = way, .first = first, .epoll = epoll_create1(EPOLL_CLOEXEC)};
	for (int i = 0; i < PER_THREAD; i++) {
		CLAIM((of->channel[i] = ibv_create_comp_channel(ctx)));
		CLAIM(fcntl(of->channel[i]->fd, F_SETFL, O_NONBLOCK) == 0);
		CLAIM((of->cq[i] = ibv_create_cq(ctx, 64, NULL, of->channel[i], 0)));
		struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
		wants.send_cq = wants.recv_cq = of->cq[i];
		CLAIM((of->qp[i] = ibv_create_qp(pd, &wants)));
		init(of->qp[i]);
		struct epoll_event event = {.events = EPOLLIN | (way == EDGE ? EPOLLET : 0), .data.u32 = i};
		CLAIM(epoll_ctl(of->epoll, EPOLL_CTL_ADD, of->channel[i]->fd, &event) == 0);
		FAILS(ibv_req_notify_cq(of->cq[i], 0), 0);
	}
}

static void receiver(enum way way, int says, int hears)
{
	static struct sleeper sleepers[THREADS];
	pthread_t threads[THREADS], raw_thread;
	char byte = 0;
	int raw = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	socklen_t length = sizeof(both->raw);
	both->raw = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	CLAIM(bind(raw, (struct sockaddr *)&both->raw, sizeof(both->raw)) == 0);
	CLAIM(getsockname(raw, (struct sockaddr *)&both->raw, &length) == 0);
	open_device();
	for (int t = 0; t < THREADS; t++) {
		make(&sleepers[t], way, t * PER_THREAD);
		for (int i = 0; i < PER_THREAD; i++) {
			both->receiver[t * PER_THREAD + i].qpn = sleepers[t].qp[i]->qp_num;
			both->receiver[t * PER_THREAD + i].rkey = mr->rkey;
			both->receiver[t * PER_THREAD + i].address = (uintptr_t)memory;
		}
	}
	CLAIM(write(says, &byte, 1) == 1 && read(hears, &byte, 1) == 1);
	for (int t = 0; t < THREADS; t++)
		for (int i = 0; i < PER_THREAD; i++) {
			connect_to(sleepers[t].qp[i], both->sender[t * PER_THREAD + i]);
			for (int n = 0; n < 16; n++)
				post_receive(sleepers[t].qp[i], 0, 0, 8);
		}
	for (int t = 0; t < THREADS; t++)
		CLAIM(pthread_create(&threads[t], NULL, sleeps, &sleepers[t]) == 0);
	CLAIM(pthread_create(&raw_thread, NULL, sleeps_for_datagrams, &raw) == 0);
	CLAIM(write(says, &byte, 1) == 1 && read(hears, &byte, 1) == 1);
	for (int t = 0; t < THREADS; t++)
		pthread_join(threads[t], NULL);
	pthread_join(raw_thread, NULL);
	exit(0);
}

/* The sender's own completion, for which it sleeps as well. */
static void sent(struct sleeper *by, int i)
{
	struct pollfd wait = {.fd = by->channel[i]->fd, .events = POLLIN};
	struct ibv_cq *from;
	void *cookie;
	struct ibv_wc wc;
	for (;;) {
		if (ibv_poll_cq(by->cq[i], 1, &wc) == 1)
			break;
		CLAIM(poll(&wait, 1, 60000) == 1);
		CLAIM(ibv_get_cq_event(by->channel[i], &from, &cookie) == 0 && from == by->cq[i]);
		ibv_ack_cq_events(from, 1);
		FAILS(ibv_req_notify_cq(from, 0), 0);
	}
	if (wc.status)
		fprintf(stderr, "sending: %s\n", ibv_wc_status_str(wc.status));
	CLAIM(wc.status == IBV_WC_SUCCESS);
}

static void pause_between(unsigned *random)
{
	*random = *random * 1103515245 + 12345;
	struct timespec t = {.tv_nsec = (*random >> 8) % 3000000};
	nanosleep(&t, NULL);
}

static void until(atomic_int *count, int wanted)
{
	long long end_ns = now_ns() + 60000000000ll;
	while (*count < wanted) {
		struct timespec t = {.tv_nsec = 20000};
		nanosleep(&t, NULL);
		CLAIM(now_ns() < end_ns);
	}
}

static int compare(const void *a, const void *b)
{
	long long x = *(const long long *)a, y = *(const long long *)b;
	return (x > y) - (x < y);
}

static void one_way(enum way way, int rounds)
{
	static struct sleeper senders[THREADS];
	static long long late[MAX_ROUNDS], run[MAX_ROUNDS], raw[MAX_ROUNDS];
	int there[2], back[2], status;
	unsigned random = way + 1;
	long long starved_before_ns;
	char byte = 0;
	memset(both, 0, sizeof(*both));
	CLAIM(pipe(there) == 0 && pipe(back) == 0);
	pid_t child = fork();
	if (child == 0) {
		close(there[1]);
		close(back[0]);
		receiver(way, back[1], there[0]);
	}
	close(there[0]);
	close(back[1]);
	open_device();
	for (int t = 0; t < THREADS; t++) {
		make(&senders[t], way, t * PER_THREAD);
		for (int i = 0; i < PER_THREAD; i++)
			both->sender[t * PER_THREAD + i] = senders[t].qp[i]->qp_num;
	}
	CLAIM(read(back[0], &byte, 1) == 1);
	for (int t = 0; t < THREADS; t++)
		for (int i = 0; i < PER_THREAD; i++)
			connect_to(senders[t].qp[i], both->receiver[t * PER_THREAD + i].qpn);
	CLAIM(write(there[1], &byte, 1) == 1 && read(back[0], &byte, 1) == 1);
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	for (int round = 0; round < rounds; round++) {
		pause_between(&random);
		starved_before_ns = starved_ns(child) + starved_ns(getpid());
		both->raw_sent_ns = now_ns();
		CLAIM(sendto(fd, "", 1, 0, (struct sockaddr *)&both->raw, sizeof(both->raw)) == 1);
		until(&both->raw_handled, round + 1);
		raw[round] = both->raw_late_ns - (starved_ns(child) + starved_ns(getpid()) - starved_before_ns);
		pause_between(&random);
		unsigned pair = (random >> 4) % PAIRS;
		struct sleeper *by = &senders[pair / PER_THREAD];
		struct ibv_sge sge = piece(0, 8);
		struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .send_flags = IBV_SEND_SIGNALED};
		wr.wr.rdma.remote_addr = both->receiver[pair].address;
		wr.wr.rdma.rkey = both->receiver[pair].rkey;
		starved_before_ns = starved_ns(child) + starved_ns(getpid());
		both->sent_ns = now_ns();
		post(by->qp[pair % PER_THREAD], &wr);
		sent(by, pair % PER_THREAD);
		until(&both->handled, round + 1);
		late[round] = both->late_ns;
		run[round] = late[round] - (starved_ns(child) + starved_ns(getpid()) - starved_before_ns);
	}
	both->stop = 1;
	CLAIM(write(there[1], &byte, 1) == 1);
	CLAIM(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	close(fd);
	qsort(late, rounds, sizeof(*late), compare);
	qsort(run, rounds, sizeof(*run), compare);
	qsort(raw, rounds, sizeof(*raw), compare);
	printf("%-13s %6d messages, us: median %6lld, worst %8lld; without waiting for a processor: 99 %% %6lld, worst %8lld; UDP: worst %6lld\n",
	       names[way], rounds, late[rounds / 2] / 1000, late[rounds - 1] / 1000, run[rounds * 99 / 100] / 1000, run[rounds - 1] / 1000,
	       raw[rounds - 1] / 1000);
	fflush(stdout);
	long long most_ns = (raw[rounds - 1] > 0 ? raw[rounds - 1] : 0) + 1000000 + (lossy ? SENT_AGAIN_NS : 0);
	CLAIM(run[rounds - 1 - rounds * RARE / 100] <= most_ns);
	CLAIM(run[rounds - 1] < TIMER_NS + (lossy ? SENT_AGAIN_NS : 0));
}

int main(void)
{
	const char *wanted = getenv("WAKEUPS_ROUNDS"), *loss = getenv("PUMICE_LOSS");
	int rounds = wanted ? atoi(wanted) : 100;
	CLAIM(rounds > 0 && rounds <= MAX_ROUNDS);
	lossy = loss && strcmp(loss, "0");
	both = mmap(NULL, sizeof(*both), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CLAIM(both != MAP_FAILED);
	/* Each way in a process of its own: the sender opens its device after the fork. */
	for (int way = 0; way < WAYS; way++) {
		int status;
		pid_t child = fork();
		if (child == 0) {
			one_way(way, rounds);
			exit(0);
		}
		CLAIM(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	return 0;
}
