/* A library in front of libibverbs.so.1 that carries the RC queue pairs of an unmodified program by libmrc, as vendors of MRC
 * do it for perftest: queue pairs and completion queues are libmrc's, all else is the verbs library's own. Programs see
 * queue pairs of verbs. It serves what ib_write_bw and ib_write_lat call (ibv_create_qp and ibv_post_send, so perftest needs
 * --use_old_post_send); what MRC does not have is refused.
 *
 *   cc -shared -fPIC -I HEADERS -o verbs_to_mrc.so verbs_to_mrc.c -ldl
 *   LD_PRELOAD=./verbs_to_mrc.so ib_write_bw --use_old_post_send ...
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <mrc.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#define CALLS(DO)                                                                                                      \
	DO(mrc_query_device)                                                                                           \
	DO(mrc_create_context)                                                                                         \
	DO(mrc_destroy_context)                                                                                        \
	DO(mrc_create_cq)                                                                                              \
	DO(mrc_destroy_cq)                                                                                             \
	DO(mrc_create_qp)                                                                                              \
	DO(mrc_destroy_qp)                                                                                             \
	DO(mrc_create_qp_hint)                                                                                         \
	DO(mrc_destroy_qp_hint)                                                                                        \
	DO(mrc_poll_cq)                                                                                                \
	DO(mrc_query_qp)                                                                                               \
	DO(mrc_modify_qp)                                                                                              \
	DO(mrc_get_qpn)                                                                                                \
	DO(mrc_post_recv)                                                                                              \
	DO(mrc_post_send)
#define POINTER(call) static __typeof__(&call) do_##call;
CALLS(POINTER)

/* A queue pair and a completion queue as the program sees them, with those of libmrc behind. */
struct shim_qp {
	struct ibv_qp qp;
	struct mrc_qp *mrc;
	struct mrc_qp_hint *hint;
};
struct shim_cq {
	struct ibv_cq cq;
	struct mrc_cq *mrc;
};

/* The one device that a program of perftest opens. */
static struct ibv_context *device;
static struct mrc_context *mrc;
static unsigned writes;

static void *of_verbs(const char *name, const char *version)
{
	void *found = dlvsym(RTLD_NEXT, name, version);
	if (!found) {
		fprintf(stderr, "verbs_to_mrc: no %s@%s\n", name, version);
		abort();
	}
	return found;
}

static struct shim_qp *qp_of(struct ibv_qp *qp)
{
	return (struct shim_qp *)((char *)qp - offsetof(struct shim_qp, qp));
}

static struct shim_cq *cq_of(struct ibv_cq *cq)
{
	return (struct shim_cq *)((char *)cq - offsetof(struct shim_cq, cq));
}

static int poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc)
{
	return do_mrc_poll_cq(cq_of(cq)->mrc, count, wc);
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	int status = do_mrc_post_send(qp_of(qp)->mrc, wr, bad);
	if (!status)
		writes++;
	return status;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return do_mrc_post_recv(qp_of(qp)->mrc, wr, bad);
}

static int no_events(struct ibv_cq *cq, int solicited)
{
	(void)cq, (void)solicited;
	return EOPNOTSUPP;
}

