/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The calls of libmrc, version 1.0.1 of the API, as pumice serves them: queue pairs over many paths.
 * Names, numbers and layouts are those that programs expect; the text is pumice's own.
 * Link with -l_mrc, or open libmrc.so with dlopen(3).
 */
#ifndef PUMICE_MRC_H
#define PUMICE_MRC_H

#include <infiniband/verbs.h>
#include <stdint.h>

#include "mrc_api_ver.h"

#ifdef __cplusplus
extern "C" {
#endif

struct mrc_context;
struct mrc_cq;
struct mrc_qp;
struct mrc_qp_hint;
struct mrc_comp_channel;

#define MRC_MAX_VENDOR_CFG_SIZE 128

/* ---- the device ---- */

enum mrc_protocol_version {
	MRC_PROTOCOL_VERSION_0 = 0, /* the provider chooses */
	MRC_PROTOCOL_VERSION_1 = 1,
};

enum mrc_device_cap {
	MRC_DEVICE_CAP_TRIM_NACK = 1 << 0,
	MRC_DEVICE_CAP_DYNAMIC_MPR = 1 << 1,
	MRC_DEVICE_CAP_SVC_TIME = 1 << 2,
};

struct mrc_device_attr {
	uint32_t mrc_protocol_version; /* bit n: version n */
	struct {
		uint16_t max_wimm;
		uint16_t max_wimm_dest;
	} wimm_attr;
	struct {
		uint8_t max_mpr;
		uint8_t mpr_resolution;
	} mpr_attr;
	struct {
		uint32_t max_qp_hint;
	} qp_attr;
	uint32_t cap; /* enum mrc_device_cap */
};

struct mrc_context_attr {
	uint32_t mrc_api_version_used;        /* 0: any */
	uint32_t mrc_vendor_api_version_used; /* 0: any */
};

int mrc_query_device(struct ibv_context *context, struct mrc_device_attr *attr, int *supported);
int mrc_query_device_ex(struct ibv_context *context, struct mrc_context *mcontext,
			struct mrc_device_attr *attr, int *supported);
void mrc_query_version(uint32_t *current, uint32_t *last_supported, uint32_t *vendor,
		       uint32_t *last_supported_vendor);
struct mrc_context *mrc_create_context(struct ibv_context *context, struct mrc_context_attr *attr);
int mrc_destroy_context(struct mrc_context *mcontext);

/* ---- completions ---- */

int mrc_create_comp_channel(struct mrc_context *mcontext, struct mrc_comp_channel **channel);
int mrc_get_comp_channel_fd(struct mrc_comp_channel *channel, int *fd);
int mrc_destroy_comp_channel(struct mrc_comp_channel *channel);
struct mrc_cq *mrc_create_cq(struct mrc_context *mcontext, int cqe, void *cq_context,
			     struct mrc_comp_channel *channel, int comp_vector);
int mrc_destroy_cq(struct mrc_cq *cq);
int mrc_poll_cq(struct mrc_cq *cq, int num_entries, struct ibv_wc *wc);
int mrc_req_notify_cq(struct mrc_cq *cq, int solicited_only);
int mrc_get_cq_event(struct mrc_comp_channel *channel, struct mrc_cq **cq, void **cq_context);
void mrc_ack_cq_events(struct mrc_cq *cq, unsigned int nevents);

/* ---- hints ---- */

enum mrc_qp_hint_attr_mask {
	MRC_QP_HINT_NUM_QPS_PER_PEER = 1 << 0,
	MRC_QP_HINT_NUM_SEND_PEERS = 1 << 1,
	MRC_QP_HINT_NUM_REMOTE_RECV_PEERS = 1 << 2,
	MRC_QP_HINT_VENDOR_CFG = 1u << 31,
};

struct mrc_qp_hint_attr {
	int num_qps_per_peer;
	int num_send_peers;
	int num_remote_recv_peers;
	uint8_t vendor_cfg[MRC_MAX_VENDOR_CFG_SIZE];
};

struct mrc_qp_hint_init_attr {
	struct mrc_qp_hint_attr attr;
};

struct mrc_qp_hint *mrc_create_qp_hint(struct mrc_context *mcontext,
				       struct mrc_qp_hint_init_attr *init_attr);
int mrc_destroy_qp_hint(struct mrc_qp_hint *hint);
int mrc_query_qp_hint(struct mrc_qp_hint *hint, struct mrc_qp_hint_attr *attr, int mask);
int mrc_modify_qp_hint(struct mrc_qp_hint *hint, struct mrc_qp_hint_attr *attr, int mask);

/* ---- queue pairs ---- */

enum mrc_qp_attr_mask {
	MRC_QP_MAX_WIMM = 1 << 0,      /* to RTS */
	MRC_QP_MAX_WIMM_DEST = 1 << 1, /* to RTR */
	MRC_QP_MPR = 1 << 2,           /* to RTS */
	MRC_QP_MPR_DEST = 1 << 3,      /* to RTR */
	MRC_QP_TIMEOUT = 1 << 4,       /* to RTS */
	MRC_QP_EV_PROFILE_ID = 1 << 5, /* to INIT */
	MRC_QP_CC_PROFILE_ID = 1 << 6, /* to INIT */
	MRC_QP_HINT = 1 << 7,          /* to INIT */
	MRC_QP_RETRY_CNT = 1 << 8,     /* to RTS */
	MRC_QP_CAP = 1 << 9,           /* to RTR */
	MRC_QP_VENDOR_CFG = 1u << 31,
};

enum mrc_qp_cap {
	MRC_QP_CAP_TRIM_NACK_DEST_UNSUPPORTED = 1 << 0,
	MRC_QP_CAP_DYNAMIC_MPR = 1 << 1,
	MRC_QP_CAP_SVC_TIME_DEST_UNSUPPORTED = 1 << 2,
};

struct mrc_qp_init_attr {
	void *qp_context;
	struct mrc_cq *send_cq;
	struct mrc_cq *recv_cq;
	struct ibv_qp_cap cap;
	int sq_sig_all;
	struct ibv_pd *pd;
	uint64_t send_ops_flags;
	enum mrc_protocol_version protocol_version;
};

struct mrc_qp_attr {
	struct {
		uint8_t mpr;      /* the peer's window, in units of 128 PSNs */
		uint8_t mpr_dest; /* the own one */
	} mpr;
	struct {
		uint16_t max_wimm;
		uint16_t max_wimm_dest;
	} wimm;
	uint8_t timeout; /* 1.024 us * 2^timeout */
	struct {
		uint64_t ev_profile_id;
		uint64_t cc_profile_id;
	} profile;
	struct {
		uint8_t linear_cnt;
		uint8_t exp_cnt; /* 25: for ever */
	} retry;
	struct mrc_qp_hint *qp_hint;
	uint32_t cap; /* enum mrc_qp_cap */
	uint8_t vendor_cfg[MRC_MAX_VENDOR_CFG_SIZE];
};

struct mrc_qp *mrc_create_qp(struct mrc_context *mcontext, struct mrc_qp_init_attr *init_attr);
int mrc_destroy_qp(struct mrc_qp *qp);
int mrc_modify_qp(struct mrc_qp *qp, struct ibv_qp_attr *attr, int attr_mask,
		  struct mrc_qp_attr *mrc_attr, int mrc_attr_mask);
int mrc_query_qp(struct mrc_qp *qp, struct ibv_qp_attr *attr, int attr_mask, struct mrc_qp_attr *mrc_attr,
		 int mrc_attr_mask, struct mrc_qp_init_attr *init_attr);
int mrc_get_qpn(struct mrc_qp *qp, uint32_t *qpn);
int mrc_post_recv(struct mrc_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);
int mrc_post_send(struct mrc_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);

/* ---- asynchronous events ---- */

struct mrc_async_event {
	union {
		struct mrc_cq *cq;
		struct mrc_qp *qp;
		int port_num;
	} element;
	enum ibv_event_type event_type;
};

int mrc_get_async_event(struct mrc_context *mcontext, struct mrc_async_event *event);
void mrc_ack_async_event(struct mrc_async_event *event);

#ifdef __cplusplus
}
#endif

#endif
