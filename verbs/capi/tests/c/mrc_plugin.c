/*
 * A collective library's plug-in: libmrc.so is opened with dlopen(3), the context has all zeros, the queue pair gets a
 * hint, and masks of MRC are 0 otherwise. Both sides write, with immediate and with empty ones too, at once. Then what
 * MRC lacks is refused.
 *   mrc_plugin server|client ADDRESS PORT ROUNDS
 */
#include "mrc_kit.h"
#include <dlfcn.h>

enum { DEPTH = 64, LENGTH = 100000 };

#define OF_LIBRARY(call) static __typeof__(&call) do_##call
OF_LIBRARY(mrc_query_device);
OF_LIBRARY(mrc_query_version);
OF_LIBRARY(mrc_create_context);
OF_LIBRARY(mrc_destroy_context);
OF_LIBRARY(mrc_create_comp_channel);
OF_LIBRARY(mrc_get_comp_channel_fd);
OF_LIBRARY(mrc_destroy_comp_channel);
OF_LIBRARY(mrc_create_cq);
OF_LIBRARY(mrc_destroy_cq);
OF_LIBRARY(mrc_poll_cq);
OF_LIBRARY(mrc_req_notify_cq);
OF_LIBRARY(mrc_get_cq_event);
OF_LIBRARY(mrc_ack_cq_events);
OF_LIBRARY(mrc_create_qp_hint);
OF_LIBRARY(mrc_destroy_qp_hint);
OF_LIBRARY(mrc_query_qp_hint);
OF_LIBRARY(mrc_modify_qp_hint);
OF_LIBRARY(mrc_create_qp);
OF_LIBRARY(mrc_destroy_qp);
OF_LIBRARY(mrc_modify_qp);
OF_LIBRARY(mrc_query_qp);
OF_LIBRARY(mrc_get_qpn);
OF_LIBRARY(mrc_post_recv);
OF_LIBRARY(mrc_post_send);
OF_LIBRARY(mrc_get_async_event);
OF_LIBRARY(mrc_ack_async_event);

static void *library;
#define FIND(call) CLAIM((do_##call = (__typeof__(&call))dlsym(library, #call)))

static void open_library(void)
{
	CLAIM((library = dlopen("libmrc.so", RTLD_NOW)));
	FIND(mrc_query_device);
	FIND(mrc_query_version);
	FIND(mrc_create_context);
	FIND(mrc_destroy_context);
	FIND(mrc_create_comp_channel);
	FIND(mrc_get_comp_channel_fd);
	FIND(mrc_destroy_comp_channel);
	FIND(mrc_create_cq);
	FIND(mrc_destroy_cq);
	FIND(mrc_poll_cq);
	FIND(mrc_req_notify_cq);
	FIND(mrc_get_cq_event);
	FIND(mrc_ack_cq_events);
	FIND(mrc_create_qp_hint);
	FIND(mrc_destroy_qp_hint);
	FIND(mrc_query_qp_hint);
	FIND(mrc_modify_qp_hint);
	FIND(mrc_create_qp);
	FIND(mrc_destroy_qp);
	FIND(mrc_modify_qp);
	FIND(mrc_query_qp);
	FIND(mrc_get_qpn);
	FIND(mrc_post_recv);
	FIND(mrc_post_send);
	FIND(mrc_get_async_event);
	FIND(mrc_ack_async_event);
}

static struct mrc_context *mrc;
static struct mrc_comp_channel *events;
static struct mrc_cq *queue;
static struct mrc_qp_hint *hint;
static struct mrc_qp *qp;
static uint8_t *own_bytes, *peers_bytes;
static struct ibv_mr *sent, *received;

static void post_receives(int count)
{
	for (int index = 0; index < count; index++) {
		struct ibv_recv_wr wr = {.wr_id = 1000}, *bad;
		FAILS(do_mrc_post_recv(qp, &wr, &bad), 0);
	}
}

