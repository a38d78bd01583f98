/* What a child does with objects that it inherited: nothing, in each call and by each kind of fork, while its parent
 * has traffic. It may open the device anew. Without an argument every call, else one way of making children. */
#define _GNU_SOURCE
#include "expect.h"
#include <netinet/in.h>
#include <pthread.h>
#include <pumice/mrc_ctl.h>
#include <pumice/ofed_xrc.h>
#include <rdma/rdma_verbs.h>
#include <rdma/rsocket.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

extern char **environ;

/* Newer than the headers of many systems. */
int export_dm(struct ibv_dm *) __asm__("ibv_dm_export_dmabuf_fd");
void *alloc_dmah(struct ibv_context *, void *) __asm__("ibv_alloc_dmah");
int dealloc_dmah(void *) __asm__("ibv_dealloc_dmah");
/* Those of completion counters, which have two or three numbers as attributes. */
int counter_caps(struct ibv_context *, void *, size_t) __asm__("_ibv_query_comp_cntr_caps");
void *create_counter(struct ibv_context *, void *) __asm__("ibv_create_comp_cntr");
int destroy_counter(void *) __asm__("ibv_destroy_comp_cntr");
int set_counter(void *, uint64_t) __asm__("ibv_set_comp_cntr");
int set_errors(void *, uint64_t) __asm__("ibv_set_err_comp_cntr");
int increase_counter(void *, uint64_t) __asm__("ibv_inc_comp_cntr");
int increase_errors(void *, uint64_t) __asm__("ibv_inc_err_comp_cntr");
int read_counter(void *, uint64_t *) __asm__("ibv_read_comp_cntr");
int read_errors(void *, uint64_t *) __asm__("ibv_read_err_comp_cntr");
int attach_counter(struct ibv_qp *, void *, void *) __asm__("ibv_qp_attach_comp_cntr");
static uint32_t of_counter[4];
static void *counter;
/* `struct ibv_dmah_init_attr`: a processing hint alone. */
static struct {
	uint32_t comp_mask, cpu_id;
	uint8_t ph, tph_mem_type;
} hint = {.comp_mask = 2, .ph = 3};
static void *dma_handle;

enum { UNDER_WAY = 6, BYTES = 1024 };

static struct ibv_qp *one, *two, *on_srq, *ex_qp, *datagrams;
static struct ibv_qp_ex *ex;
static struct ibv_cq_ex *lazy;
static struct ibv_cq *spare_cq;
static struct ibv_comp_channel *spare_channel;
static struct ibv_srq *srq, *xrc_srq;
static struct ibv_mw *window;
static struct ibv_ah *ah;
static struct ibv_dm *dm;
static struct ibv_td *td;
static struct ibv_pd *parent_domain;
static struct ibv_xrcd *xrcd;
static struct ibv_pd *spare_pd;
static struct ibv_mr *spare_mr;
static struct mrc_context *mrc;
static struct mrc_comp_channel *mrc_channel;
static struct mrc_cq *mrc_queue;
static struct mrc_qp_hint *mrc_hint;
static struct mrc_qp *mrc_qp;
static struct rdma_event_channel *events;
static struct rdma_cm_id *id, *listener;
static struct rdma_cm_event *event;
static int sock, waits;
static struct sockaddr_in at = {.sin_family = AF_INET};

