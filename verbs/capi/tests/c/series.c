/* Requests by the ibv_wr_* calls: a series is posted whole or not at all, and a queue pair has the operations of
 * its transport and no others. */
#include "expect.h"

enum { SENDS = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_BIND_MW };

static struct ibv_qp *one, *other;
static struct ibv_qp_ex *series;

/* A pair, of which `one` takes series. */
static void make_pair(void)
{
	struct ibv_qp_init_attr_ex wants = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 12, .max_recv_wr = 1, .max_send_sge = 2, .max_recv_sge = 1, .max_inline_data = 32},
		.qp_type = IBV_QPT_RC,
		.pd = pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = SENDS,
	};
	struct ibv_qp_init_attr plain = qp_wants(IBV_QPT_RC);
	plain.cap.max_recv_wr = 60;
	CLAIM((one = ibv_create_qp_ex(ctx, &wants)) && (series = ibv_qp_to_qp_ex(one)));
	CLAIM((other = ibv_create_qp(pd, &plain)));
	init(one);
	init(other);
	connect_to(one, other->qp_num);
	connect_to(other, one->qp_num);
}

static void send_one(uint64_t wr_id)
{
	series->wr_id = wr_id;
	series->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(series);
	ibv_wr_set_sge(series, mr->lkey, (uintptr_t)memory, 8);
}

/* What was refused has left nothing: the next series is the first that arrives, with as much room as ever. */
static void is_whole(int depth)
{
	ibv_wr_start(series);
	for (int k = 0; k < depth; k++) {
		post_receive(other, 0, 1024, 64);
		send_one(1000 + k);
	}
	FAILS(ibv_wr_complete(series), 0);
	for (int sent = 0, received = 0; sent < depth || received < depth;) {
		struct ibv_wc wc = completion();
		CLAIM(wc.status == IBV_WC_SUCCESS);
		if (wc.opcode & IBV_WC_RECV)
			received++;
		else
			CLAIM(wc.wr_id == 1000 + (uint64_t)sent++);
	}
	struct ibv_wc none;
	CLAIM(ibv_poll_cq(cq, 1, &none) == 0);
}

static void series_are_whole(void)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr got;
	FAILS(ibv_query_qp(one, &attr, IBV_QP_CAP, &got), 0);
	int depth = got.cap.max_send_wr;
	/* One more than fits: in a queue that is empty, and in one that has little room. */
	for (int there = 0; there < depth; there += 5) {
		ibv_wr_start(series);
		for (int k = 0; k < there; k++) {
			post_receive(other, 0, 1024, 64);
			send_one(k);
		}
		FAILS(ibv_wr_complete(series), 0);
		ibv_wr_start(series);
		for (int k = there; k <= depth; k++)
			send_one(k);
		FAILS(ibv_wr_complete(series), ENOMEM);
		completions(2 * there);
		is_whole(depth);
	}
	/* One that is wrong, at each place: for the device, or while the series is put together. */
	for (int wrong = 0; wrong < depth; wrong++)
		for (int device = 0; device < 2; device++) {
			struct ibv_sge many[3] = {piece(0, 1), piece(1, 1), piece(2, 1)};
			ibv_wr_start(series);
			for (int k = 0; k < depth; k++) {
				send_one(k);
				if (k == wrong && device)
					ibv_wr_set_sge_list(series, 3, many);
				else if (k == wrong)
					ibv_wr_set_sge_list(series, 1, NULL);
			}
			FAILS(ibv_wr_complete(series), EINVAL);
		}
	is_whole(depth);
	/* What is aborted is gone, and so is what was posted. */
	ibv_wr_start(series);
	send_one(1);
	ibv_wr_abort(series);
	FAILS(ibv_wr_complete(series), 0);
	is_whole(depth);
	FAILS(ibv_wr_complete(series), 0);
	is_whole(depth);
}

/* A window of a series that is refused keeps its key. */
static void windows_keep_their_keys(void)
{
	struct ibv_mw *window = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	struct ibv_mw_bind_info info = {.mr = mr, .addr = (uintptr_t)memory, .length = 64, .mw_access_flags = IBV_ACCESS_REMOTE_READ};
	struct ibv_sge many[3] = {piece(0, 1), piece(1, 1), piece(2, 1)};
	CLAIM(window);
	uint32_t key = window->rkey;
	ibv_wr_start(series);
	series->wr_id = 1;
	ibv_wr_bind_mw(series, window, ibv_inc_rkey(key), &info);
	send_one(2);
	ibv_wr_set_sge_list(series, 3, many);
	FAILS(ibv_wr_complete(series), EINVAL);
	CLAIM(window->rkey == key);
	ibv_wr_start(series);
	series->wr_id = 3;
	series->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_bind_mw(series, window, ibv_inc_rkey(key), &info);
	FAILS(ibv_wr_complete(series), 0);
	CLAIM(window->rkey == ibv_inc_rkey(key) && completion().wr_id == 3);
	FAILS(ibv_dealloc_mw(window), 0);
}

