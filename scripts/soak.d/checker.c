/*
 * One side of a pair that exchanges messages until it is told to end, and verifies every one.
 *
 *   checker server|client rc|srq|ud|xrc PORT SEED victim|witness
 *
 * The two sides find each other on a TCP port of 127.0.0.1. Whenever a session ends, because the other side was killed
 * or stood still for too long, they begin another with new queue pairs. A message is a WRITE of random bytes into one
 * of the server's slots and a SEND that says which session, which number, which slot, and the checksum of the bytes;
 * with UD the SEND carries the bytes. Some are followed by an atomic addition, whose result is known beforehand, and by
 * a READ of the slot.
 *
 * SIGTERM ends it. The last line is what was counted. The exit code is 0, or 1 if anything was wrong: a message that
 * was lost (but for UD), came twice, in another order or with other bytes; a completion that no death of the peer
 * explains; and for a witness, whose two processes are never disturbed, the end of a session.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SLOTS 16
#define SLOT_BYTES 8192
#define RECEIVES 64
#define RECEIVE_BYTES 512
#define GRH_BYTES 40
#define QKEY 0x50a4
/* Of a message that must make its way although its peer is on a busy machine. */
#define STILL_SECONDS 60
/* A datagram may wait for as long as a process is stopped that the kernel gave it to: not for longer. */
#define LATE_SECONDS 30
/* Numbers of datagrams that are remembered: more than can be sent while one is late. */
#define REMEMBERED (1u << 26)

enum mode { RC, SRQ, UD, XRC };
enum end { PEER_GONE, TOLD_TO_END, FAILED };

struct header {
	uint64_t session, number, sum;
	uint32_t slot, length;
	double sent_at;
	uint64_t own_sum;
};

/* What each side tells the other before a session. */
struct introduction {
	uint64_t session, address, counter;
	uint32_t qpn, psn, rkey, srqn;
	union ibv_gid gid;
};

static const char *const mode_names[] = {"rc", "srq", "ud", "xrc"};
static enum mode mode;
static int is_server, is_witness, faults;
static char tag[64];
static volatile sig_atomic_t told_to_end;
static uint64_t random_state;
static uint64_t sessions, messages, lost_datagrams, atomics, reads, broken_sessions;

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_xrcd *xrcd;
static struct ibv_mr *mr;
static struct ibv_cq *cq;
static struct ibv_srq *srq;
static struct ibv_qp *qp;
static struct ibv_ah *ah;

/* All memory that the adapter reaches. */
static struct memory {
	/* The server's: written by the client. */
	unsigned char slots[SLOTS][SLOT_BYTES];
	/* The client's: what it writes, and what it reads back. */
	unsigned char sources[SLOTS][SLOT_BYTES];
	unsigned char read_back[SLOT_BYTES];
	unsigned char sends[SLOTS][RECEIVE_BYTES];
	unsigned char receives[RECEIVES][RECEIVE_BYTES];
	uint64_t counter;
	uint64_t results[SLOTS];
} memory __attribute__((aligned(4096)));

static void end_soon(int signal)
{
	(void)signal;
	told_to_end = 1;
}

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static void say(const char *format, ...)
{
	va_list arguments;
	printf("%s ", tag);
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	putchar('\n');
	fflush(stdout);
}

/* Something that must never be. */
#define WRONG(...) (faults++, say("WRONG " __VA_ARGS__))

static void move_to_error(const char *what)
{
	say("WRONG cannot %s: %s", what, strerror(errno));
	exit(1);
}

static uint64_t next_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

static uint64_t checksum(const void *bytes, size_t length)
{
	const unsigned char *at = bytes;
	uint64_t sum = 0x9e3779b97f4a7c15;
	for (size_t i = 0; i < length; i++)
		sum = (sum ^ at[i]) * 0x100000001b3 ^ sum >> 29;
	return sum;
}

/* Sends or receives all of a block over TCP; 0 if the other side has gone or the program is to end. */
static int exchange(int fd, void *block, size_t length, int sends)
{
	unsigned char *at = block;
	while (length > 0 && !told_to_end) {
		struct pollfd ready = {.fd = fd, .events = sends ? POLLOUT : POLLIN};
		if (poll(&ready, 1, 100) <= 0)
			continue;
		ssize_t done = sends ? send(fd, at, length, MSG_NOSIGNAL) : recv(fd, at, length, 0);
		if (done <= 0 && !(done < 0 && errno == EINTR))
			return 0;
		if (done > 0) {
			at += done;
			length -= done;
		}
	}
	return length == 0;
}