static void make_objects(void)
{
	open_device();
	memcpy(&at.sin_addr, own_gid.raw + 12, 4);
	one = pair(IBV_QPT_RC, &two);
	CLAIM((spare_pd = ibv_alloc_pd(ctx)) && (spare_mr = ibv_reg_mr(pd, memory, 64, RIGHTS)));
	CLAIM((spare_channel = ibv_create_comp_channel(ctx)) && (spare_cq = ibv_create_cq(ctx, 8, NULL, spare_channel, 0)));
	struct ibv_cq_init_attr_ex lazily = {.cqe = 8, .wc_flags = IBV_WC_STANDARD_FLAGS};
	CLAIM((lazy = ibv_create_cq_ex(ctx, &lazily)));
	struct ibv_srq_init_attr shared = {.attr = {.max_wr = 8, .max_sge = 1}};
	CLAIM((srq = ibv_create_srq(pd, &shared)));
	struct ibv_xrcd_init_attr domain = {.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT};
	CLAIM((xrcd = ibv_open_xrcd(ctx, &domain)));
	struct ibv_srq_init_attr_ex of_domain = {
		.attr = {.max_wr = 8, .max_sge = 1},
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_XRC,
		.pd = pd,
		.xrcd = xrcd,
		.cq = cq,
	};
	CLAIM((xrc_srq = ibv_create_srq_ex(ctx, &of_domain)));
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	wants.srq = srq;
	CLAIM((on_srq = ibv_create_qp(pd, &wants)));
	wants = qp_wants(IBV_QPT_UD);
	CLAIM((datagrams = ibv_create_qp(pd, &wants)));
	struct ibv_qp_init_attr_ex extended = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 64},
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE,
	};
	CLAIM((ex_qp = ibv_create_qp_ex(ctx, &extended)) && (ex = ibv_qp_to_qp_ex(ex_qp)));
	CLAIM((window = ibv_alloc_mw(pd, IBV_MW_TYPE_2)));
	struct ibv_ah_attr address = own_address();
	CLAIM((ah = ibv_create_ah(pd, &address)));
	struct ibv_alloc_dm_attr device_memory = {.length = 64};
	CLAIM((dm = ibv_alloc_dm(ctx, &device_memory)));
	CLAIM((dma_handle = alloc_dmah(ctx, &hint)));
	CLAIM((counter = create_counter(ctx, of_counter)));
	struct ibv_td_init_attr threads = {0};
	CLAIM((td = ibv_alloc_td(ctx, &threads)));
	struct ibv_parent_domain_init_attr parent = {.pd = pd, .td = td};
	CLAIM((parent_domain = ibv_alloc_parent_domain(ctx, &parent)));
	struct mrc_context_attr defaults = {0};
	CLAIM((mrc = mrc_create_context(ctx, &defaults)));
	CLAIM(mrc_create_comp_channel(mrc, &mrc_channel) == 0);
	CLAIM((mrc_queue = mrc_create_cq(mrc, 8, NULL, mrc_channel, 0)));
	struct mrc_qp_hint_init_attr hints = {.attr = {.num_qps_per_peer = 1}};
	CLAIM((mrc_hint = mrc_create_qp_hint(mrc, &hints)));
	struct mrc_qp_init_attr paths = {
		.send_cq = mrc_queue,
		.recv_cq = mrc_queue,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
		.pd = pd,
	};
	CLAIM((mrc_qp = mrc_create_qp(mrc, &paths)));
	CLAIM((events = rdma_create_event_channel()) && rdma_create_id(events, &id, NULL, RDMA_PS_TCP) == 0);
	CLAIM(rdma_create_id(events, &listener, NULL, RDMA_PS_TCP) == 0);
	CLAIM(rdma_bind_addr(listener, (struct sockaddr *)&at) == 0 && rdma_listen(listener, 4) == 0);
	CLAIM(rdma_resolve_addr(id, NULL, (struct sockaddr *)&at, 1000) == 0 && rdma_get_cm_event(events, &event) == 0);
	CLAIM((sock = rsocket(AF_INET, SOCK_STREAM, 0)) >= 0 && (waits = rsocket(AF_INET, SOCK_STREAM, 0)) >= 0);
	CLAIM(rbind(waits, (struct sockaddr *)&at, sizeof(at)) == 0 && rlisten(waits, 4) == 0);
}

/* Writes of the parent, which are under way while it forks. */
static void begin_traffic(int round)
{
	memset(memory, round + 1, UNDER_WAY * BYTES);
	memset((char *)memory + 32768, 0, UNDER_WAY * BYTES);
	for (unsigned i = 0; i < UNDER_WAY; i++) {
		struct ibv_sge sge = piece(BYTES * i, BYTES);
		struct ibv_send_wr wr = {
			.wr_id = i,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = {.remote_addr = (uintptr_t)memory + 32768 + BYTES * i, .rkey = mr->rkey},
		};
		post(one, &wr);
	}
}

/* They complete, and what they wrote is there. */
static void end_traffic(void)
{
	completions(UNDER_WAY);
	CLAIM(memcmp(memory, (char *)memory + 32768, UNDER_WAY * BYTES) == 0);
}

static void ended_well(pid_t child, const char *what)
{
	int status = -1;
	CLAIM(child > 0 && waitpid(child, &status, 0) == child);
	if (status)
		fprintf(stderr, "%s: the child ended with status %#x\n", what, status);
	CLAIM(status == 0);
}

/* The three forms in which calls return EINVAL. */
static int invalid(long returned)
{
	return returned == EINVAL || returned == -EINVAL || (returned == -1 && errno == EINVAL);
}

static int none(const void *returned)
{
	return !returned && errno == EINVAL;
}

/* A call of a number: its name, or NULL if there is none of that number. */
#define CALL(name, claim)                    \
	if (number-- == 0) {                 \
		if (!run)                    \
			return #name;        \
		errno = 0;                   \
		CLAIM(claim);                \
		return #name;                \
	}
#define INVALID(name, ...) CALL(name, invalid(name(__VA_ARGS__)))
#define NONE(name, ...) CALL(name, none(name(__VA_ARGS__)))
#define NOTHING(name, ...) CALL(name, (name(__VA_ARGS__), 1))
#define ZERO(name, ...) CALL(name, name(__VA_ARGS__) == 0)