/* The rule of ibv_post_send is another one: all requests before bad_wr are posted. */
static void lists_are_posted_up_to_the_wrong_one(void)
{
	for (int wrong = 0; wrong < 12; wrong++) {
		struct ibv_sge sge = piece(0, 8), many[3] = {sge, sge, sge};
		struct ibv_send_wr list[12] = {0}, *bad = NULL;
		struct ibv_recv_wr receives[12] = {0}, *bad_receive = NULL;
		struct ibv_sge into = piece(1024, 64);
		for (int k = 0; k < 12; k++) {
			list[k] = (struct ibv_send_wr){
				.wr_id = k, .next = k < 11 ? &list[k + 1] : NULL, .sg_list = k == wrong ? many : &sge,
				.num_sge = k == wrong ? 3 : 1, .opcode = IBV_WR_SEND,
				.send_flags = IBV_SEND_SIGNALED | (k % 3 == 1 ? IBV_SEND_INLINE : 0)};
			if (k == wrong)
				list[k].send_flags = IBV_SEND_SIGNALED;
			receives[k] = (struct ibv_recv_wr){.next = k < 11 ? &receives[k + 1] : NULL, .sg_list = &into,
							   .num_sge = k == wrong ? 99 : 1};
		}
		FAILS(ibv_post_recv(other, receives, &bad_receive), EINVAL);
		CLAIM(bad_receive == &receives[wrong]);
		FAILS(ibv_post_send(one, list, &bad), EINVAL);
		CLAIM(bad == &list[wrong]);
		completions(2 * wrong);
	}
}

/* send_ops_flags: which transport has which operation (ibv_wr_post(3)). */
static void operations_are_those_of_the_transport(void)
{
	enum { RC = 1, UC = 2, UD = 4, NONE = 0 };
	static const struct {
		uint64_t flag;
		int types;
	} operations[] = {
		{IBV_QP_EX_WITH_RDMA_WRITE, RC | UC},
		{IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, RC | UC},
		{IBV_QP_EX_WITH_SEND, RC | UC | UD},
		{IBV_QP_EX_WITH_SEND_WITH_IMM, RC | UC | UD},
		{IBV_QP_EX_WITH_RDMA_READ, RC},
		{IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, RC},
		{IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, RC},
		{IBV_QP_EX_WITH_LOCAL_INV, RC | UC},
		{IBV_QP_EX_WITH_BIND_MW, RC | UC},
		{IBV_QP_EX_WITH_SEND_WITH_INV, RC | UC},
		{IBV_QP_EX_WITH_TSO, NONE},
		{1 << 11, RC}, /* FLUSH */
		{1 << 12, RC}, /* ATOMIC_WRITE */
		{1 << 13, NONE},
		{1ULL << 40, NONE},
		{1ULL << 63, NONE},
	};
	static const struct {
		enum ibv_qp_type type;
		int bit;
	} types[] = {{IBV_QPT_RC, RC}, {IBV_QPT_UC, UC}, {IBV_QPT_UD, UD}};
	for (unsigned type = 0; type < 3; type++)
		for (unsigned k = 0; k < sizeof(operations) / sizeof(operations[0]); k++) {
			struct ibv_qp_init_attr_ex wants = {
				.send_cq = cq,
				.recv_cq = cq,
				.cap = {.max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1},
				.qp_type = types[type].type,
				.pd = pd,
				.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
				.send_ops_flags = operations[k].flag,
			};
			if (!(operations[k].types & types[type].bit)) {
				REFUSED(ibv_create_qp_ex(ctx, &wants), EOPNOTSUPP);
				/* Beside one that it has, too. */
				wants.send_ops_flags |= IBV_QP_EX_WITH_SEND;
				REFUSED(ibv_create_qp_ex(ctx, &wants), EOPNOTSUPP);
				continue;
			}
			struct ibv_qp *qp = ibv_create_qp_ex(ctx, &wants);
			CLAIM(qp && ibv_qp_to_qp_ex(qp));
			FAILS(ibv_destroy_qp(qp), 0);
		}
	/* A target of XRC sends nothing. */
	struct ibv_xrcd_init_attr unnamed = {.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT};
	struct ibv_xrcd *domain = ibv_open_xrcd(ctx, &unnamed);
	CLAIM(domain);
	struct ibv_qp_init_attr_ex target = {
		.qp_type = IBV_QPT_XRC_RECV,
		.xrcd = domain,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};
	REFUSED(ibv_create_qp_ex(ctx, &target), EOPNOTSUPP);
	struct ibv_qp_init_attr_ex initiator = {
		.send_cq = cq,
		.cap = {.max_send_wr = 2, .max_send_sge = 1},
		.qp_type = IBV_QPT_XRC_SEND,
		.pd = pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_BIND_MW,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(ctx, &initiator);
	CLAIM(qp);
	FAILS(ibv_destroy_qp(qp), 0);
	initiator.send_ops_flags = 1 << 11;
	REFUSED(ibv_create_qp_ex(ctx, &initiator), EOPNOTSUPP);
	FAILS(ibv_close_xrcd(domain), 0);
}

int main(void)
{
	open_device();
	make_pair();
	series_are_whole();
	windows_keep_their_keys();
	lists_are_posted_up_to_the_wrong_one();
	operations_are_those_of_the_transport();
	FAILS(ibv_close_device(ctx), 0);
	return 0;
}