static int peer_has_gone(int fd)
{
	char byte;
	ssize_t there = recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
	return there == 0 || (there < 0 && errno != EAGAIN && errno != EINTR);
}

static void post_receive(unsigned index)
{
	struct ibv_sge sge = {(uintptr_t)memory.receives[index], RECEIVE_BYTES, mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = index, .sg_list = &sge, .num_sge = 1}, *bad;
	int refused = srq ? ibv_post_srq_recv(srq, &wr, &bad) : ibv_post_recv(qp, &wr, &bad);
	if (refused)
		WRONG("a receive is refused: %s", strerror(refused));
}

static void make_queues(void)
{
	int shared = is_server && (mode == SRQ || mode == XRC);
	cq = ibv_create_cq(context, 512, NULL, NULL, 0);
	if (!cq)
		move_to_error("create a completion queue");
	if (shared) {
		struct ibv_srq_init_attr_ex attr = {
			.attr = {.max_wr = RECEIVES, .max_sge = 1},
			.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
			.srq_type = IBV_SRQT_BASIC,
			.pd = pd,
		};
		if (mode == XRC) {
			attr.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
			attr.srq_type = IBV_SRQT_XRC;
			attr.xrcd = xrcd;
			attr.cq = cq;
		}
		srq = ibv_create_srq_ex(context, &attr);
		if (!srq)
			move_to_error("create a shared receive queue");
	}
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = mode == UD ? IBV_QPT_UD : IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
		.send_cq = cq,
		.recv_cq = cq,
		.srq = srq,
		.sq_sig_all = 1,
		.cap = {.max_send_wr = 128, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1},
	};
	if (mode == XRC && is_server)
		attr = (struct ibv_qp_init_attr_ex){
			.qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = xrcd};
	else if (mode == XRC)
		attr.qp_type = IBV_QPT_XRC_SEND, attr.recv_cq = NULL, attr.cap.max_recv_wr = 0;
	qp = ibv_create_qp_ex(context, &attr);
	if (!qp)
		move_to_error("create a queue pair");
}

static void destroy_queues(void)
{
	if (ah && ibv_destroy_ah(ah))
		WRONG("an address handle cannot be destroyed");
	if (qp && ibv_destroy_qp(qp))
		WRONG("a queue pair cannot be destroyed");
	if (srq && ibv_destroy_srq(srq))
		WRONG("a shared receive queue cannot be destroyed");
	if (cq && ibv_destroy_cq(cq))
		WRONG("a completion queue cannot be destroyed");
	ah = NULL, qp = NULL, srq = NULL, cq = NULL;
}

static void modify(struct ibv_qp_attr *attr, int mask, const char *what)
{
	errno = ibv_modify_qp(qp, attr, mask);
	if (errno)
		move_to_error(what);
}

static struct ibv_ah_attr way_to(const struct introduction *peer)
{
	return (struct ibv_ah_attr){
		.is_global = 1, .port_num = 1, .grh = {.dgid = peer->gid, .hop_limit = 64}};
}

static void connect_queues(const struct introduction *own, const struct introduction *peer)
{
	int unreliable = mode == UD;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qkey = QKEY,
		.qp_access_flags =
			IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	};
	modify(&attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (unreliable ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS),
	       "go to INIT");
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->qpn,
		.rq_psn = peer->psn,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 5,
		.ah_attr = way_to(peer),
	};
	int connected = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			IBV_QP_MIN_RNR_TIMER;
	modify(&attr, IBV_QP_STATE | (unreliable ? 0 : connected), "go to RTR");
	if (mode == XRC && is_server)
		return;
	/* 67 ms, as most programs have it. */
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
				    .sq_psn = own->psn,
				    .timeout = 14,
				    .retry_cnt = 7,
				    .rnr_retry = 7,
				    .max_rd_atomic = 4};
	int reliable = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	modify(&attr, IBV_QP_STATE | IBV_QP_SQ_PSN | (unreliable ? 0 : reliable), "go to RTS");
}