static void make(uint32_t *qpn)
{
	uint32_t current, last, vendor, last_vendor;
	do_mrc_query_version(&current, &last, &vendor, &last_vendor);
	CLAIM(current == MRC_API_CURRENT_VERSION && last == MRC_API_LAST_SUPPORTED_VERSION);
	int supported = 0, fd = -1;
	struct mrc_device_attr device;
	CLAIM(do_mrc_query_device(ctx, &device, &supported) == 0 && supported == 1);
	struct mrc_context_attr zeros = {0};
	CLAIM((mrc = do_mrc_create_context(ctx, &zeros)));
	CLAIM(do_mrc_create_comp_channel(mrc, &events) == 0 && do_mrc_get_comp_channel_fd(events, &fd) == 0 && fd >= 0);
	CLAIM((queue = do_mrc_create_cq(mrc, 2 * DEPTH, &queue, events, 0)));
	struct mrc_qp_hint_init_attr hints = {.attr = {.num_qps_per_peer = 1, .num_send_peers = 1}};
	CLAIM((hint = do_mrc_create_qp_hint(mrc, &hints)));
	struct mrc_qp_hint_attr more = {.num_remote_recv_peers = 1}, asked = {0};
	CLAIM(do_mrc_modify_qp_hint(hint, &more, MRC_QP_HINT_NUM_REMOTE_RECV_PEERS) == 0);
	CLAIM(do_mrc_query_qp_hint(hint, &asked, MRC_QP_HINT_NUM_REMOTE_RECV_PEERS | MRC_QP_HINT_NUM_SEND_PEERS) == 0);
	CLAIM(asked.num_send_peers == 1 && asked.num_remote_recv_peers == 1 && asked.num_qps_per_peer == 0);
	struct mrc_qp_init_attr init = {
		.send_cq = queue,
		.recv_cq = queue,
		.cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 64},
		.pd = pd,
		.qp_context = &qp,
	};
	CLAIM((qp = do_mrc_create_qp(mrc, &init)));
	CLAIM(do_mrc_get_qpn(qp, qpn) == 0);
	/* Some libraries take the first word for an ibv_qp. */
	CLAIM((*(struct ibv_qp **)qp)->qp_num == *qpn && (*(struct ibv_qp **)qp)->context == ctx);
}

static void connect_qp(const struct side *own, const struct side *other)
{
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
	struct mrc_qp_attr hinted = {.qp_hint = hint};
	FAILS(do_mrc_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, &hinted,
			       MRC_QP_HINT),
	      0);
	CLAIM(do_mrc_destroy_qp_hint(hint) == -1 && errno == EBUSY);
	post_receives(DEPTH);
	struct ibv_port_attr port;
	CLAIM(ibv_query_port(ctx, 1, &port) == 0);
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = port.active_mtu,
		.dest_qp_num = other->qpn,
		.rq_psn = other->psn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1,
			    .grh = {.dgid = other->gid, .sgid_index = own_gid_index, .hop_limit = 255},
			    .port_num = 1},
	};
	int to_rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	/* Without the address nothing changes. */
	FAILS(do_mrc_modify_qp(qp, &rtr, to_rtr & ~IBV_QP_AV, NULL, 0), EINVAL);
	struct mrc_qp_attr narrow = {.mpr = {.mpr_dest = 0}};
	FAILS(do_mrc_modify_qp(qp, &rtr, to_rtr, &narrow, MRC_QP_MPR_DEST), EINVAL);
	FAILS(do_mrc_modify_qp(qp, &rtr, to_rtr, NULL, 0), 0);
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS, .sq_psn = own->psn, .timeout = 12, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
	FAILS(do_mrc_modify_qp(qp, &rts,
			       IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				       IBV_QP_MAX_QP_RD_ATOMIC,
			       NULL, 0),
	      0);
}

/* Posts a message of a round, and then an empty one with immediate data, as plug-ins end a transfer. */
static void post_round(unsigned round, const struct side *other)
{
	uint64_t offset = (uint64_t)(round % 8) * LENGTH;
	uint32_t length = 1 + (round * 7919) % LENGTH;
	fill(own_bytes + offset, length, round);
	struct ibv_sge sge = {(uintptr_t)own_bytes + offset, length, sent->lkey};
	struct ibv_send_wr empty = {.wr_id = 2 * round + 1,
				    .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
				    .imm_data = htonl(round),
				    .send_flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED};
	struct ibv_send_wr data = {.wr_id = 2 * round,
				   .next = &empty,
				   .sg_list = &sge,
				   .num_sge = 1,
				   .opcode = IBV_WR_RDMA_WRITE,
				   .wr.rdma = {other->address + offset, other->rkey}},
			   *bad;
	FAILS(do_mrc_post_send(qp, &data, &bad), 0);
}

static struct ibv_wc sleep_for_one(void)
{
	struct ibv_wc wc = {0};
	for (;;) {
		int count = do_mrc_poll_cq(queue, 1, &wc);
		CLAIM(count >= 0);
		if (count == 1)
			return wc;
		CLAIM(do_mrc_req_notify_cq(queue, 0) == 0);
		count = do_mrc_poll_cq(queue, 1, &wc);
		CLAIM(count >= 0);
		if (count == 1)
			return wc;
		struct mrc_cq *fired;
		void *of_program;
		CLAIM(do_mrc_get_cq_event(events, &fired, &of_program) == 0 && fired == queue && of_program == &queue);
		do_mrc_ack_cq_events(fired, 1);
	}
}

