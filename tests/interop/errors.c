/*
 * What goes wrong on purpose. These scenarios judge little: they print what each side gets to see, so that pairs of devices
 * can be compared.
 */
#include "interop.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>

static const char *state_name(struct side *s)
{
	static const char *const names[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr made;
	CLAIM(!ibv_query_qp(s->qp, &attr, IBV_QP_STATE, &made));
	return attr.qp_state <= IBV_QPS_ERR ? names[attr.qp_state] : "?";
}

/* Puts what this side got to see into its figures: completions until there are `wanted`, the state, and events. */
static void tell_all(struct side *s, int wanted)
{
	char *at = s->figures, *end = s->figures + sizeof(s->figures);
	at += snprintf(at, end - at, "%s:", s->client ? "requester" : "responder");
	for (int i = 0; i < wanted; i++) {
		struct ibv_wc wc = next_completion(s);
		if (at < end)
			at += snprintf(at, end - at, " %s,", ibv_wc_status_str(wc.status));
	}
	struct ibv_wc wc;
	CLAIM(!completion_within(s, &wc, 300), "one completion more than expected: %s", ibv_wc_status_str(wc.status));
	if (at < end)
		at += snprintf(at, end - at, " %s", state_name(s));
	struct pollfd poller = {.fd = s->context->async_fd, .events = POLLIN};
	while (poll(&poller, 1, 0) > 0) {
		struct ibv_async_event event;
		CLAIM(!ibv_get_async_event(s->context, &event));
		if (at < end && event.event_type != IBV_EVENT_COMM_EST)
			at += snprintf(at, end - at, ", %s", ibv_event_type_str(event.event_type));
		ibv_ack_async_event(&event);
	}
}

/* Two requests, the first of which fails and the second is flushed with it. The responder has two receives. */
static void both_fail(struct side *s, enum ibv_wr_opcode opcode, uint32_t length, uint64_t to, uint32_t key)
{
	if (!s->client) {
		post_receive(s, 0, 100);
		post_receive(s, 4096, 100);
	}
	meet(s);
	if (s->client) {
		struct ibv_sge sge = piece(s, opcode == IBV_WR_RDMA_READ ? TARGET : SOURCE, length);
		struct ibv_send_wr wr = {.opcode = opcode, .send_flags = IBV_SEND_SIGNALED};
		wr.wr.rdma.remote_addr = to;
		wr.wr.rdma.rkey = key;
		post_sge(s, &sge, 1, &wr);
		post_sge(s, &sge, 1, &wr);
		tell_all(s, 2);
	}
	meet(s);
}

static void responder_sees(struct side *s, int completions)
{
	if (!s->client)
		tell_all(s, completions);
	meet(s);
}

#define RC (&(struct plan){.type = IBV_QPT_RC})

static void write_beyond(struct side *s)
{
	connect_pair(s, RC);
	both_fail(s, IBV_WR_RDMA_WRITE, 100, remote(s, MEMORY - 99), s->peer.rkey);
	responder_sees(s, 2);
}

static void write_without_key(struct side *s)
{
	connect_pair(s, RC);
	both_fail(s, IBV_WR_RDMA_WRITE, 3000, remote(s, TARGET), s->peer.rkey ^ 0x5a00);
	responder_sees(s, 2);
}

static void read_without_key(struct side *s)
{
	connect_pair(s, RC);
	both_fail(s, IBV_WR_RDMA_READ, 3000, remote(s, TARGET), s->peer.rkey ^ 0x5a00);
	responder_sees(s, 2);
}

static void read_not_allowed(struct side *s)
{
	connect_pair(s, &(struct plan){.type = IBV_QPT_RC, .no_rights = IBV_ACCESS_REMOTE_READ});
	both_fail(s, IBV_WR_RDMA_READ, 3000, remote(s, TARGET), s->peer.rkey);
	responder_sees(s, 2);
}

static void atomic_not_aligned(struct side *s)
{
	connect_pair(s, RC);
	if (!s->client)
		post_receive(s, 0, 100);
	meet(s);
	if (s->client) {
		struct ibv_sge sge = piece(s, SOURCE, 8);
		struct ibv_send_wr wr = {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .send_flags = IBV_SEND_SIGNALED}, *bad;
		wr.sg_list = &sge;
		wr.num_sge = 1;
		wr.wr.atomic.remote_addr = remote(s, TARGET + 4);
		wr.wr.atomic.rkey = s->peer.rkey;
		if (ibv_post_send(s->qp, &wr, &bad))
			snprintf(s->figures, sizeof(s->figures), "requester: refused at once");
		else
			tell_all(s, 1);
	}
	meet(s);
}

static void send_too_long(struct side *s)
{
	connect_pair(s, RC);
	both_fail(s, IBV_WR_SEND, 200, 0, 0);
	responder_sees(s, 2);
}

/* A receive whose memory is not the receiver's: its fault, and the sender is told so. */
static void receive_without_key(struct side *s)
{
	connect_pair(s, RC);
	if (!s->client) {
		struct ibv_sge sge = piece(s, TARGET, 100);
		sge.lkey ^= 0x5a00;
		struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
		CLAIM(!ibv_post_recv(s->qp, &wr, &bad));
	}
	meet(s);
	if (s->client) {
		post(s, IBV_WR_SEND, SOURCE, 100, 0, 0, 0);
		tell_all(s, 1);
	}
	meet(s);
	responder_sees(s, 1);
}

static void no_receive(struct side *s)
{
	connect_pair(s, &(struct plan){.type = IBV_QPT_RC, .rnr_retries = 2});
	meet(s);
	if (s->client) {
		post(s, IBV_WR_SEND, SOURCE, 100, 0, 0, 0);
		post(s, IBV_WR_SEND, SOURCE, 100, 0, 0, 0);
		tell_all(s, 2);
	}
	meet(s);
	responder_sees(s, 0);
}

/* The receive comes late, but within the retries: nothing fails. */
static void late_receive(struct side *s)
{
	connect_pair(s, RC);
	meet(s);
	if (s->client) {
		fill(s->memory, 3000, 8);
		post(s, IBV_WR_SEND, SOURCE, 3000, 0, 0, 0);
		struct ibv_wc wc;
		CLAIM(!completion_within(s, &wc, 200), "%s without a receive", ibv_wc_status_str(wc.status));
	}
	meet(s);
	if (s->client) {
		tell_all(s, 1);
	} else {
		post_receive(s, 0, 4000);
		received(s, 3000);
		expect(s, s->memory + TARGET, 3000, 8);
	}
	meet(s);
	responder_sees(s, 0);
}

/* No peer is there: the first transmission and one repetition, 67 ms to 268 ms each. */
static void no_peer(struct side *s)
{
	connect_pair(s, &(struct plan){.type = IBV_QPT_RC, .retries = 1, .wrong_qpn = s->client ? 0xabcde : 0});
	meet(s);
	if (s->client) {
		post(s, IBV_WR_RDMA_WRITE, SOURCE, 100, TARGET, 0, 0);
		post(s, IBV_WR_SEND, SOURCE, 100, 0, 0, 0);
		tell_all(s, 2);
	}
	meet(s);
	responder_sees(s, 0);
}

/* A peer that answers nothing, with the most retries that there are: eight transmissions, each of which is waited for between one and
 * four times 4096 ns * 2^12. rdma_rxe would go on for ever. */
static void stuck_peer(struct side *s)
{
	connect_pair(s, &(struct plan){.type = IBV_QPT_RC, .retries = 7, .timeout = 12, .wrong_qpn = s->client ? 0xabcde : 0});
	meet(s);
	if (s->client) {
		const unsigned least = 8 * 16, most = 8 * 4 * 17, late = 5000;
		uint64_t begun = now_milliseconds();
		post(s, IBV_WR_RDMA_WRITE, SOURCE, 100, TARGET, 0, 0);
		struct ibv_wc wc = next_completion(s);
		unsigned taken = now_milliseconds() - begun;
		CLAIM(wc.status == IBV_WC_RETRY_EXC_ERR, "%s", ibv_wc_status_str(wc.status));
		CLAIM(taken >= least && taken <= most + late, "after %u ms", taken);
		snprintf(s->figures, sizeof(s->figures), "RETRY_EXC_ERR after %u ms; the timer says %u to %u", taken, least, most);
	}
	meet(s);
}

/* Of three datagrams the one with the wrong key is missing. */
static void wrong_qkey(struct side *s)
{
	connect_pair(s, &(struct plan){.type = IBV_QPT_UD});
	if (!s->client)
		for (int i = 0; i < 3; i++)
			post_receive(s, 4096 * i, 200);
	meet(s);
	if (s->client) {
		struct ibv_ah *ah = address_of_peer(s);
		for (int i = 0; i < 3; i++) {
			struct ibv_sge sge = piece(s, SOURCE, 10 + i);
			struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
			wr.wr.ud.ah = ah;
			wr.wr.ud.remote_qpn = s->peer.qpn;
			wr.wr.ud.remote_qkey = QKEY + (i == 1);
			post_sge(s, &sge, 1, &wr);
		}
		tell_all(s, 3);
		ibv_destroy_ah(ah);
	} else {
		received(s, 50);
		received(s, 52);
		tell_all(s, 0);
	}
}

const struct named error_scenarios[] = {{"write-beyond", write_beyond},
					{"write-without-key", write_without_key},
					{"read-without-key", read_without_key},
					{"read-not-allowed", read_not_allowed},
					{"atomic-not-aligned", atomic_not_aligned},
					{"send-too-long", send_too_long},
					{"receive-without-key", receive_without_key},
					{"no-receive", no_receive},
					{"late-receive", late_receive},
					{"no-peer", no_peer},
					{"stuck-peer", stuck_peer},
					{"wrong-qkey", wrong_qkey},
					{NULL, NULL}};