/* New queues on both sides; 0 if the other side has gone meanwhile. */
static int begin_session(int fd, struct introduction *own, struct introduction *peer)
{
	make_queues();
	*own = (struct introduction){
		.session = next_random(),
		.address = (uintptr_t)memory.slots,
		.counter = (uintptr_t)&memory.counter,
		.qpn = qp->qp_num,
		.psn = next_random() & 0xffffff,
		.rkey = mr->rkey,
	};
	if (srq && mode == XRC && ibv_get_srq_num(srq, &own->srqn))
		move_to_error("ask for the number of a shared receive queue");
	if (ibv_query_gid(context, 1, 0, &own->gid))
		move_to_error("ask for the GID");
	memory.counter = 0;
	if (!exchange(fd, own, sizeof(*own), 1) || !exchange(fd, peer, sizeof(*peer), 0))
		return 0;
	connect_queues(own, peer);
	if (is_server) {
		for (unsigned index = 0; index < RECEIVES; index++)
			post_receive(index);
	} else if (mode == UD) {
		struct ibv_ah_attr attr = way_to(peer);
		ah = ibv_create_ah(pd, &attr);
		if (!ah)
			move_to_error("create an address handle");
	}
	char ready = 'r';
	return exchange(fd, &ready, 1, 1) && exchange(fd, &ready, 1, 0);
}

/* A completion with an error: what the death of a peer, or a long stop, explains ends the session. */
static enum end failed(const struct ibv_wc *wc)
{
	int explained = wc->status == IBV_WC_RETRY_EXC_ERR || wc->status == IBV_WC_WR_FLUSH_ERR;
	if (!explained || is_witness)
		WRONG("completion %s of %lu", ibv_wc_status_str(wc->status), (unsigned long)wc->wr_id);
	return FAILED;
}

/* Whether datagram `number` came before. Those between `next`, which is the number that comes next, and it did not. */
static int came_before(uint64_t number, uint64_t next)
{
	static unsigned char bits[REMEMBERED / 8];
	for (uint64_t newer = next; newer <= number; newer++)
		bits[newer % REMEMBERED / 8] &= ~(1 << newer % 8), lost_datagrams++;
	unsigned char *byte = &bits[number % REMEMBERED / 8], bit = 1 << number % 8;
	int came = *byte & bit;
	*byte |= bit;
	lost_datagrams -= !came;
	return came;
}

/* Checks the message in a receive buffer. `next` is the number that comes next. */
static void check(unsigned index, const struct ibv_wc *wc, uint64_t session, uint64_t *next)
{
	struct header header;
	const unsigned char *at = memory.receives[index] + (mode == UD ? GRH_BYTES : 0);
	memcpy(&header, at, sizeof(header));
	if (checksum(&header, offsetof(struct header, own_sum)) != header.own_sum) {
		WRONG("a header of other bytes than were sent");
		return;
	}
	if (header.session != session) {
		WRONG("a message of another session: number %lu", (unsigned long)header.number);
		return;
	}
	if (mode == UD) {
		double seconds = now() - header.sent_at;
		if (seconds > LATE_SECONDS)
			WRONG("datagram %lu came %.1f s after it was sent", (unsigned long)header.number, seconds);
		else if (came_before(header.number, *next))
			WRONG("datagram %lu came twice; %lu is the next", (unsigned long)header.number,
			      (unsigned long)*next);
		if (header.number >= *next)
			*next = header.number + 1;
	} else if (header.number != (*next)++) {
		WRONG("message %lu instead of %lu", (unsigned long)header.number, (unsigned long)*next - 1);
		*next = header.number + 1;
	}
	const unsigned char *bytes = mode == UD ? at + sizeof(header) : memory.slots[header.slot % SLOTS];
	size_t expected = (mode == UD ? GRH_BYTES + header.length : 0) + sizeof(header);
	if (header.length > SLOT_BYTES || wc->byte_len != expected)
		WRONG("message %lu has %u bytes", (unsigned long)header.number, wc->byte_len);
	else if (checksum(bytes, header.length) != header.sum)
		WRONG("message %lu has other bytes than were sent", (unsigned long)header.number);
	messages++;
}

/* Receives until the peer has gone. Tells it over TCP how many messages have come. */
static enum end serve(int fd, uint64_t session)
{
	uint64_t next = 0, told = 0;
	while (!told_to_end) {
		struct ibv_wc wc[16];
		int count = ibv_poll_cq(cq, 16, wc);
		for (int i = 0; i < count; i++) {
			if (wc[i].status)
				return failed(&wc[i]);
			check(wc[i].wr_id, &wc[i], session, &next);
			post_receive(wc[i].wr_id);
		}
		if (next != told && count < 16) {
			told = next;
			if (!exchange(fd, &told, sizeof(told), 1))
				return told_to_end ? TOLD_TO_END : PEER_GONE;
		} else if (count == 0) {
			if (peer_has_gone(fd))
				return PEER_GONE;
			usleep(200);
		}
	}
	return TOLD_TO_END;
}