/* The exception: device memory needs nothing of the parent. What there is in all can be had, and not a byte more. */
static int has_own_device_memory(void)
{
	struct ibv_alloc_dm_attr all = {.length = 1 << 20}, one = {.length = 4};
	char bytes[8] = "written", back[8] = "";
	struct ibv_dm *own = ibv_alloc_dm(ctx, &all);
	CLAIM(own && ibv_memcpy_to_dm(own, 8, bytes, 8) == 0 && ibv_memcpy_from_dm(back, own, 8, 8) == 0);
	CLAIM(memcmp(bytes, back, 8) == 0);
	CLAIM(!ibv_alloc_dm(ctx, &one) && errno == ENOMEM);
	CLAIM(!ibv_reg_dm_mr(pd, own, 0, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED) && errno == EINVAL);
	return ibv_free_dm(own) == 0;
}

static const char *data_path(int *left, int run)
{
	int number = *left;
	struct ibv_sge sge = piece(0, 8);
	struct ibv_send_wr send = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad_send = NULL;
	struct ibv_recv_wr receive = {.sg_list = &sge, .num_sge = 1}, *bad_receive = NULL;
	struct ibv_wc wc;
	struct ibv_poll_cq_attr polls = {0};
	struct ibv_cq *fired;
	struct ibv_mw_bind bind = {.bind_info = {.mr = mr, .addr = (uintptr_t)memory, .length = 8}};
	void *context;
	CALL(ibv_post_send, ibv_post_send(one, &send, &bad_send) == EINVAL && bad_send == &send)
	CALL(ibv_post_recv, ibv_post_recv(one, &receive, &bad_receive) == EINVAL && bad_receive == &receive)
	CALL(ibv_post_srq_recv, ibv_post_srq_recv(srq, &receive, &bad_receive) == EINVAL && bad_receive == &receive)
	CALL(ibv_poll_cq, ibv_poll_cq(cq, 1, &wc) == -EINVAL)
	INVALID(ibv_req_notify_cq, cq, 0)
	INVALID(ibv_start_poll, lazy, &polls)
	INVALID(ibv_next_poll, lazy)
	NOTHING(ibv_end_poll, lazy)
	ZERO(ibv_wc_read_byte_len, lazy)
	ZERO(ibv_wc_read_qp_num, lazy)
	INVALID(ibv_bind_mw, one, window, &bind)
	NOTHING(ibv_wr_start, ex)
	CALL(ibv_wr_send, (ibv_wr_start(ex), ibv_wr_send(ex), ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)memory, 8), ibv_wr_complete(ex)) == EINVAL)
	NOTHING(ibv_wr_abort, ex)
	INVALID(ibv_get_cq_event, channel, &fired, &context)
	NOTHING(ibv_ack_cq_events, cq, 1)
	INVALID(ibv_memcpy_to_dm, dm, 0, memory, 8)
	INVALID(ibv_memcpy_from_dm, memory, dm, 0, 8)
	*left = number;
	return NULL;
}

