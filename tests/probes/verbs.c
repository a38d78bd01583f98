/* Calls of libibverbs: objects, memory, queue pairs, requests; neighbours, routes, mappings and limits. */
#include "probe.h"
#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

static struct ibv_context *context;
static struct ibv_pd *domain;
static struct ibv_cq *queue;
static struct ibv_mr *region;
static struct ibv_device_attr limits;
static union ibv_gid own_gid;
static int own_index;
static char memory[1 << 16] __attribute__((aligned(4096)));

/* A call that returns 0 or an errno, which need not be in `errno` as well. */
static void returned(const char *name, int result)
{
	if (result > 0)
		say(name, "%s", strerrorname_np(result));
	else
		outcome(name, result);
}
#define RETURNS(name, call) (errno = 0, returned(name, call))

/* A call that makes something, which is given back. */
#define MAKES(name, type, make, end)                                                                         \
	do {                                                                                                 \
		errno = 0;                                                                                   \
		type *made = make;                                                                           \
		outcome(name, made ? 0 : -1);                                                                \
		if (made)                                                                                    \
			MUST(!end(made));                                                                    \
	} while (0)

static union ibv_gid gid_of(const char *address)
{
	union ibv_gid gid = {.raw = {[10] = 0xff, [11] = 0xff}};
	MUST(inet_pton(AF_INET, address, gid.raw + 12) == 1);
	return gid;
}

static void begin(void)
{
	struct ibv_device **all = ibv_get_device_list(NULL);
	MUST(all && all[0] && (context = ibv_open_device(all[0])));
	ibv_free_device_list(all);
	MUST(!ibv_query_device(context, &limits));
	MUST((domain = ibv_alloc_pd(context)) && (queue = ibv_create_cq(context, 64, NULL, NULL, 0)));
	MUST((region = ibv_reg_mr(domain, memory, sizeof memory, RIGHTS)));
	own_gid = gid_of(own);
	union ibv_gid gid;
	for (own_index = 0; !ibv_query_gid(context, 1, own_index, &gid); own_index++)
		if (!memcmp(&gid, &own_gid, sizeof gid))
			return;
	MUST(!"the device has the own address");
}

static void queries(void)
{
	struct ibv_port_attr port;
	union ibv_gid gid;
	__be16 pkey;
	RETURNS("ibv_query_port of port 0", ibv_query_port(context, 0, &port));
	RETURNS("ibv_query_port of port 2", ibv_query_port(context, 2, &port));
	RETURNS("ibv_query_port of port 255", ibv_query_port(context, 255, &port));
	MUST(!ibv_query_port(context, 1, &port));
	say("the port", "state %d, link layer %d, lid %d, lmc %d, sm %d", port.state, port.link_layer, port.lid, port.lmc, port.sm_lid);
	RETURNS("ibv_query_gid behind the table", ibv_query_gid(context, 1, port.gid_tbl_len, &gid));
	RETURNS("ibv_query_gid of port 2", ibv_query_gid(context, 2, 0, &gid));
	RETURNS("ibv_query_pkey", ibv_query_pkey(context, 1, 0, &pkey));
	say("the pkey", "%#x, %d of them", ntohs(pkey), port.pkey_tbl_len);
	RETURNS("ibv_query_pkey behind the table", ibv_query_pkey(context, 1, port.pkey_tbl_len, &pkey));
	RETURNS("ibv_query_pkey of port 2", ibv_query_pkey(context, 2, 0, &pkey));
}