static uint32_t fill(unsigned char *bytes, uint32_t length)
{
	for (uint32_t i = 0; i < length; i++)
		bytes[i] = next_random();
	return length;
}

static int outstanding;
static uint64_t additions;

static void post(struct ibv_send_wr *wr, uint64_t id, void *bytes, uint32_t length, const struct introduction *peer)
{
	struct ibv_sge sge = {(uintptr_t)bytes, length, mr->lkey};
	struct ibv_send_wr *bad;
	wr->wr_id = id, wr->sg_list = &sge, wr->num_sge = 1;
	if (mode == XRC)
		wr->qp_type.xrc.remote_srqn = peer->srqn;
	int refused = ibv_post_send(qp, wr, &bad);
	if (refused)
		WRONG("a request is refused: %s", strerror(refused));
	outstanding++;
}

enum request { WRITE_ID = 1, SEND_ID, ADD_ID, READ_ID };

/* Posts message `number` and what follows it. */
static void send_message(uint64_t number, const struct introduction *own, const struct introduction *peer)
{
	uint32_t slot = number % SLOTS;
	unsigned char *send = memory.sends[slot];
	unsigned char *bytes = mode == UD ? send + sizeof(struct header) : memory.sources[slot];
	uint32_t most = mode == UD ? 300 : next_random() % 8 ? 600 : SLOT_BYTES;
	uint32_t length = fill(bytes, 1 + next_random() % most);
	struct header header = {own->session, number, checksum(bytes, length), slot, length, now(), 0};
	header.own_sum = checksum(&header, offsetof(struct header, own_sum));
	memcpy(send, &header, sizeof(header));
	if (mode == UD) {
		struct ibv_send_wr wr = {.opcode = IBV_WR_SEND};
		wr.wr.ud.ah = ah, wr.wr.ud.remote_qpn = peer->qpn, wr.wr.ud.remote_qkey = QKEY;
		post(&wr, SEND_ID, send, sizeof(header) + length, peer);
		return;
	}
	uint64_t target = peer->address + slot * SLOT_BYTES;
	struct ibv_send_wr write = {.opcode = IBV_WR_RDMA_WRITE, .wr.rdma = {target, peer->rkey}};
	post(&write, WRITE_ID, bytes, length, peer);
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND};
	post(&wr, SEND_ID, send, sizeof(header), peer);
	if (number % 8 == 5) {
		struct ibv_send_wr add = {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD};
		add.wr.atomic.remote_addr = peer->counter, add.wr.atomic.rkey = peer->rkey;
		add.wr.atomic.compare_add = 1;
		post(&add, ADD_ID | number << 8, &memory.results[slot], 8, peer);
	}
	/* The slot is not written again before this message was acknowledged. */
	if (number % 16 == 9) {
		struct ibv_send_wr read = {.opcode = IBV_WR_RDMA_READ, .wr.rdma = {target, peer->rkey}};
		post(&read, READ_ID | number << 8, memory.read_back, length, peer);
	}
}

static void completed(const struct ibv_wc *wc)
{
	uint32_t slot = (wc->wr_id >> 8) % SLOTS;
	outstanding--;
	if ((wc->wr_id & 0xff) == ADD_ID) {
		if (memory.results[slot] != additions)
			WRONG("addition %lu found %lu", (unsigned long)additions, (unsigned long)memory.results[slot]);
		additions++, atomics++;
	} else if ((wc->wr_id & 0xff) == READ_ID) {
		struct header header;
		memcpy(&header, memory.sends[slot], sizeof(header));
		if (checksum(memory.read_back, header.length) != header.sum)
			WRONG("what was read back of message %lu is not what was written", (unsigned long)(wc->wr_id >> 8));
		reads++;
	}
}

