/* Incast: "incast receive N MTU" on the first host, "incast send K MESSAGES BYTES MTU" for each K below N on another one. Each sender
   writes so many messages to the receiver. All begin at one moment, and print how long after it the last completion is there. Queue
   pairs are exchanged by files in the working directory, which all hosts share. The receiver polls; with "rest" in place of "receive"
   it sleeps, and its device has nothing but the library's thread. */
#include <inttypes.h>
#include <stdbool.h>
#include <time.h>

#include "../check/ends.h"

enum { MEMORY_BYTES = 256 << 10, MOST_MESSAGES = 16, MOST_SENDERS = 64 };

/* What one end tells the other. */
struct address {
	union ibv_gid gid;
	uint64_t memory;
	uint32_t qpn, rkey;
};

static struct ends ends;
static enum ibv_mtu mtu;

static int64_t now_ns(void)
{
	struct timespec now;
	MUST(!clock_gettime(CLOCK_MONOTONIC, &now));
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void sleep_until(int64_t at_ns)
{
	struct timespec at = {.tv_sec = at_ns / 1000000000, .tv_nsec = at_ns % 1000000000};
	MUST(!clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL));
}

/* Writes a file that is there as a whole or not at all. */
static void tell(const char *what, int sender, const void *bytes, size_t length)
{
	char name[32], hidden[40];
	snprintf(name, sizeof(name), "%s-%d", what, sender);
	snprintf(hidden, sizeof(hidden), "%s.part", name);
	FILE *file = fopen(hidden, "w");
	MUST(file && fwrite(bytes, length, 1, file) == 1 && !fclose(file) && !rename(hidden, name));
}

/* Waits for a file. */
static void hear(const char *what, int sender, void *bytes, size_t length)
{
	char name[32];
	FILE *file;
	snprintf(name, sizeof(name), "%s-%d", what, sender);
	while (!(file = fopen(name, "r")))
		usleep(1000);
	MUST(fread(bytes, length, 1, file) == 1 && !fclose(file));
}

/* Waits for a file, and polls meanwhile, as a program does that waits for what is written to it. */
static void poll_until(const char *what, int sender)
{
	char name[32];
	struct ibv_wc wc;
	snprintf(name, sizeof(name), "%s-%d", what, sender);
	for (unsigned looks = 0; looks % 64 || access(name, F_OK); looks++)
		MUST(!ibv_poll_cq(ends.recv_cq, 1, &wc));
}

static struct address address_of(struct ibv_qp *qp, struct ibv_mr *mr)
{
	struct address own = {.memory = (uintptr_t)mr->addr, .qpn = qp->qp_num, .rkey = mr->rkey};
	MUST(!ibv_query_gid(ends.context, 1, 0, &own.gid));
	return own;
}

static void connect_to(struct ibv_qp *qp, const struct address *peer)
{
	MUST(!to_init(qp));
	struct ibv_qp_attr attr = rtr_attributes(qp, peer->qpn);
	attr.path_mtu = mtu;
	attr.ah_attr.grh.dgid = peer->gid;
	MUST(!ibv_modify_qp(qp, &attr, RTR_MASK) && !to_rts(qp));
}

static struct ibv_mr *make_memory(void)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	struct ibv_mr *mr = ibv_reg_mr(ends.pd, calloc(1, MEMORY_BYTES), MEMORY_BYTES, access);
	MUST(mr);
	return mr;
}

static void run_receiver(int senders, bool polls)
{
	struct ibv_mr *mr = make_memory();
	struct ibv_qp *qps[MOST_SENDERS];
	struct address peer;
	MUST(senders <= MOST_SENDERS);
	for (int k = 0; k < senders; k++) {
		qps[k] = make_qp(&ends, IBV_QPT_RC, ends.recv_cq);
		struct address own = address_of(qps[k], mr);
		tell("receiver", k, &own, sizeof(own));
	}
	for (int k = 0; k < senders; k++) {
		hear("sender", k, &peer, sizeof(peer));
		connect_to(qps[k], &peer);
	}
	int64_t start_ns = (now_ns() / 1000000 + 100) * 1000000;
	for (int k = 0; k < senders; k++)
		tell("start", k, &start_ns, sizeof(start_ns));
	char done;
	for (int k = 0; k < senders; k++) {
		if (polls)
			poll_until("done", k);
		else
			hear("done", k, &done, sizeof(done));
	}
}

static void run_sender(int number, int messages, uint32_t bytes)
{
	struct ibv_mr *mr = make_memory();
	struct ibv_qp *qp = make_qp(&ends, IBV_QPT_RC, ends.send_cq);
	struct address own = address_of(qp, mr), peer;
	struct ibv_send_wr requests[MOST_MESSAGES] = {0}, *bad;
	struct ibv_sge sge = {.addr = own.memory, .length = bytes, .lkey = mr->lkey};
	int64_t start_ns;
	MUST(0 < messages && messages <= MOST_MESSAGES && bytes <= MEMORY_BYTES);
	tell("sender", number, &own, sizeof(own));
	hear("receiver", number, &peer, sizeof(peer));
	connect_to(qp, &peer);
	for (int k = 0; k < messages; k++) {
		requests[k] = (struct ibv_send_wr){
			.next = k + 1 < messages ? &requests[k + 1] : NULL,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = {.remote_addr = peer.memory, .rkey = peer.rkey},
		};
	}
	hear("start", number, &start_ns, sizeof(start_ns));
	sleep_until(start_ns);
	MUST(!ibv_post_send(qp, requests, &bad));
	for (int k = 0; k < messages; k++)
		MUST(poll_one(ends.send_cq).status == IBV_WC_SUCCESS);
	printf("%d: %" PRId64 " ns\n", number, now_ns() - start_ns);
	tell("done", number, "", 1);
}

int main(int count, char **words)
{
	open_device(&ends);
	MUST(ends.send_cq = ibv_create_cq(ends.context, 64, NULL, NULL, 0));
	MUST(ends.recv_cq = ibv_create_cq(ends.context, 64, NULL, NULL, 0));
	mtu = atoi(words[count - 1]) == 4096 ? IBV_MTU_4096 : IBV_MTU_1024;
	if (count == 4 && (!strcmp(words[1], "receive") || !strcmp(words[1], "rest")))
		run_receiver(atoi(words[2]), !strcmp(words[1], "receive"));
	else if (count == 6 && !strcmp(words[1], "send"))
		run_sender(atoi(words[2]), atoi(words[3]), (uint32_t)atoi(words[4]));
	else
		return 2;
	return 0;
}