static void completion_queues(void)
{
	struct ibv_comp_channel *on = ibv_create_comp_channel(context);
	MUST(on);
	MAKES("ibv_create_cq of 1", struct ibv_cq, ibv_create_cq(context, 1, NULL, NULL, 0), ibv_destroy_cq);
	MAKES("ibv_create_cq of 0", struct ibv_cq, ibv_create_cq(context, 0, NULL, NULL, 0), ibv_destroy_cq);
	MAKES("ibv_create_cq of -1", struct ibv_cq, ibv_create_cq(context, -1, NULL, NULL, 0), ibv_destroy_cq);
	MAKES("ibv_create_cq of max_cqe + 1", struct ibv_cq, ibv_create_cq(context, limits.max_cqe + 1, NULL, NULL, 0), ibv_destroy_cq);
	MAKES("ibv_create_cq, vector -1", struct ibv_cq, ibv_create_cq(context, 8, NULL, NULL, -1), ibv_destroy_cq);
	MAKES("ibv_create_cq, vector num_comp_vectors", struct ibv_cq, ibv_create_cq(context, 8, NULL, on, context->num_comp_vectors), ibv_destroy_cq);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, on, 0);
	MUST(cq);
	say("ibv_create_cq of 16", "at least as many: %d", cq->cqe >= 16);
	RETURNS("ibv_resize_cq to 32", ibv_resize_cq(cq, 32));
	RETURNS("ibv_resize_cq to 0", ibv_resize_cq(cq, 0));
	RETURNS("ibv_resize_cq to max_cqe + 1", ibv_resize_cq(cq, limits.max_cqe + 1));
	RETURNS("ibv_req_notify_cq", ibv_req_notify_cq(cq, 0));
	RETURNS("ibv_req_notify_cq for solicited ones", ibv_req_notify_cq(cq, 1));
	struct ibv_wc wc;
	RETURNS("ibv_poll_cq of an empty queue", ibv_poll_cq(cq, 1, &wc));
	RETURNS("ibv_poll_cq for 0 completions", ibv_poll_cq(cq, 0, &wc));
	struct ibv_cq *with_event;
	void *its;
	MUST(!fcntl(on->fd, F_SETFL, O_NONBLOCK));
	PROBE("ibv_get_cq_event without an event", ibv_get_cq_event(on, &with_event, &its));
	RETURNS("ibv_destroy_comp_channel with a queue", ibv_destroy_comp_channel(on));
	RETURNS("ibv_destroy_cq", ibv_destroy_cq(cq));
	RETURNS("ibv_destroy_comp_channel", ibv_destroy_comp_channel(on));
	MUST(!fcntl(context->async_fd, F_SETFL, O_NONBLOCK));
	struct ibv_async_event event;
	PROBE("ibv_get_async_event without an event", ibv_get_async_event(context, &event));
}

static void registers(const char *name, void *at, size_t length, int rights)
{
	MAKES(name, struct ibv_mr, ibv_reg_mr(domain, at, length, rights), ibv_dereg_mr);
}