static const char *verbs(int *left, int run)
{
	int number = *left;
	struct ofed_qp_init_attr of_ofed = {.xrc_domain = (void *)xrcd};
	struct ibv_device_attr device;
	struct ibv_device_attr_ex device_ex;
	struct ibv_port_attr port;
	union ibv_gid gid;
	struct ibv_gid_entry entry, table[4];
	struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	struct ibv_qp_init_attr had, wants = qp_wants(IBV_QPT_RC);
	struct ibv_qp_init_attr_ex wants_ex = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd};
	struct ibv_qp_open_attr opens = {.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
					 .qp_num = 1, .xrcd = xrcd, .qp_type = IBV_QPT_XRC_RECV};
	struct ibv_cq_init_attr_ex lazily = {.cqe = 8};
	struct ibv_modify_cq_attr moderation = {.attr_mask = IBV_CQ_ATTR_MODERATE};
	struct ibv_srq_init_attr shared = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_srq_init_attr_ex shared_ex = {.attr = shared.attr, .comp_mask = IBV_SRQ_INIT_ATTR_PD, .pd = pd};
	struct ibv_srq_attr limit = {.srq_limit = 1};
	struct ibv_xrcd_init_attr domain = {.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT};
	struct ibv_ah_attr address = own_address();
	struct ibv_td_init_attr threads = {0};
	struct ibv_parent_domain_init_attr parent = {.pd = pd, .td = td};
	struct ibv_sge sge = piece(0, 8);
	struct ibv_wc wc = {.wc_flags = IBV_WC_GRH};
	struct ibv_grh grh = {.version_tclass_flow = htonl(6u << 28)};
	struct ibv_ece ece = {0};
	struct ibv_async_event got, about = {.element.qp = one, .event_type = IBV_EVENT_QP_FATAL};
	uint32_t number_of_qp;
	uint64_t counted;
	uint16_t pkey;
	CALL(ibv_query_device, ibv_query_device(ctx, &device) == 0 && device.max_qp > 0)
	CALL(ibv_query_device_ex, ibv_query_device_ex(ctx, NULL, &device_ex) == 0 && device_ex.max_dm_size == 1 << 20)
	INVALID(ibv_query_port, ctx, 1, &port)
	INVALID(ibv_query_gid, ctx, 1, 0, &gid)
	INVALID(ibv_query_gid_ex, ctx, 1, 0, &entry, 0)
	INVALID(ibv_query_gid_table, ctx, table, 4, 0)
	INVALID(ibv_query_pkey, ctx, 1, 0, (__be16 *)&pkey)
	INVALID(ibv_get_pkey_index, ctx, 1, htons(0xffff))
	INVALID(ibv_query_rt_values_ex, ctx, &values)
	NONE(ibv_alloc_pd, ctx)
	INVALID(ibv_dealloc_pd, spare_pd)
	NONE(ibv_reg_mr, pd, memory, 64, RIGHTS)
	CALL(ibv_reg_mr_iova, none(ibv_reg_mr_iova(pd, memory, 64, 0, RIGHTS)))
	NONE(ibv_reg_mr_iova2, pd, memory, 64, 0, RIGHTS)
	NONE(ibv_reg_dmabuf_mr, pd, 0, 64, 0, 0, RIGHTS)
	CALL(ibv_rereg_mr, ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0) != 0)
	INVALID(ibv_dereg_mr, spare_mr)
	NONE(ibv_alloc_mw, pd, IBV_MW_TYPE_2)
	INVALID(ibv_dealloc_mw, window)
	NONE(ibv_alloc_null_mr, pd)
	INVALID(ibv_advise_mr, pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1)
	CALL(ibv_alloc_dm, has_own_device_memory())
	CALL(ibv_dm_export_dmabuf_fd, export_dm(dm) == -1 && errno == EINVAL)
	INVALID(ibv_free_dm, dm)
	CALL(ibv_alloc_dmah, none(alloc_dmah(ctx, &hint)))
	CALL(ibv_dealloc_dmah, invalid(dealloc_dmah(dma_handle)))
	CALL(ibv_query_comp_cntr_caps, invalid(counter_caps(ctx, of_counter, sizeof(of_counter))))
	CALL(ibv_create_comp_cntr, none(create_counter(ctx, of_counter)))
	CALL(ibv_set_comp_cntr, invalid(set_counter(counter, 1)))
	CALL(ibv_set_err_comp_cntr, invalid(set_errors(counter, 1)))
	CALL(ibv_inc_comp_cntr, invalid(increase_counter(counter, 1)))
	CALL(ibv_inc_err_comp_cntr, invalid(increase_errors(counter, 1)))
	CALL(ibv_read_comp_cntr, invalid(read_counter(counter, &counted)))
	CALL(ibv_read_err_comp_cntr, invalid(read_errors(counter, &counted)))
	CALL(ibv_qp_attach_comp_cntr, invalid(attach_counter(one, counter, of_counter)))
	CALL(ibv_destroy_comp_cntr, invalid(destroy_counter(counter)))
	NONE(ibv_reg_dm_mr, pd, dm, 0, 64, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE)
	NONE(ibv_create_comp_channel, ctx)
	INVALID(ibv_destroy_comp_channel, spare_channel)
	NONE(ibv_create_cq, ctx, 8, NULL, NULL, 0)
	NONE(ibv_create_cq_ex, ctx, &lazily)
	INVALID(ibv_modify_cq, cq, &moderation)
	INVALID(ibv_resize_cq, spare_cq, 16)
	INVALID(ibv_destroy_cq, spare_cq)
	NONE(ibv_create_srq, pd, &shared)
	NONE(ibv_create_srq_ex, ctx, &shared_ex)
	INVALID(ibv_modify_srq, srq, &limit, IBV_SRQ_LIMIT)
	INVALID(ibv_query_srq, srq, &limit)
	INVALID(ibv_get_srq_num, xrc_srq, &number_of_qp)
	INVALID(ibv_destroy_srq, xrc_srq)
	NONE(ibv_create_qp, pd, &wants)
	NONE(ibv_create_qp_ex, ctx, &wants_ex)
	NONE(ibv_open_qp, ctx, &opens)
	INVALID(ibv_modify_qp, one, &attr, IBV_QP_STATE)
	INVALID(ibv_query_qp, one, &attr, IBV_QP_STATE, &had)
	INVALID(ibv_destroy_qp, one)
	INVALID(ibv_query_ece, one, &ece)
	INVALID(ibv_set_ece, one, &ece)
	NONE(ibv_create_ah, pd, &address)
	INVALID(ibv_init_ah_from_wc, ctx, 1, &wc, &grh, &address)
	NONE(ibv_create_ah_from_wc, pd, &wc, &grh, 1)
	INVALID(ibv_destroy_ah, ah)
	INVALID(ibv_attach_mcast, datagrams, &own_gid, 0)
	INVALID(ibv_detach_mcast, datagrams, &own_gid, 0)
	NONE(ibv_open_xrcd, ctx, &domain)
	INVALID(ibv_close_xrcd, xrcd)
	NONE(ibv_open_xrc_domain, ctx, -1, O_CREAT)
	INVALID(ibv_close_xrc_domain, (void *)xrcd)
	NONE(ibv_create_xrc_srq, pd, (void *)xrcd, cq, &shared)
	INVALID(ibv_create_xrc_rcv_qp, &of_ofed, &number_of_qp)
	INVALID(ibv_modify_xrc_rcv_qp, (void *)xrcd, 1, &attr, IBV_QP_STATE)
	INVALID(ibv_query_xrc_rcv_qp, (void *)xrcd, 1, &attr, IBV_QP_STATE, &of_ofed)
	INVALID(ibv_reg_xrc_rcv_qp, (void *)xrcd, 1)
	INVALID(ibv_unreg_xrc_rcv_qp, (void *)xrcd, 1)
	NONE(ibv_alloc_td, ctx, &threads)
	INVALID(ibv_dealloc_td, td)
	NONE(ibv_alloc_parent_domain, ctx, &parent)
	INVALID(ibv_get_async_event, ctx, &got)
	NOTHING(ibv_ack_async_event, &about)
	NONE(ibv_import_pd, ctx, pd->handle)
	NOTHING(ibv_unimport_pd, pd)
	NONE(ibv_import_mr, pd, mr->handle)
	NOTHING(ibv_unimport_mr, mr)
	NONE(ibv_import_dm, ctx, dm->handle)
	NOTHING(ibv_unimport_dm, dm)
	CALL(ibv_close_device, ibv_close_device(ctx) == 0 && ibv_close_device(ctx) == 0)
	*left = number;
	return NULL;
}

