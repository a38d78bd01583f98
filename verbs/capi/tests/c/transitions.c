/* The table of transitions of ibv_modify_qp, written down once more: every type, from every state to every state, with
 * what it needs, without each of it, and with each attribute besides. A refusal is EINVAL and changes nothing. */
#include "expect.h"

enum {
	STATE = IBV_QP_STATE,
	CUR = IBV_QP_CUR_STATE,
	NOTIFY = IBV_QP_EN_SQD_ASYNC_NOTIFY,
	ACC = IBV_QP_ACCESS_FLAGS,
	PKI = IBV_QP_PKEY_INDEX,
	PORT = IBV_QP_PORT,
	QKEY = IBV_QP_QKEY,
	AV = IBV_QP_AV,
	PMTU = IBV_QP_PATH_MTU,
	TIMEOUT = IBV_QP_TIMEOUT,
	RETRY = IBV_QP_RETRY_CNT,
	RNR = IBV_QP_RNR_RETRY,
	RQPSN = IBV_QP_RQ_PSN,
	MQRA = IBV_QP_MAX_QP_RD_ATOMIC,
	ALT = IBV_QP_ALT_PATH,
	MRT = IBV_QP_MIN_RNR_TIMER,
	SQPSN = IBV_QP_SQ_PSN,
	MDRA = IBV_QP_MAX_DEST_RD_ATOMIC,
	MIG = IBV_QP_PATH_MIG_STATE,
	CAP = IBV_QP_CAP,
	DQPN = IBV_QP_DEST_QPN,
};

enum { RC, UC, UD, INI, TGT, TYPES };
static const enum ibv_qp_type TYPE[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV};
/* What XRC queue pairs have no use for is overlooked. */
static const int OVERLOOKED[TYPES] = {[INI] = MDRA | MRT, [TGT] = MQRA | RETRY | RNR};

struct row {
	enum ibv_qp_state from, to;
	int required[TYPES], optional[TYPES];
};

#define ALL(mask) {mask, mask, mask, mask, mask}
#define RESET_ IBV_QPS_RESET
#define INIT_ IBV_QPS_INIT
#define RTR_ IBV_QPS_RTR
#define RTS_ IBV_QPS_RTS
#define SQD_ IBV_QPS_SQD
#define SQE_ IBV_QPS_SQE
#define ERR_ IBV_QPS_ERR

static const struct row TABLE[] = {
	{RESET_, RESET_, ALL(0), ALL(0)},
	{RESET_, INIT_, {PKI | PORT | ACC, PKI | PORT | ACC, PKI | PORT | QKEY, PKI | PORT | ACC, PKI | PORT | ACC}, ALL(0)},
	{INIT_, INIT_, ALL(0), {PKI | PORT | ACC, PKI | PORT | ACC, PKI | PORT | QKEY, PKI | PORT | ACC, PKI | PORT | ACC}},
	{INIT_, RTR_,
	 {AV | PMTU | DQPN | RQPSN | MDRA | MRT, AV | PMTU | DQPN | RQPSN, 0, AV | PMTU | DQPN | RQPSN,
	  AV | PMTU | DQPN | RQPSN | MDRA | MRT},
	 {ALT | ACC | PKI, ALT | ACC | PKI, PKI | QKEY, ALT | ACC | PKI, ALT | ACC | PKI}},
	{RTR_, RTS_,
	 {TIMEOUT | RETRY | RNR | SQPSN | MQRA, SQPSN, SQPSN, TIMEOUT | RETRY | RNR | SQPSN | MQRA, TIMEOUT | SQPSN},
	 {CUR | ALT | ACC | MRT | MIG, CUR | ALT | ACC | MIG, CUR | QKEY, CUR | ALT | ACC | MIG, CUR | ALT | ACC | MRT | MIG}},
	{RTS_, RTS_, ALL(0),
	 {CUR | ACC | ALT | MIG | MRT, CUR | ACC | ALT | MIG, CUR | QKEY, CUR | ACC | ALT | MIG, CUR | ACC | ALT | MIG | MRT}},
	{RTS_, SQD_, ALL(0), ALL(NOTIFY)},
	{SQD_, RTS_, ALL(0),
	 {CUR | ALT | ACC | MRT | MIG, CUR | ALT | ACC | MIG, CUR | QKEY, CUR | ALT | ACC | MIG, CUR | ALT | ACC | MRT | MIG}},
	{SQD_, SQD_, ALL(0),
	 {PORT | AV | TIMEOUT | RETRY | RNR | MQRA | MDRA | ALT | ACC | PKI | MRT | MIG, AV | ALT | ACC | PKI | MIG, PKI | QKEY,
	  PORT | AV | TIMEOUT | RETRY | RNR | MQRA | ALT | ACC | PKI | MIG,
	  PORT | AV | TIMEOUT | MDRA | ALT | ACC | PKI | MRT | MIG}},
};