/* Opens libmrc for a device, and takes the place of the calls that go through the context. */
struct ibv_context *ibv_open_device(struct ibv_device *wanted)
{
	struct ibv_context *(*next)(struct ibv_device *) = of_verbs("ibv_open_device", "IBVERBS_1.1");
	struct ibv_context *context = next(wanted);
	if (!context || mrc)
		return context;
	void *library = dlopen(getenv("LIBMRC") ? getenv("LIBMRC") : "libmrc.so", RTLD_NOW);
	if (!library) {
		fprintf(stderr, "verbs_to_mrc: %s\n", dlerror());
		abort();
	}
#define FIND(call)                                                                                                     \
	if (!(do_##call = (__typeof__(&call))dlsym(library, #call))) {                                                 \
		fprintf(stderr, "verbs_to_mrc: no " #call "\n");                                                       \
		abort();                                                                                               \
	}
	CALLS(FIND)
	int supported = 0;
	struct mrc_device_attr attr;
	struct mrc_context_attr wants = {0};
	if (do_mrc_query_device(context, &attr, &supported) || !supported ||
	    !(mrc = do_mrc_create_context(context, &wants))) {
		fprintf(stderr, "verbs_to_mrc: the device has no MRC\n");
		abort();
	}
	device = context;
	context->ops.poll_cq = poll_cq;
	context->ops.post_send = post_send;
	context->ops.post_recv = post_recv;
	context->ops.req_notify_cq = no_events;
	return context;
}

int ibv_close_device(struct ibv_context *context)
{
	int (*next)(struct ibv_context *) = of_verbs("ibv_close_device", "IBVERBS_1.1");
	if (context == device && mrc) {
		int status = do_mrc_destroy_context(mrc);
		if (status)
			return status;
		fprintf(stderr, "verbs_to_mrc: %u posts went by libmrc\n", writes);
		mrc = NULL;
	}
	return next(context);
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context, struct ibv_comp_channel *channel,
			     int vector)
{
	struct shim_cq *cq = channel ? NULL : calloc(1, sizeof(*cq));
	if (!cq) {
		errno = channel ? EOPNOTSUPP : ENOMEM;
		return NULL;
	}
	if (!(cq->mrc = do_mrc_create_cq(mrc, cqe, cq_context, NULL, vector))) {
		free(cq);
		return NULL;
	}
	cq->cq = (struct ibv_cq){.context = context, .cq_context = cq_context, .cqe = cqe};
	return &cq->cq;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	int status = do_mrc_destroy_cq(cq_of(cq)->mrc);
	if (!status)
		free(cq_of(cq));
	return status;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *wants)
{
	struct mrc_qp_init_attr init = {
		.qp_context = wants->qp_context,
		.send_cq = cq_of(wants->send_cq)->mrc,
		.recv_cq = cq_of(wants->recv_cq)->mrc,
		.cap = wants->cap,
		.sq_sig_all = wants->sq_sig_all,
		.pd = pd,
	};
	struct mrc_qp_hint_init_attr one = {.attr = {.num_qps_per_peer = 1, .num_send_peers = 1, .num_remote_recv_peers = 1}};
	struct shim_qp *qp = wants->qp_type == IBV_QPT_RC && !wants->srq ? calloc(1, sizeof(*qp)) : NULL;
	uint32_t number;
	if (!qp) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	qp->hint = do_mrc_create_qp_hint(mrc, &one);
	qp->mrc = qp->hint ? do_mrc_create_qp(mrc, &init) : NULL;
	if (!qp->mrc || do_mrc_get_qpn(qp->mrc, &number)) {
		if (qp->hint)
			do_mrc_destroy_qp_hint(qp->hint);
		free(qp);
		return NULL;
	}
	wants->cap = init.cap;
	qp->qp = (struct ibv_qp){
		.context = pd->context,
		.qp_context = wants->qp_context,
		.pd = pd,
		.send_cq = wants->send_cq,
		.recv_cq = wants->recv_cq,
		.qp_num = number,
		.state = IBV_QPS_RESET,
		.qp_type = IBV_QPT_RC,
	};
	return &qp->qp;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	struct shim_qp *own = qp_of(qp);
	int status = do_mrc_destroy_qp(own->mrc);
	if (!status)
		status = do_mrc_destroy_qp_hint(own->hint);
	if (!status)
		free(own);
	return status;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	struct mrc_qp_attr own = {.qp_hint = qp_of(qp)->hint};
	int is_init = (mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_INIT;
	int status = do_mrc_modify_qp(qp_of(qp)->mrc, attr, mask, &own, is_init ? MRC_QP_HINT : 0);
	if (!status && (mask & IBV_QP_STATE))
		qp->state = attr->qp_state;
	return status;
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
	struct mrc_qp_attr own;
	struct mrc_qp_init_attr made;
	int status = do_mrc_query_qp(qp_of(qp)->mrc, attr, mask, &own, 0, &made);
	if (!status)
		*init = (struct ibv_qp_init_attr){
			.qp_context = qp->qp_context,
			.send_cq = qp->send_cq,
			.recv_cq = qp->recv_cq,
			.cap = made.cap,
			.qp_type = IBV_QPT_RC,
			.sq_sig_all = made.sq_sig_all,
		};
	return status;
}
