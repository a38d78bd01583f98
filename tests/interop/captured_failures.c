/* Of what the captures in tests/golden have, that which fails in the end, or has to be sent again. */
#include "interop.h"

static void connect_as_captured(struct side *s)
{
	struct plan plan = as_captured(s, IBV_QPT_RC);
	connect_pair(s, &plan);
}

static void fails(struct side *s, enum ibv_wc_status status)
{
	struct ibv_wc wc = next_completion(s);
	CLAIM(wc.status == status, "%s, not %s", ibv_wc_status_str(wc.status), ibv_wc_status_str(status));
}

/* The receive comes late. */
static void late_receive(struct side *s)
{
	connect_as_captured(s);
	meet(s);
	if (s->client) {
		post(s, IBV_WR_SEND, SOURCE, 100, 0, 0, 0);
		struct ibv_wc wc;
		CLAIM(!completion_within(s, &wc, 50), "%s without a receive", ibv_wc_status_str(wc.status));
	}
	meet(s);
	if (s->client) {
		succeed(s, 1);
	} else {
		post_receive(s, 0, 65536);
		received(s, 100);
	}
}

/* The receive never comes. */
static void no_receive(struct side *s)
{
	struct plan plan = as_captured(s, IBV_QPT_RC);
	plan.rnr_retries = 2;
	connect_pair(s, &plan);
	if (!s->client)
		return;
	post(s, IBV_WR_SEND, SOURCE, 100, 0, 0, 0);
	fails(s, IBV_WC_RNR_RETRY_EXC_ERR);
}

static void write_without_key(struct side *s)
{
	connect_as_captured(s);
	if (!s->client)
		return;
	write_with(s, s->peer.rkey ^ 0x40, TARGET, 100);
	fails(s, IBV_WC_REM_ACCESS_ERR);
}

static void read_beyond(struct side *s)
{
	connect_as_captured(s);
	if (!s->client)
		return;
	post(s, IBV_WR_RDMA_READ, TARGET, 100, MEMORY - 50, 0, 0);
	fails(s, IBV_WC_REM_ACCESS_ERR);
}

/* rdma_rxe calls it an error of the operation, pumice and adapters an invalid request. */
static void send_too_long(struct side *s)
{
	connect_as_captured(s);
	if (!s->client)
		post_receive(s, 0, 10);
	meet(s);
	if (s->client)
		post(s, IBV_WR_SEND, SOURCE, 100, 0, 0, 0);
	struct ibv_wc wc = next_completion(s);
	CLAIM(wc.status == (s->client ? IBV_WC_REM_OP_ERR : IBV_WC_LOC_QP_OP_ERR) ||
		      wc.status == (s->client ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_LOC_LEN_ERR),
	      "%s", ibv_wc_status_str(wc.status));
}

/* The peer's queue pair has gone back to RESET: it answers nothing. */
static void no_answer(struct side *s)
{
	struct plan plan = as_captured(s, IBV_QPT_RC);
	plan.timeout = 12;
	plan.retries = 3;
	connect_pair(s, &plan);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
	if (!s->client)
		CLAIM(!ibv_modify_qp(s->qp, &attr, IBV_QP_STATE));
	meet(s);
	if (!s->client)
		return;
	post(s, IBV_WR_SEND, SOURCE, 100, 0, 0, 0);
	fails(s, IBV_WC_RETRY_EXC_ERR);
}

/* A WRITE with the key of a window, a SEND that takes the key back, and a WRITE with what is none any more. */
static void invalidated(struct side *s)
{
	connect_as_captured(s);
	if (!s->client) {
		struct ibv_mw *window = bind_window(s, IBV_MW_TYPE_2);
		post_receive(s, 8192, 65536);
		meet(s);
		received(s, 32);
		post_receive(s, 8192, 65536);
		meet(s);
		meet(s);
		ibv_destroy_qp(s->qp);
		s->qp = NULL;
		CLAIM(!ibv_dealloc_mw(window));
		return;
	}
	uint32_t key = tell(s, 0);
	meet(s);
	write_with(s, key, TARGET, 64);
	succeed(s, 1);
	send_and_invalidate(s, key, 32);
	succeed(s, 1);
	meet(s);
	write_with(s, key, TARGET, 64);
	fails(s, IBV_WC_REM_ACCESS_ERR);
	meet(s);
}

static void flush_as(struct side *s, int more_rights)
{
	struct plan plan = as_captured(s, IBV_QPT_RC);
	plan.more_rights = more_rights;
	connect_able_pair(s, ABILITY_FLUSH_GLOBAL, plan);
}

/* Memory is seen by all, a range of it and a whole region; none is made to last. */
static void flush(struct side *s)
{
	flush_as(s, ACCESS_FLUSH_GLOBAL);
	if (!s->client)
		return;
	post_flush(s, 1, TARGET, 512, FLUSH_VISIBLE, FLUSH_RANGE);
	succeed(s, 1);
	post_flush(s, 2, TARGET, 0, FLUSH_VISIBLE, FLUSH_REGION);
	succeed(s, 1);
	post_flush(s, 3, TARGET, 512, FLUSH_PERSISTENT, FLUSH_RANGE);
	fails(s, IBV_WC_REM_INV_REQ_ERR);
}

static void flush_not_allowed(struct side *s)
{
	flush_as(s, 0);
	if (!s->client)
		return;
	post_flush(s, 1, TARGET, 512, FLUSH_VISIBLE, FLUSH_RANGE);
	fails(s, IBV_WC_REM_INV_REQ_ERR);
}

const struct named captured_failures[] = {{"rc-rnr", late_receive},
					  {"rc-rnr-exhausted", no_receive},
					  {"rc-nak-access-write", write_without_key},
					  {"rc-nak-access-read", read_beyond},
					  {"rc-nak-invalid-len", send_too_long},
					  {"rc-retry-exhausted", no_answer},
					  {"rc-send-inv", invalidated},
					  {"rc-flush", flush},
					  {"rc-flush-noaccess", flush_not_allowed},
					  {NULL, NULL}};