/* Required and optional attributes; 0: there is no such transition. */
static int transition(int type, enum ibv_qp_state from, enum ibv_qp_state to, int *required, int *optional)
{
	*required = *optional = 0;
	if ((to == RESET_ || to == ERR_) && from != RESET_)
		return 1;
	for (size_t i = 0; i < sizeof(TABLE) / sizeof(*TABLE); i++) {
		if (TABLE[i].from == from && TABLE[i].to == to) {
			*required = TABLE[i].required[type];
			*optional = TABLE[i].optional[type];
			return 1;
		}
	}
	return 0;
}

static struct ibv_xrcd *xrcd;

static struct ibv_qp_attr legal(enum ibv_qp_state from, enum ibv_qp_state to)
{
	struct ibv_qp_attr attr = {
		.qp_state = to,
		.cur_qp_state = from,
		.path_mtu = IBV_MTU_1024,
		.qkey = 0x1111,
		.dest_qp_num = 0x42,
		.qp_access_flags = RIGHTS,
		.ah_attr = own_address(),
		.alt_ah_attr = own_address(),
		.max_rd_atomic = 4,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 12,
		.port_num = 1,
		.alt_port_num = 1,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
	};
	return attr;
}

static struct ibv_qp *in_state(int type, enum ibv_qp_state state)
{
	static const enum ibv_qp_state way[] = {RESET_, INIT_, RTR_, RTS_, SQD_};
	struct ibv_qp_init_attr_ex wants = {.qp_type = TYPE[type], .cap = {.max_send_wr = 1, .max_recv_wr = 1}};
	if (type == TGT) {
		wants.comp_mask = IBV_QP_INIT_ATTR_XRCD;
		wants.xrcd = xrcd;
	} else {
		wants.comp_mask = IBV_QP_INIT_ATTR_PD;
		wants.pd = pd;
		wants.send_cq = cq;
		wants.recv_cq = type == INI ? NULL : cq;
	}
	struct ibv_qp *qp = ibv_create_qp_ex(ctx, &wants);
	CLAIM(qp);
	for (int i = 0; i < 4 && qp->state != state; i++) {
		int required, optional;
		enum ibv_qp_state next = state == ERR_ && way[i] == INIT_ ? ERR_ : way[i + 1];
		struct ibv_qp_attr attr = legal(way[i], next);
		CLAIM(transition(type, way[i], next, &required, &optional));
		FAILS(ibv_modify_qp(qp, &attr, STATE | required), 0);
		if (next == ERR_)
			break;
	}
	CLAIM(qp->state == state);
	return qp;
}

static int tried;

static void attempt(int type, enum ibv_qp_state from, enum ibv_qp_state to, int mask, int expected)
{
	struct ibv_qp *qp = in_state(type, from);
	struct ibv_qp_attr attr = legal(from, to), after;
	struct ibv_qp_init_attr made;
	int outcome = ibv_modify_qp(qp, &attr, mask);
	if (outcome != expected) {
		fprintf(stderr, "type %d from %d to %d with %#x: %d, not %d\n", TYPE[type], from, to, mask, outcome, expected);
		exit(1);
	}
	FAILS(ibv_query_qp(qp, &after, STATE, &made), 0);
	CLAIM(after.qp_state == (expected || !(mask & STATE) ? from : to) && qp->state == after.qp_state);
	FAILS(ibv_destroy_qp(qp), 0);
	tried++;
}

int main(void)
{
	struct ibv_xrcd_init_attr xrcd_wants = {.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT};
	open_device();
	CLAIM((xrcd = ibv_open_xrcd(ctx, &xrcd_wants)));
	for (int type = 0; type < TYPES; type++) {
		for (int from = RESET_; from <= ERR_; from++) {
			if (from == SQE_)
				continue;
			for (int to = RESET_; to <= ERR_; to++) {
				int required, optional;
				if (!transition(type, from, to, &required, &optional)) {
					attempt(type, from, to, STATE, EINVAL);
					continue;
				}
				attempt(type, from, to, STATE | required, 0);
				attempt(type, from, to, STATE | required | optional, 0);
				for (int bit = CUR; bit <= DQPN; bit <<= 1) {
					int allowed = optional | OVERLOOKED[type];
					if (required & bit)
						attempt(type, from, to, STATE | (required & ~bit), EINVAL);
					else
						attempt(type, from, to, STATE | required | bit, allowed & bit ? 0 : EINVAL);
				}
				attempt(type, from, to, STATE | required | IBV_QP_RATE_LIMIT, EOPNOTSUPP);
				attempt(type, from, to, STATE | required | 1 << 22, EOPNOTSUPP);
			}
			/* Without a state it is the transition to the same state. */
			int required, optional;
			int exists = transition(type, from, from, &required, &optional);
			attempt(type, from, from, 0, exists && !required ? 0 : EINVAL);
		}
	}
	CLAIM(tried > 2000);
	FAILS(ibv_close_xrcd(xrcd), 0);
	FAILS(ibv_dereg_mr(mr), 0);
	FAILS(ibv_destroy_cq(cq), 0);
	FAILS(ibv_destroy_comp_channel(channel), 0);
	FAILS(ibv_dealloc_pd(pd), 0);
	FAILS(ibv_close_device(ctx), 0);
	return 0;
}