static void mappings(void)
{
	long page = sysconf(_SC_PAGESIZE);
	char *plain = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(plain != MAP_FAILED && !munmap(plain + 3 * page, page));
	registers("ibv_reg_mr of no rights", plain, page, 0);
	registers("ibv_reg_mr of all rights", plain, page, RIGHTS);
	registers("ibv_reg_mr of 1 byte", plain + 5, 1, RIGHTS);
	registers("ibv_reg_mr of 0 bytes", plain, 0, RIGHTS);
	registers("ibv_reg_mr, REMOTE_WRITE alone", plain, page, IBV_ACCESS_REMOTE_WRITE);
	registers("ibv_reg_mr, REMOTE_ATOMIC alone", plain, page, IBV_ACCESS_REMOTE_ATOMIC);
	registers("ibv_reg_mr, REMOTE_READ alone", plain, page, IBV_ACCESS_REMOTE_READ);
	registers("ibv_reg_mr, MW_BIND alone", plain, page, IBV_ACCESS_MW_BIND);
	registers("ibv_reg_mr, RELAXED_ORDERING", plain, page, RIGHTS | IBV_ACCESS_RELAXED_ORDERING);
	registers("ibv_reg_mr, ZERO_BASED", plain, page, RIGHTS | IBV_ACCESS_ZERO_BASED);
	registers("ibv_reg_mr, HUGETLB", plain, page, RIGHTS | IBV_ACCESS_HUGETLB);
	registers("ibv_reg_mr, a right that is none", plain, page, RIGHTS | 1 << 19);
	registers("ibv_reg_mr, an optional right that is none", plain, page, RIGHTS | 1 << 28);
	registers("ibv_reg_mr up to a hole", plain, 3 * page, RIGHTS);
	registers("ibv_reg_mr into a hole", plain, 3 * page + 1, RIGHTS);
	registers("ibv_reg_mr of a hole", plain + 3 * page, page, RIGHTS);
	registers("ibv_reg_mr of nothing mapped, to read", plain + 3 * page, page, 0);
	registers("ibv_reg_mr around the end of addresses", (void *)-page, 2 * page, RIGHTS);
	registers("ibv_reg_mr of the whole address space", NULL, SIZE_MAX, RIGHTS);
	MUST(!mprotect(plain, page, PROT_READ));
	registers("ibv_reg_mr of memory that is read only, to write", plain, page, IBV_ACCESS_LOCAL_WRITE);
	registers("ibv_reg_mr of memory that is read only, to read", plain, page, IBV_ACCESS_REMOTE_READ);
	MUST(!mprotect(plain, page, PROT_NONE));
	registers("ibv_reg_mr of memory without access", plain, page, 0);
	MUST(!mprotect(plain, page, PROT_READ | PROT_WRITE));
	int file = memfd_create("probe", 0);
	MUST(file >= 0 && !ftruncate(file, page));
	char *shared = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	MUST(shared != MAP_FAILED);
	registers("ibv_reg_mr of a memfd", shared, page, RIGHTS);
	registers("ibv_reg_mr behind the end of a memfd", shared + page, page, RIGHTS);
	char *copied = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
	MUST(copied != MAP_FAILED);
	registers("ibv_reg_mr of a private mapping of it", copied, page, RIGHTS);
	munmap(shared, 2 * page), munmap(copied, page), munmap(plain, 3 * page), close(file);
	MAKES("ibv_reg_mr_iova at the same offset", struct ibv_mr, ibv_reg_mr_iova(domain, memory, 4096, 0x7000, RIGHTS), ibv_dereg_mr);
	MAKES("ibv_reg_mr_iova at another offset", struct ibv_mr, ibv_reg_mr_iova(domain, memory, 4096, 0x7008, RIGHTS), ibv_dereg_mr);
	struct ibv_mr *mr = ibv_reg_mr(domain, memory, 4096, RIGHTS);
	MUST(mr);
	RETURNS("ibv_rereg_mr to other rights", ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE));
	RETURNS("ibv_rereg_mr to nothing", ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0));
	RETURNS("ibv_rereg_mr, a flag that is none", ibv_rereg_mr(mr, 1 << 7, NULL, NULL, 0, 0));
	RETURNS("ibv_rereg_mr, REMOTE_WRITE alone", ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE));
	RETURNS("ibv_dereg_mr", ibv_dereg_mr(mr));
}

static void limits_of_memory(void)
{
	struct rlimit before, little = {.rlim_cur = 64 << 10};
	MUST(!getrlimit(RLIMIT_MEMLOCK, &before));
	little.rlim_max = before.rlim_max;
	MUST(!setrlimit(RLIMIT_MEMLOCK, &little));
	/* Whoever may lock memory is not limited. */
	registers("ibv_reg_mr beyond ulimit -l, with privileges", memory, sizeof memory, RIGHTS);
	MUST(!setrlimit(RLIMIT_MEMLOCK, &before));
	struct rlimit files, none = {.rlim_cur = 0};
	MUST(!getrlimit(RLIMIT_NOFILE, &files));
	none.rlim_max = files.rlim_max;
	MUST(!setrlimit(RLIMIT_NOFILE, &none));
	MAKES("ibv_create_comp_channel without descriptors", struct ibv_comp_channel, ibv_create_comp_channel(context), ibv_destroy_comp_channel);
	PROBE_POINTER("rdma_create_event_channel without descriptors", rdma_create_event_channel());
	MUST(!setrlimit(RLIMIT_NOFILE, &files));
}

static struct ibv_qp_init_attr wanted(enum ibv_qp_type type)
{
	return (struct ibv_qp_init_attr){
		.send_cq = queue,
		.recv_cq = queue,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 2, .max_recv_sge = 2, .max_inline_data = 16},
		.qp_type = type,
	};
}