static void exchange_rounds(unsigned rounds, const struct side *other, uint32_t qpn, int fd)
{
	unsigned had = 0, done = 0;
	for (unsigned last = 8; last <= rounds; last += 8) {
		for (unsigned round = last - 8; round < last; round++)
			post_round(round, other);
		while (done < last || had < last) {
			struct ibv_wc wc = sleep_for_one();
			CLAIM(wc.status == IBV_WC_SUCCESS && wc.qp_num == qpn);
			if (wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
				CLAIM(ntohl(wc.imm_data) == had && wc.byte_len == 0 && wc.wr_id == 1000);
				holds(peers_bytes + (had % 8) * LENGTH, 1 + (had * 7919) % LENGTH, had);
				had++;
				post_receives(1);
			} else {
				CLAIM(wc.opcode == IBV_WC_RDMA_WRITE && wc.wr_id == 2 * done + 1);
				done++;
			}
		}
		/* No part of the peer's buffer is written again before it was read. */
		together(fd);
	}
}

/* What MRC lacks, and what ends a queue pair. */
static void what_is_refused(const struct side *other, int is_server, int fd)
{
	struct ibv_sge sge = {(uintptr_t)own_bytes, 8, sent->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad = NULL;
	FAILS(do_mrc_post_send(qp, &wr, &bad), EINVAL);
	CLAIM(bad == &wr);
	wr.opcode = IBV_WR_RDMA_READ;
	wr.wr.rdma.remote_addr = other->address;
	wr.wr.rdma.rkey = other->rkey;
	FAILS(do_mrc_post_send(qp, &wr, &bad), EINVAL);
	together(fd);
	if (!is_server) {
		/* A key that the peer does not have. */
		wr.opcode = IBV_WR_RDMA_WRITE;
		wr.wr.rdma.rkey = other->rkey ^ 0x5500;
		FAILS(do_mrc_post_send(qp, &wr, &bad), 0);
		struct ibv_wc wc = sleep_for_one();
		CLAIM(wc.status == IBV_WC_REM_ACCESS_ERR);
		FAILS(do_mrc_post_send(qp, &wr, &bad), 0);
		do
			wc = sleep_for_one();
		while (wc.wr_id == 1000);
		CLAIM(wc.status == IBV_WC_WR_FLUSH_ERR);
		return;
	}
	struct mrc_async_event event;
	do {
		CLAIM(do_mrc_get_async_event(mrc, &event) == 0);
		CLAIM(event.element.qp == qp);
		do_mrc_ack_async_event(&event);
	} while (event.event_type == IBV_EVENT_COMM_EST);
	CLAIM(event.event_type == IBV_EVENT_QP_ACCESS_ERR);
	struct ibv_qp_attr now;
	FAILS(do_mrc_query_qp(qp, &now, IBV_QP_STATE, NULL, 0, NULL), 0);
	CLAIM(now.qp_state == IBV_QPS_ERR);
}

int main(int argc, char **argv)
{
	CLAIM(argc == 5);
	int is_server = strcmp(argv[1], "server") == 0;
	int fd = meet(is_server, argv[2], atoi(argv[3]));
	open_library();
	open_device();
	CLAIM((own_bytes = calloc(8, LENGTH)) && (peers_bytes = calloc(8, LENGTH)));
	CLAIM((sent = ibv_reg_mr(pd, own_bytes, 8 * LENGTH, IBV_ACCESS_LOCAL_WRITE)));
	CLAIM((received = ibv_reg_mr(pd, peers_bytes, 8 * LENGTH, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)));
	struct side own = {own_gid, (uintptr_t)peers_bytes, 0, is_server ? 123 : 0xfffffe, received->rkey, LENGTH}, other;
	make(&own.qpn);
	exchange(fd, &own, &other, sizeof(own));
	connect_qp(&own, &other);
	together(fd);
	exchange_rounds(atoi(argv[4]), &other, own.qpn, fd);
	together(fd);
	what_is_refused(&other, is_server, fd);
	together(fd);
	FAILS(do_mrc_destroy_qp(qp), 0);
	CLAIM(do_mrc_destroy_qp_hint(hint) == 0);
	FAILS(do_mrc_destroy_cq(queue), 0);
	FAILS(do_mrc_destroy_comp_channel(events), 0);
	CLAIM(do_mrc_destroy_context(mrc) == 0);
	FAILS(ibv_dereg_mr(sent), 0);
	FAILS(ibv_dereg_mr(received), 0);
	FAILS(ibv_close_device(ctx), 0);
	return 0;
}