/* Sends until the peer has gone. */
static enum end ask(int fd, const struct introduction *own, const struct introduction *peer)
{
	uint64_t number = 0, arrived = 0;
	/* A READ's slot stays as it is until its completion. */
	uint64_t finished = 0;
	double progress = now();
	outstanding = 0, additions = 0;
	while (!told_to_end) {
		while (number - arrived < (mode == UD ? 8 : SLOTS) && number - finished < SLOTS && outstanding < 64)
			send_message(number++, own, peer);
		struct ibv_wc wc[16];
		int count = ibv_poll_cq(cq, 16, wc);
		for (int i = 0; i < count; i++) {
			if (wc[i].status)
				return failed(&wc[i]);
			completed(&wc[i]);
		}
		if (outstanding == 0)
			finished = number;
		struct pollfd readable = {.fd = fd, .events = POLLIN};
		int came = poll(&readable, 1, count > 0 ? 0 : 1);
		if (came > 0 && !exchange(fd, &arrived, sizeof(arrived), 0))
			return told_to_end ? TOLD_TO_END : PEER_GONE;
		if (came > 0 || count > 0)
			progress = now();
		/* Datagrams may be lost: after a while, those without a report are taken for lost. */
		if (mode == UD && now() - progress > 0.05)
			arrived = number, progress = now();
		if (is_witness && now() - progress > STILL_SECONDS) {
			WRONG("no progress for %d seconds: %lu sent, %lu arrived, %d outstanding", STILL_SECONDS,
			      (unsigned long)number, (unsigned long)arrived, outstanding);
			return FAILED;
		}
	}
	return TOLD_TO_END;
}

/* The other side's end of a TCP connection, or -1 if the program is to end. */
static int meet(int listener, const struct sockaddr_in *address)
{
	while (!told_to_end) {
		if (is_server) {
			struct pollfd readable = {.fd = listener, .events = POLLIN};
			int fd = poll(&readable, 1, 100) > 0 ? accept(listener, NULL, NULL) : -1;
			if (fd >= 0)
				return fd;
			continue;
		}
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0)
			return fd;
		close(fd);
		usleep(20000);
	}
	return -1;
}

static void open_device(const char *domain)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	context = list && *list ? ibv_open_device(*list) : NULL;
	if (!context)
		move_to_error("open the device");
	pd = ibv_alloc_pd(context);
	mr = ibv_reg_mr(pd, &memory, sizeof(memory),
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	if (!pd || !mr)
		move_to_error("register memory");
	if (mode == XRC && is_server) {
		struct ibv_xrcd_init_attr attr = {.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
						  .fd = open(domain, O_RDWR | O_CREAT, 0600),
						  .oflags = O_CREAT};
		xrcd = ibv_open_xrcd(context, &attr);
		if (!xrcd)
			move_to_error("open an XRC domain");
	}
}

static int open_listener(const struct sockaddr_in *address)
{
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(listener, (const struct sockaddr *)address, sizeof(*address)) || listen(listener, 1))
		move_to_error("listen on the TCP port");
	return listener;
}

int main(int count, char **arguments)
{
	if (count != 7) {
		fprintf(stderr, "usage: checker server|client rc|srq|ud|xrc PORT SEED victim|witness DOMAIN\n");
		return 2;
	}
	is_server = strcmp(arguments[1], "server") == 0;
	for (int i = 0; i < 4; i++)
		if (strcmp(arguments[2], mode_names[i]) == 0)
			mode = i;
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_port = htons(atoi(arguments[3])),
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	random_state = strtoull(arguments[4], NULL, 0) * 0x9e3779b97f4a7c15 | 1;
	is_witness = strcmp(arguments[5], "witness") == 0;
	snprintf(tag, sizeof(tag), "%s %s %s [%d]", arguments[1], arguments[2], arguments[3], getpid());
	struct sigaction action = {.sa_handler = end_soon};
	sigaction(SIGTERM, &action, NULL);
	open_device(arguments[6]);
	int listener = is_server ? open_listener(&address) : -1;
	say("began");
	while (!told_to_end) {
		int fd = meet(listener, &address), on = 1;
		if (fd < 0)
			break;
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		struct introduction own, peer;
		enum end end = PEER_GONE;
		if (begin_session(fd, &own, &peer)) {
			sessions++;
			end = is_server ? serve(fd, peer.session) : ask(fd, &own, &peer);
		}
		broken_sessions += end == FAILED;
		if (is_witness && end != TOLD_TO_END && !told_to_end)
			WRONG("a session of undisturbed processes ended after %lu messages", (unsigned long)messages);
		close(fd);
		destroy_queues();
	}
	say("%s: %lu sessions, %lu failed; %lu messages, %lu atomics, %lu reads, %lu datagrams lost",
	    faults ? "WRONG" : "ended", (unsigned long)sessions, (unsigned long)broken_sessions,
	    (unsigned long)messages, (unsigned long)atomics, (unsigned long)reads, (unsigned long)lost_datagrams);
	return faults ? 1 : 0;
}