static void makes(const char *name, struct ibv_qp_init_attr with)
{
	MAKES(name, struct ibv_qp, ibv_create_qp(domain, &with), ibv_destroy_qp);
}

static void queue_pairs(void)
{
	struct ibv_qp_init_attr with = wanted(IBV_QPT_RC);
	makes("ibv_create_qp, RC", with);
	makes("ibv_create_qp, UC", wanted(IBV_QPT_UC));
	makes("ibv_create_qp, UD", wanted(IBV_QPT_UD));
	makes("ibv_create_qp, type 0", wanted(0));
	makes("ibv_create_qp, type 99", wanted(99));
	with = wanted(IBV_QPT_RC), with.cap.max_send_wr = limits.max_qp_wr + 1;
	makes("ibv_create_qp, max_send_wr too large", with);
	with = wanted(IBV_QPT_RC), with.cap.max_recv_wr = limits.max_qp_wr + 1;
	makes("ibv_create_qp, max_recv_wr too large", with);
	with = wanted(IBV_QPT_RC), with.cap.max_send_sge = limits.max_sge + 1;
	makes("ibv_create_qp, max_send_sge too large", with);
	with = wanted(IBV_QPT_RC), with.cap.max_recv_sge = limits.max_sge + 1;
	makes("ibv_create_qp, max_recv_sge too large", with);
	with = wanted(IBV_QPT_RC), with.cap.max_inline_data = 1 << 20;
	makes("ibv_create_qp, a MiB of inline data", with);
	with = wanted(IBV_QPT_RC), with.cap.max_send_sge = with.cap.max_recv_sge = 0;
	makes("ibv_create_qp without elements", with);
}

/* A queue pair in a state from RESET to RTS, connected to itself. */
static int to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = RIGHTS, .qkey = 7};
	int third = qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | third);
}

#define TO_RTR                                                                                               \
	(IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define TO_RTS                                                                                               \
	(IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC)

static struct ibv_qp_attr ready_to_receive(struct ibv_qp *qp)
{
	return (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = qp->qp_num,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = own_gid, .sgid_index = own_index, .hop_limit = 64}},
	};
}