static const char *multipath(int *left, int run)
{
	int number = *left, fd, supported, mask;
	struct mrc_device_attr device;
	struct mrc_ctl_device_attr controlled;
	struct mrc_context_attr defaults = {0};
	struct mrc_comp_channel *channel;
	struct mrc_cq *got;
	void *got_context;
	struct mrc_qp_hint_init_attr hints = {0};
	struct mrc_qp_hint_attr hint_attr = {0};
	struct mrc_qp_init_attr init = {.send_cq = mrc_queue, .recv_cq = mrc_queue, .pd = pd}, had;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	struct mrc_qp_attr more = {0};
	struct mrc_async_event event_of_mrc = {.element.qp = mrc_qp, .event_type = IBV_EVENT_QP_FATAL};
	struct mrc_ctl_port_attr port = {0};
	struct mrc_ctl_ev_fmt_profile_attr format = {0};
	struct mrc_ctl_ev_profile_attr entropy = {0};
	struct mrc_ctl_cc_profile_attr congestion = {0};
	struct mrc_ctl_ev_event changed;
	struct mrc_ctl_ep_req request = {0};
	struct mrc_ctl_ep_rsp response;
	struct ibv_sge sge = piece(0, 8);
	struct ibv_send_wr send = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad_send;
	struct ibv_recv_wr recv = {0}, *bad_recv;
	struct ibv_wc wc;
	uint32_t qpn;
	int answers = 1;
	mask = IBV_QP_STATE;
	INVALID(mrc_query_device, ctx, &device, &supported)
	INVALID(mrc_query_device_ex, ctx, mrc, &device, &supported)
	NONE(mrc_create_context, ctx, &defaults)
	INVALID(mrc_create_comp_channel, mrc, &channel)
	INVALID(mrc_get_comp_channel_fd, mrc_channel, &fd)
	NONE(mrc_create_cq, mrc, 8, NULL, NULL, 0)
	INVALID(mrc_poll_cq, mrc_queue, 1, &wc)
	INVALID(mrc_req_notify_cq, mrc_queue, 0)
	INVALID(mrc_get_cq_event, mrc_channel, &got, &got_context)
	NOTHING(mrc_ack_cq_events, mrc_queue, 0)
	NONE(mrc_create_qp_hint, mrc, &hints)
	INVALID(mrc_query_qp_hint, mrc_hint, &hint_attr, 0)
	INVALID(mrc_modify_qp_hint, mrc_hint, &hint_attr, 0)
	INVALID(mrc_destroy_qp_hint, mrc_hint)
	NONE(mrc_create_qp, mrc, &init)
	INVALID(mrc_modify_qp, mrc_qp, &attr, mask, &more, 0)
	INVALID(mrc_query_qp, mrc_qp, &attr, mask, &more, 0, &had)
	INVALID(mrc_get_qpn, mrc_qp, &qpn)
	INVALID(mrc_post_recv, mrc_qp, &recv, &bad_recv)
	INVALID(mrc_post_send, mrc_qp, &send, &bad_send)
	INVALID(mrc_get_async_event, mrc, &event_of_mrc)
	NOTHING(mrc_ack_async_event, &event_of_mrc)
	INVALID(mrc_ctl_query_device, ctx, &controlled)
	INVALID(mrc_ctl_query_device_ex, ctx, mrc, &controlled, &supported)
	INVALID(mrc_ctl_query_port, mrc, 1, &port, 0)
	INVALID(mrc_ctl_modify_port, mrc, 1, &port, 0)
	INVALID(mrc_ctl_modify_ev_fmt_profile, mrc, 1, &format, 0)
	INVALID(mrc_ctl_query_ev_fmt_profile, mrc, 1, &format, 0)
	INVALID(mrc_ctl_modify_ev_profile, mrc, 1, &entropy, 0)
	INVALID(mrc_ctl_query_ev_profile, mrc, 1, &entropy, 0)
	INVALID(mrc_ctl_modify_cc_profile, mrc, 1, &congestion, 0)
	INVALID(mrc_ctl_query_cc_profile, mrc, 1, &congestion, 0)
	NONE(mrc_ctl_create_ev_event_cq, mrc, 8, NULL, NULL, 0)
	INVALID(mrc_ctl_poll_ev_event, mrc_queue, 1, &changed)
	INVALID(mrc_ctl_ep_batch_send_wait, mrc, 0, 0, &request, 1, 1, &response, &answers)
	INVALID(mrc_destroy_qp, mrc_qp)
	INVALID(mrc_destroy_cq, mrc_queue)
	INVALID(mrc_destroy_comp_channel, mrc_channel)
	INVALID(mrc_destroy_context, mrc)
	*left = number;
	return NULL;
}

