/* Uses all its devices in turns, each with a peer of its own: datagrams, and messages of a connection. Says of each
 * device its name and the numbers of its queue pairs, is told of each "ADDRESS QP QP DATAGRAMS", the peer's and how
 * many datagrams will come, and goes at a further line. Then it says which datagrams came, and a digest of the
 * messages, and stays until its input ends. */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	DEVICES = 4,
	DATAGRAMS = 12,
	MESSAGES = 6,
	BYTES = 3000,
	SLOT = 4096,
	HEADER = 40,
	Q_KEY = 7,
	LINE = 128,
	SECONDS = 120,
	IS_MESSAGE = 100,
	IS_SENT = 1000,
};

struct rail {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *datagrams, *messages;
	struct ibv_ah *peer;
	unsigned peer_datagrams, peer_messages;
	int expected, came, messages_came, sent;
	int numbers[DATAGRAMS];
	uint64_t digest;
	/* A datagram or message that leaves, and those that come. */
	uint8_t bytes[(1 + DATAGRAMS + MESSAGES) * SLOT];
};

static struct rail rails[DEVICES];
static int count;

#define CHECK(good)                                                                           \
	do {                                                                                  \
		if (!(good)) {                                                                \
			fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #good, strerror(errno)); \
			exit(1);                                                              \
		}                                                                             \
	} while (0)

static struct ibv_qp *make(struct rail *rail, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr wants = {
		.send_cq = rail->cq,
		.recv_cq = rail->cq,
		.cap = {.max_send_wr = 1, .max_recv_wr = DATAGRAMS, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = type,
		.sq_sig_all = 1,
	};
	return ibv_create_qp(rail->pd, &wants);
}

static void begin(struct rail *rail, struct ibv_device *device)
{
	CHECK(rail->context = ibv_open_device(device));
	CHECK(rail->pd = ibv_alloc_pd(rail->context));
	CHECK(rail->cq = ibv_create_cq(rail->context, 64, NULL, NULL, 0));
	CHECK(rail->mr = ibv_reg_mr(rail->pd, rail->bytes, sizeof rail->bytes, IBV_ACCESS_LOCAL_WRITE));
	CHECK(rail->datagrams = make(rail, IBV_QPT_UD));
	CHECK(rail->messages = make(rail, IBV_QPT_RC));
	printf("%s %u %u\n", ibv_get_device_name(device), rail->datagrams->qp_num, rail->messages->qp_num);
}

static struct ibv_ah_attr hear_of_peer(struct rail *rail)
{
	char line[LINE], address[LINE];
	struct ibv_ah_attr to = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64}};
	CHECK(fgets(line, sizeof line, stdin));
	int found = sscanf(line, "%127s %u %u %d", address, &rail->peer_datagrams, &rail->peer_messages,
			   &rail->expected);
	CHECK(found == 4 && rail->expected <= DATAGRAMS);
	memset(to.grh.dgid.raw + 10, 0xff, 2);
	CHECK(inet_pton(AF_INET, address, to.grh.dgid.raw + 12) == 1);
	return to;
}