static struct ibv_qp_attr ready_to_send(void)
{
	return (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
}

static struct ibv_qp *in_state(enum ibv_qp_type type, enum ibv_qp_state state)
{
	struct ibv_qp_init_attr with = wanted(type);
	struct ibv_qp *qp = ibv_create_qp(domain, &with);
	MUST(qp);
	if (state >= IBV_QPS_INIT)
		MUST(!to_init(qp));
	struct ibv_qp_attr attr = ready_to_receive(qp);
	if (state >= IBV_QPS_RTR)
		MUST(!ibv_modify_qp(qp, &attr, type == IBV_QPT_UD ? IBV_QP_STATE : TO_RTR));
	attr = ready_to_send();
	if (state >= IBV_QPS_RTS)
		MUST(!ibv_modify_qp(qp, &attr, type == IBV_QPT_UD ? IBV_QP_STATE | IBV_QP_SQ_PSN : TO_RTS));
	return qp;
}

static void receives(const char *name, void (*change)(struct ibv_qp_attr *), int mask)
{
	struct ibv_qp *qp = in_state(IBV_QPT_RC, IBV_QPS_INIT);
	struct ibv_qp_attr attr = ready_to_receive(qp);
	if (change)
		change(&attr);
	RETURNS(name, ibv_modify_qp(qp, &attr, mask));
	MUST(!ibv_destroy_qp(qp));
}

static void mtu_0(struct ibv_qp_attr *attr) { attr->path_mtu = 0; }
static void mtu_4096(struct ibv_qp_attr *attr) { attr->path_mtu = IBV_MTU_4096; }
static void mtu_9(struct ibv_qp_attr *attr) { attr->path_mtu = 9; }
static void port_0(struct ibv_qp_attr *attr) { attr->ah_attr.port_num = 0; }
static void port_2(struct ibv_qp_attr *attr) { attr->ah_attr.port_num = 2; }
static void no_grh(struct ibv_qp_attr *attr) { attr->ah_attr.is_global = 0; }
static void gid_99(struct ibv_qp_attr *attr) { attr->ah_attr.grh.sgid_index = 99; }
static void many_reads(struct ibv_qp_attr *attr) { attr->max_dest_rd_atomic = 255; }
static void to_rts(struct ibv_qp_attr *attr) { attr->qp_state = IBV_QPS_RTS; }
static void to_nowhere(struct ibv_qp_attr *attr) { attr->qp_state = 99; }
static void to_dead(struct ibv_qp_attr *attr) { attr->ah_attr.grh.dgid = gid_of(dead); }
static void to_zero(struct ibv_qp_attr *attr) { memset(&attr->ah_attr.grh.dgid, 0, sizeof attr->ah_attr.grh.dgid); }
static void timer_32(struct ibv_qp_attr *attr) { attr->min_rnr_timer = 32; }
static void large_psn(struct ibv_qp_attr *attr) { attr->rq_psn = 0x1000000; }
static void large_number(struct ibv_qp_attr *attr) { attr->dest_qp_num = 0x1000000; }
static void no_hops(struct ibv_qp_attr *attr) { attr->ah_attr.grh.hop_limit = 0; }
static void loopback(struct ibv_qp_attr *attr) { attr->ah_attr.grh.dgid = gid_of("127.0.0.1"); }
static void broadcast(struct ibv_qp_attr *attr) { attr->ah_attr.grh.dgid = gid_of("255.255.255.255"); }
static void group(struct ibv_qp_attr *attr) { attr->ah_attr.grh.dgid = gid_of("224.0.0.77"); }

static void to_receive(void)
{
	static const struct {
		const char *name;
		int bit;
	} parts[] = {{"address", IBV_QP_AV}, {"MTU", IBV_QP_PATH_MTU}, {"destination", IBV_QP_DEST_QPN}, {"PSN", IBV_QP_RQ_PSN},
		     {"depth of READs", IBV_QP_MAX_DEST_RD_ATOMIC}, {"RNR timer", IBV_QP_MIN_RNR_TIMER}};
	for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
		char line[100];
		snprintf(line, sizeof line, "RTR without %s", parts[k].name);
		receives(line, NULL, TO_RTR & ~parts[k].bit);
	}
	receives("RTR", NULL, TO_RTR);
	receives("RTR with a timeout", NULL, TO_RTR | IBV_QP_TIMEOUT);
	receives("RTR with a Q_Key", NULL, TO_RTR | IBV_QP_QKEY);
	receives("RTR, MTU 0", mtu_0, TO_RTR);
	receives("RTR, MTU 9", mtu_9, TO_RTR);
	receives("RTR, MTU 4096", mtu_4096, TO_RTR);
	receives("RTR, port 0 in the address", port_0, TO_RTR);
	receives("RTR, port 2 in the address", port_2, TO_RTR);
	receives("RTR without a GRH", no_grh, TO_RTR);
	receives("RTR, GID 99", gid_99, TO_RTR);
	receives("RTR, 255 READs", many_reads, TO_RTR);
	receives("RTR, RNR timer 32", timer_32, TO_RTR);
	receives("RTR, PSN of 25 bits", large_psn, TO_RTR);
	receives("RTR, destination of 25 bits", large_number, TO_RTR);
	receives("RTR, hop limit 0", no_hops, TO_RTR);
	receives("RTR to no address", to_zero, TO_RTR);
	receives("RTR to a host that is not there", to_dead, TO_RTR);
	receives("RTR to 127.0.0.1", loopback, TO_RTR);
	receives("RTR to all hosts", broadcast, TO_RTR);
	receives("RTR to a group", group, TO_RTR);
	receives("INIT to RTS", to_rts, TO_RTR);
	receives("INIT to state 99", to_nowhere, TO_RTR);
}