static const char *connections(int *left, int run)
{
	int number = *left;
	struct sockaddr *to = (struct sockaddr *)&at;
	struct rdma_cm_id *made;
	struct rdma_cm_event *next;
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	struct ibv_qp_init_attr_ex wants_ex = {.qp_type = IBV_QPT_RC, .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd};
	struct ibv_srq_init_attr shared = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_srq_init_attr_ex shared_ex = {.attr = shared.attr, .comp_mask = IBV_SRQ_INIT_ATTR_PD, .pd = pd};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT};
	struct rdma_conn_param says = {0};
	struct ibv_ece ece = {0};
	int mask, yes = 1;
	INVALID(rdma_create_id, events, &made, NULL, RDMA_PS_TCP)
	INVALID(rdma_destroy_id, id)
	NOTHING(rdma_destroy_ep, id)
	INVALID(rdma_bind_addr, id, to)
	INVALID(rdma_resolve_addr, id, NULL, to, 1000)
	INVALID(rdma_resolve_route, id, 1000)
	INVALID(rdma_listen, listener, 4)
	INVALID(rdma_get_request, listener, &made)
	INVALID(rdma_connect, id, &says)
	INVALID(rdma_accept, id, &says)
	INVALID(rdma_reject, id, NULL, 0)
	INVALID(rdma_reject_ece, id, NULL, 0)
	INVALID(rdma_establish, id)
	INVALID(rdma_notify, id, IBV_EVENT_COMM_EST)
	INVALID(rdma_disconnect, id)
	INVALID(rdma_create_qp, id, pd, &wants)
	INVALID(rdma_create_qp_ex, id, &wants_ex)
	NOTHING(rdma_destroy_qp, id)
	INVALID(rdma_create_srq, id, pd, &shared)
	INVALID(rdma_create_srq_ex, id, &shared_ex)
	NOTHING(rdma_destroy_srq, id)
	INVALID(rdma_init_qp_attr, id, &attr, &mask)
	INVALID(rdma_join_multicast, id, to, NULL)
	INVALID(rdma_leave_multicast, id, to)
	INVALID(rdma_get_cm_event, events, &next)
	INVALID(rdma_ack_cm_event, event)
	INVALID(rdma_migrate_id, id, NULL)
	INVALID(rdma_set_option, id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, sizeof(yes))
	INVALID(rdma_set_local_ece, id, &ece)
	INVALID(rdma_get_remote_ece, id, &ece)
	ZERO(rdma_get_src_port, listener)
	ZERO(rdma_get_dst_port, id)
	NOTHING(rdma_destroy_event_channel, events)
	*left = number;
	return NULL;
}

/* Of sockets, which are not there: EBADF. */
#define CLOSED(name, ...) CALL(name, name(__VA_ARGS__) == -1 && errno == EBADF)

