/* What programs of the field did before they logged a failure. The arguments are words of a row of tests/field/logs.txt: a situation, and
 * what it needs. Each failure is printed as one line of codes. */
#include <sys/mman.h>
#include <sys/resource.h>

#include "expect.h"

/* The work requests of the side that receives have ordinals from here on. */
#define RECEIVES 1000
#define GUARD 64

static int argc;
static char **argv;

static const char *word(int index)
{
	CLAIM(index < argc);
	return argv[index];
}

static unsigned number(int index)
{
	return strtoul(word(index), NULL, 10);
}

static int has(const char *option)
{
	for (int index = 2; index < argc; index++)
		if (!strcmp(argv[index], option))
			return 1;
	return 0;
}

/* A call that failed, with the errno that it returned or set. */
static void call(const char *name, int number)
{
	if (number)
		printf("%s errno=%d\n", name, number);
}

/* The log is of one side: that of the sender, or (as-receiver) that of the receiver. */
static void print(const struct ibv_wc *wc)
{
	int is_receive = wc->wr_id >= RECEIVES;
	if (wc->status && is_receive == has("as-receiver"))
		printf("%s status=%d opcode=%d len=%u vendor=%u\n", is_receive ? "receive" : "send", wc->status, wc->opcode, wc->byte_len,
		       wc->vendor_err);
}

static enum ibv_wr_opcode opcode_of(const char *name)
{
	if (!strcmp(name, "send"))
		return IBV_WR_SEND;
	if (!strcmp(name, "write"))
		return IBV_WR_RDMA_WRITE;
	if (!strcmp(name, "read"))
		return IBV_WR_RDMA_READ;
	if (!strcmp(name, "fetch-add"))
		return IBV_WR_ATOMIC_FETCH_AND_ADD;
	CLAIM(!strcmp(name, "compare-swap"));
	return IBV_WR_ATOMIC_CMP_AND_SWP;
}

static struct ibv_send_wr request(unsigned ordinal, enum ibv_wr_opcode opcode, struct ibv_sge *sge)
{
	uint32_t rkey = mr->rkey + (has("wrong-rkey") ? 0x5a00 : 0);
	struct ibv_send_wr wr = {.wr_id = ordinal, .sg_list = sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED};
	if (has("inline"))
		wr.send_flags |= IBV_SEND_INLINE;
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = (uintptr_t)memory + sizeof(memory) / 2;
		wr.wr.atomic.rkey = rkey;
	} else if (opcode != IBV_WR_SEND) {
		wr.wr.rdma.remote_addr = (uintptr_t)memory + sizeof(memory) / 2;
		wr.wr.rdma.rkey = rkey;
	}
	return wr;
}

/* Before anything is posted: the other side ends (gone), or this one went to its error state (in-error). */
static void disturb(struct ibv_qp *one, struct ibv_qp *other)
{
	struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
	if (has("gone"))
		FAILS(ibv_destroy_qp(other), 0);
	if (has("in-error"))
		FAILS(ibv_modify_qp(one, &error, IBV_QP_STATE), 0);
}

/* requests OPCODE LENGTH COUNT: posts so many at once, and prints which ones failed. */
static void requests(void)
{
	enum ibv_wr_opcode opcode = opcode_of(word(2));
	unsigned length = number(3), count = number(4), receives = opcode == IBV_WR_SEND ? count : 0;
	CLAIM(length <= sizeof(memory) / 2 && count <= 16);
	open_device();
	struct ibv_qp *other, *one = pair(IBV_QPT_RC, &other);
	for (unsigned n = 0; n < receives; n++) {
		struct ibv_sge sge = piece(sizeof(memory) / 2, has("short-receive") ? length / 2 : length);
		sge.lkey += has("wrong-lkey-of-receive") ? 0x5a00 : 0;
		struct ibv_recv_wr wr = {.wr_id = RECEIVES + n, .sg_list = &sge, .num_sge = 1}, *bad;
		FAILS(ibv_post_recv(other, &wr, &bad), 0);
	}
	struct ibv_sge sge = piece(0, length);
	sge.lkey += has("wrong-lkey") ? 0x5a00 : 0;
	disturb(one, other);
	for (unsigned n = 0; n < count; n++) {
		struct ibv_send_wr wr = request(n, opcode, &sge);
		post(one, &wr);
	}
	/* A receive request has a completion where it is used, and waits for ever where the message did not come. */
	unsigned used = has("short-receive") || has("wrong-lkey-of-receive");
	for (unsigned sent = 0, received = 0; sent < count || received < used;) {
		struct ibv_wc wc = completion();
		*(wc.wr_id >= RECEIVES ? &received : &sent) += 1;
		print(&wc);
	}
}