/* The calls on a queue pair in each state. */
static void states(void)
{
	struct ibv_qp *qp = in_state(IBV_QPT_RC, IBV_QPS_RESET);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	RETURNS("INIT without a port", ibv_modify_qp(qp, &attr, mask & ~IBV_QP_PORT));
	RETURNS("INIT without rights", ibv_modify_qp(qp, &attr, mask & ~IBV_QP_ACCESS_FLAGS));
	RETURNS("INIT with a Q_Key", ibv_modify_qp(qp, &attr, mask | IBV_QP_QKEY));
	attr.port_num = 2;
	RETURNS("INIT, port 2", ibv_modify_qp(qp, &attr, mask));
	attr.port_num = 1, attr.pkey_index = 99;
	RETURNS("INIT, P_Key 99", ibv_modify_qp(qp, &attr, mask));
	attr.pkey_index = 0, attr.qp_access_flags = 1 << 19;
	RETURNS("INIT, a right that is none", ibv_modify_qp(qp, &attr, mask));
	attr.qp_state = IBV_QPS_RESET;
	RETURNS("RESET to RESET", ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_ERR;
	RETURNS("RESET to ERR", ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	RETURNS("modify nothing", ibv_modify_qp(qp, &attr, 0));
	MUST(!ibv_destroy_qp(qp));
	qp = in_state(IBV_QPT_RC, IBV_QPS_RTR);
	attr = ready_to_send();
	for (int bit = IBV_QP_TIMEOUT; bit <= IBV_QP_SQ_PSN; bit <<= 1) {
		if (!(bit & TO_RTS))
			continue;
		char line[100];
		snprintf(line, sizeof line, "RTS without the attribute %#x", bit);
		RETURNS(line, ibv_modify_qp(qp, &attr, TO_RTS & ~bit));
	}
	attr.timeout = 32;
	RETURNS("RTS, timeout 32", ibv_modify_qp(qp, &attr, TO_RTS));
	MUST(!ibv_destroy_qp(qp));
	static const struct {
		const char *name;
		uint8_t retry_cnt, rnr_retry, max_rd_atomic;
	} values[] = {{"RTS, retry_cnt 8", 8, 7, 1}, {"RTS, rnr_retry 8", 7, 8, 1}, {"RTS, 255 READs", 7, 7, 255}};
	for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
		qp = in_state(IBV_QPT_RC, IBV_QPS_RTR);
		attr = ready_to_send();
		attr.retry_cnt = values[k].retry_cnt, attr.rnr_retry = values[k].rnr_retry, attr.max_rd_atomic = values[k].max_rd_atomic;
		RETURNS(values[k].name, ibv_modify_qp(qp, &attr, TO_RTS));
		MUST(!ibv_destroy_qp(qp));
	}
	qp = in_state(IBV_QPT_RC, IBV_QPS_RTS);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_SQD};
	RETURNS("RTS to SQD", ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_INIT;
	RETURNS("RTS to INIT", ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_ERR;
	RETURNS("RTS to ERR", ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	RETURNS("ERR to RTS", ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RESET;
	RETURNS("ERR to RESET", ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	MUST(!ibv_destroy_qp(qp));
}

static int sends(struct ibv_qp *qp, enum ibv_wr_opcode opcode, int elements, unsigned flags)
{
	struct ibv_sge list[64];
	for (int k = 0; k < 64; k++)
		list[k] = (struct ibv_sge){.addr = (uintptr_t)memory, .length = 8, .lkey = region->lkey};
	struct ibv_send_wr *bad, wr = {.sg_list = list, .num_sge = elements, .opcode = opcode, .send_flags = flags};
	return ibv_post_send(qp, &wr, &bad);
}

static int takes(struct ibv_qp *qp, int elements)
{
	struct ibv_sge list[64] = {{.addr = (uintptr_t)memory, .length = 8, .lkey = region->lkey}};
	struct ibv_recv_wr *bad, wr = {.sg_list = list, .num_sge = elements};
	return ibv_post_recv(qp, &wr, &bad);
}

static void requests(void)
{
	static const char *const names[] = {"RESET", "INIT", "RTR"};
	char line[100];
	for (int state = IBV_QPS_RESET; state <= IBV_QPS_RTR; state++) {
		struct ibv_qp *qp = in_state(IBV_QPT_RC, state);
		snprintf(line, sizeof line, "ibv_post_send in %s", names[state]);
		RETURNS(line, sends(qp, IBV_WR_SEND, 1, 0));
		snprintf(line, sizeof line, "ibv_post_recv in %s", names[state]);
		RETURNS(line, takes(qp, 1));
		MUST(!ibv_destroy_qp(qp));
	}
	struct ibv_qp *qp = in_state(IBV_QPT_RC, IBV_QPS_RTS);
	RETURNS("ibv_post_send of too many elements", sends(qp, IBV_WR_SEND, 40, 0));
	RETURNS("ibv_post_send of too much inline data", sends(qp, IBV_WR_SEND, 64, IBV_SEND_INLINE));
	RETURNS("ibv_post_send of opcode 99", sends(qp, 99, 1, 0));
	RETURNS("ibv_post_recv of too many elements", takes(qp, 40));
	int count = 0;
	while (count < 10000 && !takes(qp, 1))
		count++;
	RETURNS("ibv_post_recv to a full queue", takes(qp, 1));
	MUST(!ibv_destroy_qp(qp));
	qp = in_state(IBV_QPT_UC, IBV_QPS_RESET);
	RETURNS("ibv_post_send on UC in RESET", sends(qp, IBV_WR_RDMA_WRITE, 1, 0));
	MUST(!ibv_destroy_qp(qp));
}

static void shared_queues(void)
{
	struct ibv_srq_init_attr with = {.attr = {.max_wr = 8, .max_sge = 2}};
	struct ibv_srq *srq = ibv_create_srq(domain, &with);
	MUST(srq);
	struct ibv_srq_attr attr = {.srq_limit = 1 << 20};
	RETURNS("ibv_modify_srq, limit above the depth", ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT));
	attr.srq_limit = 1;
	RETURNS("ibv_modify_srq, limit 1", ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT));
	attr.max_wr = limits.max_srq_wr + 1;
	RETURNS("ibv_modify_srq, too deep", ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR));
	RETURNS("ibv_query_srq", ibv_query_srq(srq, &attr));
	say("its limit", "%u", attr.srq_limit);
	struct ibv_qp_init_attr wants = wanted(IBV_QPT_RC);
	wants.srq = srq;
	struct ibv_qp *qp = ibv_create_qp(domain, &wants);
	MUST(qp);
	RETURNS("ibv_post_recv to a queue pair with a shared queue", takes(qp, 1));
	RETURNS("ibv_destroy_srq with a queue pair", ibv_destroy_srq(srq));
	MUST(!ibv_destroy_qp(qp));
	RETURNS("ibv_destroy_srq", ibv_destroy_srq(srq));
	with.attr.max_wr = limits.max_srq_wr + 1;
	MAKES("ibv_create_srq, too deep", struct ibv_srq, ibv_create_srq(domain, &with), ibv_destroy_srq);
	with.attr.max_wr = 0;
	MAKES("ibv_create_srq of 0", struct ibv_srq, ibv_create_srq(domain, &with), ibv_destroy_srq);
	with.attr.max_wr = 8, with.attr.max_sge = limits.max_srq_sge + 1;
	MAKES("ibv_create_srq, too many elements", struct ibv_srq, ibv_create_srq(domain, &with), ibv_destroy_srq);
	with.attr.max_sge = 1, with.attr.srq_limit = 9;
	MAKES("ibv_create_srq with a limit", struct ibv_srq, ibv_create_srq(domain, &with), ibv_destroy_srq);
}

static void handles(const char *name, void (*change)(struct ibv_qp_attr *))
{
	struct ibv_qp_attr attr = {.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = own_gid, .sgid_index = own_index, .hop_limit = 64}}};
	if (change)
		change(&attr);
	MAKES(name, struct ibv_ah, ibv_create_ah(domain, &attr.ah_attr), ibv_destroy_ah);
}