static const char *sockets(int *left, int run)
{
	int number = *left;
	struct sockaddr *to = (struct sockaddr *)&at;
	struct sockaddr_in from;
	socklen_t length = sizeof(from);
	char text[8] = {0};
	struct iovec vector = {text, sizeof(text)};
	struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
	int yes = 1;
	CLOSED(rbind, sock, to, length)
	CLOSED(rlisten, waits, 4)
	CLOSED(raccept, waits, (struct sockaddr *)&from, &length)
	CLOSED(rconnect, sock, to, length)
	CLOSED(rshutdown, sock, SHUT_RDWR)
	CLOSED(rrecv, sock, text, 8, 0)
	CLOSED(rrecvfrom, sock, text, 8, 0, NULL, NULL)
	CLOSED(rrecvmsg, sock, &message, 0)
	CLOSED(rread, sock, text, 8)
	CLOSED(rreadv, sock, &vector, 1)
	CLOSED(rsend, sock, text, 8, 0)
	CLOSED(rsendto, sock, text, 8, 0, to, length)
	CLOSED(rsendmsg, sock, &message, 0)
	CLOSED(rwrite, sock, text, 8)
	CLOSED(rwritev, sock, &vector, 1)
	CLOSED(rgetsockname, sock, (struct sockaddr *)&from, &length)
	CLOSED(rgetpeername, sock, (struct sockaddr *)&from, &length)
	CLOSED(rsetsockopt, sock, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes))
	CLOSED(rgetsockopt, sock, SOL_SOCKET, SO_REUSEADDR, &yes, &length)
	CLOSED(rfcntl, sock, F_GETFL)
	CALL(riomap, riomap(sock, text, 8, PROT_WRITE, 0, -1) == (off_t)-1 && errno == EBADF)
	CLOSED(riounmap, sock, text, 8)
	CALL(riowrite, riowrite(sock, text, 8, 0, 0) == (size_t)-1 && errno == EBADF)
	CALL(rclose, rclose(sock) == 0 && rclose(sock) == -1 && errno == EBADF)
	*left = number;
	return NULL;
}

static const char *call(int number, int run)
{
	const char *name;
	if ((name = data_path(&number, run)) || (name = verbs(&number, run)) || (name = multipath(&number, run)) || (name = connections(&number, run)))
		return name;
	return sockets(&number, run);
}

/* A process of its own may do all that its parent may, and what it inherited stays the parent's. */
static void opens_anew(void)
{
	struct ibv_qp *not_mine = one;
	struct ibv_cq *nor_this = cq;
	struct ibv_wc wc;
	open_device();
	one = pair(IBV_QPT_RC, &two);
	begin_traffic(77);
	end_traffic();
	CLAIM(ibv_destroy_qp(not_mine) == EINVAL && ibv_poll_cq(nor_this, 1, &wc) == -EINVAL);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	CLAIM(ibv_modify_qp(not_mine, &attr, IBV_QP_STATE) == EINVAL);
}

static void closes_its_own(void)
{
	begin_traffic(78);
	end_traffic();
	FAILS(ibv_destroy_qp(one), 0);
	FAILS(ibv_destroy_qp(two), 0);
	FAILS(ibv_close_device(ctx), 0);
}

static void each_call(void)
{
	for (int number = 0; call(number, 0); number++) {
		begin_traffic(number);
		pid_t child = fork();
		if (child == 0) {
			alarm(60);
			call(number, 1);
			/* The handlers of exit(3) run in one half of the children. */
			if (number % 2)
				exit(0);
			_exit(0);
		}
		end_traffic();
		ended_well(child, call(number, 0));
	}
}

static void children_that_open(void)
{
	for (int round = 0; round < 4; round++) {
		begin_traffic(round);
		pid_t child = fork();
		if (child == 0) {
			alarm(100);
			opens_anew();
			/* A child of a child has two processes' objects that are none of its own. */
			pid_t grandchild = fork();
			if (grandchild == 0) {
				struct ibv_wc wc;
				alarm(60);
				CLAIM(ibv_poll_cq(cq, 1, &wc) == -EINVAL);
				opens_anew();
				closes_its_own();
				exit(0);
			}
			ended_well(grandchild, "the grandchild");
			closes_its_own();
			exit(0);
		}
		end_traffic();
		ended_well(child, "a child that opens the device");
	}
}

/* A fork that no handler of pthread_atfork sees. The parent's threads are asleep: the C library's allocator has locks, too. */
static void bare_forks(void)
{
	int left = 0;
	for (int number = 0; left = number, data_path(&left, 0); number++) {
		pid_t child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
		if (child == 0) {
			alarm(60);
			left = number;
			data_path(&left, 1);
			_exit(0);
		}
		ended_well(child, "a bare fork");
	}
	begin_traffic(1);
	end_traffic();
}

