/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * XRC as OFED 1.x had it, beside today's <infiniband/verbs.h>.
 *
 * The calls are exported from libpumice.so as ibv_...@@IBVERBS_1.1, the node in which OFED 1.x had them. What
 * OFED 1.x appended to structures of verbs.h is here, at the offsets it had there:
 *
 *   OFED 1.x                            with this header                        offset (x86-64)
 *   ----------------------------------  --------------------------------------  ---------------
 *   struct ibv_qp_init_attr.xrc_domain  struct ofed_qp_init_attr.xrc_domain     64, after today's members
 *   struct ibv_send_wr                  the same; xrc_remote_srq_num is a name  72
 *     .xrc_remote_srq_num                 for today's qp_type.xrc.remote_srqn
 *   struct ibv_srq.xrc_srq_num,         ofed_srq(srq)->xrc_srq_num,             124, 128, 136
 *     .xrc_domain, .xrc_cq                .xrc_domain, .xrc_cq
 *   struct ibv_qp.xrc_domain            ofed_qp_xrc_domain(qp)                  160
 *   struct ibv_async_event              the same; xrc_qp_num is a name for      0
 *     .element.xrc_qp_num                 today's element.port_num
 *   enum ibv_qp_type IBV_QPT_XRC        the same, 5
 *
 * On aarch64 the offsets in struct ibv_srq and struct ibv_qp are 8 more.
 *
 * struct ofed_qp_init_attr begins like struct ibv_qp_init_attr: ibv_create_qp(pd, ofed_qp_init(&attr)) makes a
 * queue pair of type IBV_QPT_XRC, and IBV_QPT_XRC without the longer structure reads beyond the shorter one.
 * Such a queue pair is full duplex: it initiates, and it is its peer's target for the SRQs of its domain, those of
 * other processes included. It lives as long as its maker, and its events are ordinary ones, without
 * IBV_XRC_QP_EVENT_FLAG. A struct ibv_xrc_domain begins like a struct ibv_xrcd, and each call takes either.
 */
#ifndef PUMICE_OFED_XRC_H
#define PUMICE_OFED_XRC_H

#include <infiniband/verbs.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The queue pair type that initiates, and receives for the SRQs of its domain. */
#define IBV_QPT_XRC ((enum ibv_qp_type)5)

/*
 * Set in event_type for events of XRC receive queue pairs. Look for it first, take it away, then
 * element.xrc_qp_num says which queue pair it is. Acknowledge such an event as any other.
 */
#define IBV_XRC_QP_EVENT_FLAG 0x80000000u

#define xrc_remote_srq_num qp_type.xrc.remote_srqn
#define xrc_qp_num port_num

struct ibv_xrc_domain {
	struct ibv_context *context;
	uint64_t handle;
};

struct ofed_qp_init_attr {
	void *qp_context;
	struct ibv_cq *send_cq;
	struct ibv_cq *recv_cq;
	struct ibv_srq *srq;
	struct ibv_qp_cap cap;
	enum ibv_qp_type qp_type;
	int sq_sig_all;
	struct ibv_xrc_domain *xrc_domain;
};

struct ofed_srq {
	struct ibv_context *context;
	void *srq_context;
	struct ibv_pd *pd;
	uint32_t handle;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t events_completed;
	uint32_t xrc_srq_num;
	struct ibv_xrc_domain *xrc_domain;
	struct ibv_cq *xrc_cq;
};

static inline struct ibv_qp_init_attr *ofed_qp_init(struct ofed_qp_init_attr *attr)
{
	return (struct ibv_qp_init_attr *)attr;
}

/* What OFED 1.x adds to an SRQ; its XRC part is for SRQs of ibv_create_xrc_srq() and ibv_create_srq_ex(). */
static inline struct ofed_srq *ofed_srq(struct ibv_srq *srq)
{
	return (struct ofed_srq *)srq;
}

/* The domain of a queue pair of type IBV_QPT_XRC. */
static inline struct ibv_xrc_domain *ofed_qp_xrc_domain(struct ibv_qp *qp)
{
	return *(struct ibv_xrc_domain **)(qp + 1);
}

/*
 * Opens an XRC domain: with fd -1 one of its own, else the one of the file, which every process of the same user
 * gets who opens it through the same file. oflag: O_CREAT makes it if no process has it open (else EAGAIN),
 * O_EXCL refuses one that a process has open (EINVAL). NULL and errno on failure.
 */
struct ibv_xrc_domain *ibv_open_xrc_domain(struct ibv_context *context, int fd, int oflag);

/* EBUSY while SRQs, queue pairs or registrations made through it exist. */
int ibv_close_xrc_domain(struct ibv_xrc_domain *domain);

/* An SRQ that remote senders name by its number; what it receives completes on xrc_cq. */
struct ibv_srq *ibv_create_xrc_srq(struct ibv_pd *pd, struct ibv_xrc_domain *xrc_domain, struct ibv_cq *xrc_cq,
				   struct ibv_srq_init_attr *srq_init_attr);

/*
 * Makes a receive queue pair and registers the calling context for it; of init_attr only xrc_domain matters.
 * The calls below return 0 or an errno; EINVAL for a number that is none in the domain.
 */
int ibv_create_xrc_rcv_qp(struct ofed_qp_init_attr *init_attr, uint32_t *xrc_rcv_qpn);
int ibv_modify_xrc_rcv_qp(struct ibv_xrc_domain *xrc_domain, uint32_t xrc_rcv_qpn, struct ibv_qp_attr *attr,
			  int attr_mask);

/* Returns all attributes that are known, and ignores attr_mask; valid are those that a modify has set. */
int ibv_query_xrc_rcv_qp(struct ibv_xrc_domain *xrc_domain, uint32_t xrc_rcv_qpn, struct ibv_qp_attr *attr,
			 int attr_mask, struct ofed_qp_init_attr *init_attr);

/*
 * Registers a context of this or another process: the queue pair lives at least until it is unregistered or its
 * process ends, and its events come to the context. Twice is once. The last one destroys the queue pair.
 */
int ibv_reg_xrc_rcv_qp(struct ibv_xrc_domain *xrc_domain, uint32_t xrc_rcv_qpn);
int ibv_unreg_xrc_rcv_qp(struct ibv_xrc_domain *xrc_domain, uint32_t xrc_rcv_qpn);

#ifdef __cplusplus
}
#endif

#endif /* PUMICE_OFED_XRC_H */