static void addresses_and_groups(void)
{
	handles("ibv_create_ah", NULL);
	handles("ibv_create_ah, port 0", port_0);
	handles("ibv_create_ah, port 2", port_2);
	handles("ibv_create_ah without a GRH", no_grh);
	handles("ibv_create_ah, GID 99", gid_99);
	handles("ibv_create_ah, hop limit 0", no_hops);
	handles("ibv_create_ah to a host that is not there", to_dead);
	handles("ibv_create_ah to no address", to_zero);
	handles("ibv_create_ah to a group", group);
	handles("ibv_create_ah to 127.0.0.1", loopback);
	struct ibv_qp *qp = in_state(IBV_QPT_UD, IBV_QPS_RTS), *connected = in_state(IBV_QPT_RC, IBV_QPS_INIT);
	union ibv_gid of_group = gid_of("224.0.0.77"), of_ip6 = {.raw = {0xff, 0x0e, [15] = 77}}, of_host = gid_of(dead);
	RETURNS("ibv_attach_mcast", ibv_attach_mcast(qp, &of_ip6, 0));
	RETURNS("ibv_attach_mcast again", ibv_attach_mcast(qp, &of_ip6, 0));
	RETURNS("ibv_detach_mcast", ibv_detach_mcast(qp, &of_ip6, 0));
	RETURNS("ibv_attach_mcast of IPv4", ibv_attach_mcast(qp, &of_group, 0));
	RETURNS("ibv_attach_mcast of a host", ibv_attach_mcast(qp, &of_host, 0));
	RETURNS("ibv_attach_mcast of RC", ibv_attach_mcast(connected, &of_ip6, 0));
	RETURNS("ibv_detach_mcast of what is not attached", ibv_detach_mcast(qp, &of_host, 0));
	ibv_detach_mcast(qp, &of_ip6, 0);
	ibv_detach_mcast(qp, &of_group, 0);
	MUST(!ibv_destroy_qp(qp) && !ibv_destroy_qp(connected));
}