/* overrun OPCODE LENGTH COUNT: more requests than the queue has places, of which the program polls no completions. */
static void overrun(void)
{
	enum ibv_wr_opcode opcode = opcode_of(word(2));
	unsigned count = number(4);
	open_device();
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	wants.cap.max_send_wr = count;
	struct ibv_qp *one = ibv_create_qp(pd, &wants), *other = ibv_create_qp(pd, &wants);
	CLAIM(one && other);
	init(one);
	init(other);
	connect_to(one, other->qp_num);
	connect_to(other, one->qp_num);
	struct ibv_sge sge[GUARD] = {piece(0, number(3))};
	int failed = 0;
	for (unsigned n = 0; n < 10000 && !failed; n++) {
		struct ibv_send_wr wr = request(n, opcode, sge), *bad;
		if (has("too-many-sges"))
			wr.num_sge = GUARD;
		failed = ibv_post_send(one, &wr, &bad);
	}
	call("ibv_post_send", failed);
}

/* connect: a queue pair to RTR, as far as the calls succeed; to another host of the network with (elsewhere). */
static void connect_pair(void)
{
	open_device();
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	struct ibv_qp *qp = ibv_create_qp(pd, &wants);
	if (!qp) {
		call("ibv_create_qp", errno);
		return;
	}
	init(qp);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
				   .path_mtu = IBV_MTU_1024,
				   .dest_qp_num = qp->qp_num,
				   .max_dest_rd_atomic = 1,
				   .min_rnr_timer = 12,
				   .ah_attr = own_address()};
	if (has("elsewhere"))
		attr.ah_attr.grh.dgid.raw[15] ^= 0x40;
	call("ibv_modify_qp", ibv_modify_qp(qp, &attr,
					     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
						     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
}

/* register BYTES: memory that is there, or of which (not-there) nothing is mapped. */
static void register_memory(void)
{
	size_t bytes = strtoull(word(2), NULL, 10);
	open_device();
	struct rlimit limit = {8192 << 10, 8192 << 10};
	CLAIM(!has("ulimit") || !setrlimit(RLIMIT_MEMLOCK, &limit));
	void *range = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CLAIM(range != MAP_FAILED);
	CLAIM(!has("not-there") || !munmap(range, bytes));
	if (has("iova")) {
		if (!ibv_reg_mr_iova(pd, range, bytes, (uintptr_t)range, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING))
			call("ibv_reg_mr_iova2", errno);
	} else if (!ibv_reg_mr(pd, range, bytes, RIGHTS)) {
		call("ibv_reg_mr", errno);
	}
}

/* queues ENTRIES: a second completion queue, and (and-pair) a queue pair. */
static void completion_queue(void)
{
	open_device();
	if (!ibv_create_cq(ctx, number(2), NULL, NULL, 0))
		call("ibv_create_cq", errno);
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	if (has("and-pair") && !ibv_create_qp(pd, &wants))
		call("ibv_create_qp", errno);
}

int main(int count, char **words)
{
	static const struct {
		const char *name;
		void (*program)(void);
	} situations[] = {
		{"requests", requests}, {"overrun", overrun},	      {"connect", connect_pair},
		{"register", register_memory}, {"queues", completion_queue},
	};
	argc = count;
	argv = words;
	for (unsigned i = 0; i < sizeof(situations) / sizeof(situations[0]); i++)
		if (!strcmp(word(1), situations[i].name)) {
			situations[i].program();
			return 0;
		}
	CLAIM(!"no such situation");
}