static int in_borrowed_memory(void *unused)
{
	struct ibv_port_attr port;
	struct sockaddr *to = (struct sockaddr *)&at;
	struct ibv_wc wc;
	/* Off the data path: refused. */
	if (ibv_query_port(ctx, 1, &port) != EINVAL || ibv_create_comp_channel(ctx) || ibv_destroy_qp(one) != EINVAL)
		return 1;
	if (rdma_resolve_addr(id, NULL, to, 1000) != -1 || errno != EINVAL)
		return 2;
	/* On it the child acts for its parent. */
	if (ibv_poll_cq(spare_cq, 1, &wc) != 0)
		return 3;
	/* It closes a descriptor, and its parent's socket stays. */
	return rclose(waits) == 0 && fcntl(waits, F_GETFD) == -1 ? 0 : 4;
}

static void borrowers(void)
{
	static char stack[1 << 18];
	for (int round = 0; round < 4; round++) {
		begin_traffic(round);
		pid_t child = clone(in_borrowed_memory, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
		ended_well(child, "a child in borrowed memory");
		end_traffic();
		CLAIM(fcntl(waits, F_GETFD) != -1 && rlisten(waits, 4) == 0);
		begin_traffic(round);
		if ((child = vfork()) == 0) {
			execl("/bin/true", "true", NULL);
			_exit(1);
		}
		ended_well(child, "vfork");
		char *arguments[] = {"true", NULL};
		CLAIM(posix_spawn(&child, "/bin/true", NULL, NULL, arguments, environ) == 0);
		ended_well(child, "posix_spawn");
		CLAIM(system("true") == 0);
		end_traffic();
	}
	struct ibv_port_attr port;
	FAILS(ibv_query_port(ctx, 1, &port), 0);
}

static volatile int goes_on = 1;

/* What another thread of the parent does while it forks: calls that take locks. */
static void *busy(void *unused)
{
	while (goes_on) {
		struct ibv_device **list = ibv_get_device_list(NULL);
		struct ibv_comp_channel *made = ibv_create_comp_channel(ctx);
		struct ibv_cq *queue = made ? ibv_create_cq(ctx, 4, NULL, made, 0) : NULL;
		struct rdma_cm_id *identifier;
		CLAIM(list && queue && rdma_create_id(events, &identifier, NULL, RDMA_PS_TCP) == 0);
		int made_socket = rsocket(AF_INET, SOCK_STREAM, 0);
		/* Refused, with a sentence. */
		ibv_destroy_comp_channel(made);
		CLAIM(rclose(made_socket) == 0 && rdma_destroy_id(identifier) == 0);
		FAILS(ibv_destroy_cq(queue), 0);
		FAILS(ibv_destroy_comp_channel(made), 0);
		ibv_free_device_list(list);
	}
	return unused;
}

static void threaded(void)
{
	pthread_t threads[3];
	for (int i = 0; i < 3; i++)
		CLAIM(pthread_create(&threads[i], NULL, busy, NULL) == 0);
	for (int round = 0; round < 60; round++) {
		pid_t child = fork();
		if (child == 0) {
			alarm(60);
			if (round % 3 == 0)
				exit(0);
			struct ibv_device **list = ibv_get_device_list(NULL);
			CLAIM(list && list[0]);
			if (round % 3 == 1) {
				struct ibv_context *own = ibv_open_device(list[0]);
				CLAIM(own && ibv_alloc_pd(own) && ibv_close_device(own) == 0);
			}
			CLAIM(ibv_destroy_qp(one) == EINVAL);
			ibv_free_device_list(list);
			exit(0);
		}
		ended_well(child, "a child of a program with threads");
	}
	goes_on = 0;
	for (int i = 0; i < 3; i++)
		CLAIM(pthread_join(threads[i], NULL) == 0);
}

int main(int count, char **arguments)
{
	const char *way = count > 1 ? arguments[1] : "calls";
	make_objects();
	if (!strcmp(way, "calls"))
		each_call();
	else if (!strcmp(way, "opens"))
		children_that_open();
	else if (!strcmp(way, "bare"))
		bare_forks();
	else if (!strcmp(way, "borrowed"))
		borrowers();
	else
		threaded();
	/* The parent has all that it had. */
	begin_traffic(99);
	end_traffic();
	FAILS(ibv_dereg_mr(spare_mr), 0);
	FAILS(ibv_destroy_cq(spare_cq), 0);
	CLAIM(mrc_destroy_qp(mrc_qp) == 0 && mrc_destroy_qp_hint(mrc_hint) == 0 && mrc_destroy_cq(mrc_queue) == 0);
	CLAIM(mrc_destroy_comp_channel(mrc_channel) == 0 && mrc_destroy_context(mrc) == 0);
	CLAIM(rdma_ack_cm_event(event) == 0 && rdma_destroy_id(listener) == 0 && rdma_destroy_id(id) == 0);
	CLAIM(rclose(sock) == 0 && rclose(waits) == 0);
	FAILS(ibv_close_device(ctx), 0);
	return 0;
}