static void windows_and_what_is_in_use(void)
{
	MAKES("ibv_alloc_mw, type 1", struct ibv_mw, ibv_alloc_mw(domain, IBV_MW_TYPE_1), ibv_dealloc_mw);
	MAKES("ibv_alloc_mw, type 2", struct ibv_mw, ibv_alloc_mw(domain, IBV_MW_TYPE_2), ibv_dealloc_mw);
	MAKES("ibv_alloc_mw, type 3", struct ibv_mw, ibv_alloc_mw(domain, 3), ibv_dealloc_mw);
	struct ibv_pd *other = ibv_alloc_pd(context);
	struct ibv_mr *mr = ibv_reg_mr(other, memory, 4096, RIGHTS);
	MUST(other && mr);
	RETURNS("ibv_dealloc_pd with a region", ibv_dealloc_pd(other));
	MUST(!ibv_dereg_mr(mr));
	struct ibv_mw *mw = ibv_alloc_mw(other, IBV_MW_TYPE_2);
	MUST(mw);
	RETURNS("ibv_dealloc_pd with a window", ibv_dealloc_pd(other));
	MUST(!ibv_dealloc_mw(mw));
	struct ibv_ah_attr to = {.is_global = 1, .port_num = 1, .grh = {.dgid = own_gid, .sgid_index = own_index, .hop_limit = 64}};
	struct ibv_ah *ah = ibv_create_ah(other, &to);
	MUST(ah);
	RETURNS("ibv_dealloc_pd with an address handle", ibv_dealloc_pd(other));
	MUST(!ibv_destroy_ah(ah));
	RETURNS("ibv_dealloc_pd", ibv_dealloc_pd(other));
	struct ibv_qp *qp = in_state(IBV_QPT_RC, IBV_QPS_RESET);
	RETURNS("ibv_destroy_cq with a queue pair", ibv_destroy_cq(queue));
	MUST(!ibv_destroy_qp(qp));
}

void probe_verbs(void)
{
	begin();
	queries();
	completion_queues();
	mappings();
	limits_of_memory();
	queue_pairs();
	to_receive();
	states();
	requests();
	shared_queues();
	addresses_and_groups();
	windows_and_what_is_in_use();
	MUST(!ibv_dereg_mr(region) && !ibv_destroy_cq(queue) && !ibv_dealloc_pd(domain) && !ibv_close_device(context));
}