static void connect_datagrams(struct rail *rail, struct ibv_ah_attr *to)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = Q_KEY};
	int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
	CHECK(!ibv_modify_qp(rail->datagrams, &attr, init));
	attr.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(rail->datagrams, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(rail->datagrams, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
	CHECK(rail->peer = ibv_create_ah(rail->pd, to));
}

static void connect_messages(struct rail *rail, const struct ibv_ah_attr *to)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	CHECK(!ibv_modify_qp(rail->messages, &attr, init));
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = rail->peer_messages,
		.min_rnr_timer = 12,
		.ah_attr = *to,
	};
	CHECK(!ibv_modify_qp(rail->messages, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 20, .retry_cnt = 7, .rnr_retry = 7};
	CHECK(!ibv_modify_qp(rail->messages, &attr,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static uint8_t *slot(struct rail *rail, int receive)
{
	return rail->bytes + (size_t)(1 + receive) * SLOT;
}

static void post_receive(struct rail *rail, int receive)
{
	int is_message = receive >= DATAGRAMS;
	struct ibv_sge sge = {.addr = (uintptr_t)slot(rail, receive), .length = SLOT, .lkey = rail->mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
	wr.wr_id = is_message ? IS_MESSAGE + receive : receive;
	CHECK(!ibv_post_recv(is_message ? rail->messages : rail->datagrams, &wr, &bad));
}

/* Takes a completion, if there is one. */
static void take(struct rail *rail)
{
	struct ibv_wc wc;
	int found = ibv_poll_cq(rail->cq, 1, &wc);
	CHECK(found >= 0 && (!found || wc.status == IBV_WC_SUCCESS));
	if (!found)
		return;
	if (wc.wr_id == IS_SENT) {
		rail->sent++;
		return;
	}
	if (wc.wr_id >= IS_MESSAGE) {
		const uint8_t *bytes = slot(rail, (int)wc.wr_id - IS_MESSAGE);
		CHECK(wc.byte_len == BYTES);
		for (int i = 0; i < BYTES; i++)
			rail->digest = (rail->digest ^ bytes[i]) * 0x100000001b3;
		rail->messages_came++;
	} else {
		CHECK(wc.byte_len == HEADER + 8 && rail->came < DATAGRAMS);
		rail->numbers[rail->came++] = slot(rail, (int)wc.wr_id)[HEADER];
	}
	/* A device whose receives run out leaves packets where they are. */
	post_receive(rail, (int)(wc.wr_id >= IS_MESSAGE ? wc.wr_id - IS_MESSAGE : wc.wr_id));
}

static void take_all(void)
{
	for (int i = 0; i < count; i++)
		take(&rails[i]);
}

static void send_and_wait(struct rail *rail, struct ibv_qp *qp, uint32_t length)
{
	struct ibv_sge sge = {.addr = (uintptr_t)rail->bytes, .length = length, .lkey = rail->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = IS_SENT, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
	if (qp == rail->datagrams) {
		wr.wr.ud.ah = rail->peer;
		wr.wr.ud.remote_qpn = rail->peer_datagrams;
		wr.wr.ud.remote_qkey = Q_KEY;
	}
	int before = rail->sent;
	CHECK(!ibv_post_send(qp, &wr, &bad));
	while (rail->sent == before)
		take_all();
}

static int by_number(const void *one, const void *other)
{
	return *(const int *)one - *(const int *)other;
}

/* Datagrams that were late came in another order. */
static void say(struct rail *rail)
{
	qsort(rail->numbers, (size_t)rail->came, sizeof *rail->numbers, by_number);
	printf("%s got", ibv_get_device_name(rail->context->device));
	for (int i = 0; i < rail->came; i++)
		printf(" %d", rail->numbers[i]);
	printf(", %d messages %016llx\n", rail->messages_came, (unsigned long long)rail->digest);
}

int main(void)
{
	char line[LINE];
	struct ibv_device **list = ibv_get_device_list(&count);
	CHECK(list && count > 0 && count <= DEVICES);
	setvbuf(stdout, NULL, _IOLBF, 0);
	alarm(SECONDS);
	for (int i = 0; i < count; i++)
		begin(&rails[i], list[i]);
	for (int i = 0; i < count; i++) {
		struct ibv_ah_attr to = hear_of_peer(&rails[i]);
		connect_datagrams(&rails[i], &to);
		connect_messages(&rails[i], &to);
		for (int receive = 0; receive < DATAGRAMS + MESSAGES; receive++)
			post_receive(&rails[i], receive);
	}
	puts("ready");
	CHECK(fgets(line, sizeof line, stdin));
	for (int number = 0; number < DATAGRAMS; number++)
		for (int i = 0; i < count; i++) {
			rails[i].bytes[0] = (uint8_t)number;
			send_and_wait(&rails[i], rails[i].datagrams, 8);
		}
	for (int number = 0; number < MESSAGES; number++)
		for (int i = 0; i < count; i++) {
			memset(rails[i].bytes, 'a' + i * MESSAGES + number, BYTES);
			send_and_wait(&rails[i], rails[i].messages, BYTES);
		}
	for (int i = 0; i < count; i++) {
		while (rails[i].came < rails[i].expected || rails[i].messages_came < MESSAGES)
			take_all();
		say(&rails[i]);
	}
	CHECK(!fgets(line, sizeof line, stdin));
	for (int i = 0; i < count; i++) {
		CHECK(!ibv_destroy_ah(rails[i].peer));
		CHECK(!ibv_destroy_qp(rails[i].datagrams) && !ibv_destroy_qp(rails[i].messages));
		CHECK(!ibv_dereg_mr(rails[i].mr) && !ibv_destroy_cq(rails[i].cq));
		CHECK(!ibv_dealloc_pd(rails[i].pd) && !ibv_close_device(rails[i].context));
	}
	ibv_free_device_list(list);
	return 0;
}
