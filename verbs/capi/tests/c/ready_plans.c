/* Programs that meet the ready plans of tests/ready_plans.rs: what each plan promises happens, and a program that handles it comes
 * through. The argument is the plan's name. */
#include "expect.h"

#define MESSAGES 300

static enum ibv_wc_status write_one(struct ibv_qp *qp)
{
	return outcome(qp, IBV_WR_RDMA_WRITE, piece(0, 8), (uintptr_t)&memory[100], mr->rkey);
}

/* The next event is this one. */
static void expect(enum ibv_event_type type)
{
	struct ibv_async_event event;
	CLAIM(ibv_get_async_event(ctx, &event) == 0);
	if (event.event_type != type)
		fprintf(stderr, "%s\n", ibv_event_type_str(event.event_type));
	CLAIM(event.event_type == type);
	ibv_ack_async_event(&event);
}

static int has_gid(int index)
{
	union ibv_gid gid;
	FAILS(ibv_query_gid(ctx, 1, index, &gid), 0);
	return memcmp(&gid, &own_gid, sizeof(gid)) == 0;
}

/* As Mooncake's tests do: each call of the set-up fails, and the same call right after it succeeds. */
static void setup_fails_once(void)
{
	struct ibv_device_attr device_attr;
	struct ibv_port_attr port_attr;
	struct ibv_device **list;
	REFUSED(ibv_get_device_list(NULL), ENOMEM);
	CLAIM((list = ibv_get_device_list(NULL)));
	CLAIM(ibv_open_device(list[0]) == NULL);
	CLAIM((ctx = ibv_open_device(list[0])));
	ibv_free_device_list(list);
	CLAIM(ibv_query_device(ctx, &device_attr) != 0);
	FAILS(ibv_query_device(ctx, &device_attr), 0);
	CLAIM(ibv_query_port(ctx, 1, &port_attr) != 0);
	FAILS(ibv_query_port(ctx, 1, &port_attr), 0);
	CLAIM(ibv_query_gid(ctx, 1, 0, &own_gid) != 0);
	FAILS(ibv_query_gid(ctx, 1, 0, &own_gid), 0);
	CLAIM(ibv_alloc_pd(ctx) == NULL);
	CLAIM((pd = ibv_alloc_pd(ctx)));
	CLAIM(ibv_reg_mr(pd, memory, sizeof(memory), RIGHTS) == NULL);
	CLAIM((mr = ibv_reg_mr(pd, memory, sizeof(memory), RIGHTS)));
	CLAIM(ibv_create_comp_channel(ctx) == NULL);
	CLAIM((channel = ibv_create_comp_channel(ctx)));
	CLAIM(ibv_create_cq(ctx, 64, NULL, channel, 0) == NULL);
	CLAIM((cq = ibv_create_cq(ctx, 64, NULL, channel, 0)));
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	CLAIM(ibv_create_qp(pd, &wants) == NULL);
	struct ibv_qp *other, *one = pair(IBV_QPT_RC, &other);
	CLAIM(write_one(one) == IBV_WC_SUCCESS);
}

/* As RCCL's injector does: posting fails on each queue pair, as often as its budget says. */
static void post_failures(void)
{
	open_device();
	struct ibv_qp *other[2], *one[2] = {pair(IBV_QPT_RC, &other[0]), pair(IBV_QPT_RC, &other[1])};
	for (int of = 0; of < 2; of++) {
		int refused_sends = 0, refused_receives = 0;
		for (int n = 0; n < MESSAGES; n++) {
			struct ibv_sge sge = piece(0, 8);
			struct ibv_recv_wr receive = {.sg_list = &sge, .num_sge = 1}, *bad_receive = NULL;
			struct ibv_send_wr send = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
			struct ibv_send_wr *bad_send = NULL;
			int result;
			while ((result = ibv_post_recv(other[of], &receive, &bad_receive)) != 0) {
				CLAIM(result == ENOMEM && bad_receive == &receive);
				refused_receives++;
			}
			while ((result = ibv_post_send(one[of], &send, &bad_send)) != 0) {
				CLAIM(result == ENOMEM && bad_send == &send);
				refused_sends++;
			}
			completions(2);
		}
		CLAIM(refused_sends == 4 && refused_receives == 4);
	}
}

/* As SPDK's test does: a share of the completions fails with a status, and the queue pair with it. */
static void failing_completions(void)
{
	open_device();
	struct ibv_qp *other, *one = pair(IBV_QPT_RC, &other);
	int failed = 0;
	for (int n = 0; n < MESSAGES; n++) {
		struct ibv_sge sge = piece(0, 8);
		struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
		wr.wr.rdma.remote_addr = (uintptr_t)&memory[100];
		wr.wr.rdma.rkey = mr->rkey;
		post(one, &wr);
		struct ibv_wc wc = completion();
		if (wc.status == IBV_WC_SUCCESS)
			continue;
		CLAIM(wc.status == IBV_WC_GENERAL_ERR && wc.vendor_err == 129);
		FAILS(ibv_post_send(one, &wr, &(struct ibv_send_wr *){NULL}), 0);
		CLAIM(completion().status == IBV_WC_WR_FLUSH_ERR);
		reconnect(one, other);
		printf("%d\n", n);
		failed++;
	}
	CLAIM(failed > 0);
}

/* As Mooncake's test of failover does: the link goes down twice, the connection survives. */
static void link_flap(void)
{
	open_device();
	struct ibv_qp *other, *one = pair(IBV_QPT_RC, &other);
	for (int n = 0; n < MESSAGES; n++)
		CLAIM(write_one(one) == IBV_WC_SUCCESS);
	for (int flap = 0; flap < 2; flap++) {
		expect(IBV_EVENT_PORT_ERR);
		expect(IBV_EVENT_PORT_ACTIVE);
	}
}

/* As NCCL's users meet it: the GID that a program remembers by its index is elsewhere after the link was down. */
static void gid_moves_after_flap(void)
{
	open_device();
	struct ibv_qp *other, *one = pair(IBV_QPT_RC, &other);
	for (int n = 0; n < MESSAGES; n++)
		CLAIM(write_one(one) == IBV_WC_SUCCESS);
	expect(IBV_EVENT_PORT_ERR);
	expect(IBV_EVENT_PORT_ACTIVE);
	expect(IBV_EVENT_GID_CHANGE);
	CLAIM(!has_gid(0) && has_gid(5));
}

static void dying_adapter(void)
{
	open_device();
	struct ibv_qp *other, *one = pair(IBV_QPT_RC, &other);
	struct ibv_port_attr port;
	for (int n = 0; n < 100; n++)
		CLAIM(write_one(one) == IBV_WC_SUCCESS);
	struct ibv_sge sge = piece(0, 8);
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
	wr.wr.rdma.remote_addr = (uintptr_t)&memory[100];
	wr.wr.rdma.rkey = mr->rkey;
	post(one, &wr);
	expect(IBV_EVENT_DEVICE_FATAL);
	FAILS(ibv_query_port(ctx, 1, &port), EIO);
	FAILS(ibv_post_send(one, &wr, &(struct ibv_send_wr *){NULL}), EIO);
}

/* Connects a queue pair to itself: the errno of the way to RTR. */
static int to_rtr(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
				   .path_mtu = IBV_MTU_1024,
				   .dest_qp_num = qp->qp_num,
				   .max_dest_rd_atomic = 1,
				   .ah_attr = own_address()};
	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				     IBV_QP_MIN_RNR_TIMER);
}

/* The first connection fails with this errno, and the same one succeeds. */
static void connects_at_second_try(int number)
{
	open_device();
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	struct ibv_qp *qp = ibv_create_qp(pd, &wants);
	CLAIM(qp);
	init(qp);
	FAILS(to_rtr(qp), number);
	FAILS(to_rtr(qp), 0);
}

static void silent_host_once(void)
{
	connects_at_second_try(ETIMEDOUT);
}

static void stale_gid_once(void)
{
	connects_at_second_try(EINVAL);
}

/* The writes before `last` succeed, that one ends with a status, and the next one is flushed. */
static void ends_with(int last, enum ibv_wc_status status)
{
	open_device();
	struct ibv_qp *other, *one = pair(IBV_QPT_RC, &other);
	for (int n = 0; n < last; n++)
		CLAIM(write_one(one) == IBV_WC_SUCCESS);
	CLAIM(write_one(one) == status);
	CLAIM(write_one(one) == IBV_WC_WR_FLUSH_ERR);
}

static void peer_vanishes(void)
{
	ends_with(100, IBV_WC_RETRY_EXC_ERR);
}

static void stale_key(void)
{
	ends_with(100, IBV_WC_REM_ACCESS_ERR);
}

static void no_peer_memory(void)
{
	ends_with(0, IBV_WC_LOC_PROT_ERR);
}

/* open_device makes one completion queue and one region. */
static void out_of_objects(void)
{
	open_device();
	struct ibv_qp *other, *one = pair(IBV_QPT_RC, &other);
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	struct ibv_cq *second = ibv_create_cq(ctx, 4, NULL, NULL, 0);
	CLAIM(second);
	REFUSED(ibv_create_cq(ctx, 4, NULL, NULL, 0), ENOMEM);
	REFUSED(ibv_create_qp(pd, &wants), ENOMEM);
	CLAIM(write_one(one) == IBV_WC_SUCCESS);
	FAILS(ibv_destroy_cq(second), 0);
}

static void second_region_fails(void)
{
	open_device();
	REFUSED(ibv_reg_mr(pd, memory, 64, RIGHTS), ENOMEM);
	struct ibv_mr *third = ibv_reg_mr(pd, memory, 64, RIGHTS);
	CLAIM(third);
	FAILS(ibv_dereg_mr(third), 0);
}

/* What the failed poll would have found, the next one finds: each message is counted once. */
static void polling_fails(void)
{
	open_device();
	struct ibv_qp *other, *one = pair(IBV_QPT_RC, &other);
	int failed = 0;
	for (uint64_t n = 0; n < MESSAGES; n++) {
		struct ibv_sge sge = piece(0, 8);
		struct ibv_send_wr wr = {.wr_id = n, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
		wr.wr.rdma.remote_addr = (uintptr_t)&memory[100];
		wr.wr.rdma.rkey = mr->rkey;
		post(one, &wr);
		struct ibv_wc wc;
		int count;
		time_t end = time(NULL) + 60;
		while ((count = ibv_poll_cq(cq, 1, &wc)) <= 0) {
			failed += count < 0;
			CLAIM(time(NULL) <= end);
		}
		CLAIM(wc.status == IBV_WC_SUCCESS && wc.wr_id == n);
	}
	CLAIM(failed == 1);
}

static void posting_stops(void)
{
	open_device();
	struct ibv_qp *other, *one = pair(IBV_QPT_RC, &other);
	for (int n = 1; n < 100; n++)
		CLAIM(write_one(one) == IBV_WC_SUCCESS);
	struct ibv_sge sge = piece(0, 8);
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
	wr.wr.rdma.remote_addr = (uintptr_t)&memory[100];
	wr.wr.rdma.rkey = mr->rkey;
	for (int n = 0; n < 3; n++) {
		FAILS(ibv_post_send(one, &wr, &bad), EIO);
		CLAIM(bad == &wr);
	}
}

/* One readiness of the descriptor may stand for all of them. */
static void event_burst(void)
{
	open_device();
	struct ibv_qp *other, *one = pair(IBV_QPT_RC, &other);
	for (int n = 0; n < MESSAGES; n++)
		CLAIM(write_one(one) == IBV_WC_SUCCESS);
	for (int n = 0; n < 8; n++)
		expect(IBV_EVENT_LID_CHANGE);
	struct pollfd nothing = {.fd = ctx->async_fd, .events = POLLIN};
	CLAIM(poll(&nothing, 1, 0) == 0);
}

/* Plans that a program without a fault of its own survives without noticing: every message arrives, once and in order. */
static void survives(void)
{
	open_device();
	struct ibv_qp *other, *one = pair(IBV_QPT_RC, &other);
	for (uint64_t n = 1; n <= MESSAGES; n++) {
		memory[0] = n;
		post_receive(other, n, 8000, 8);
		struct ibv_sge sge = piece(0, 8);
		struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
		post(one, &wr);
		CLAIM(completions(2) == n && memory[1000] == n);
	}
	memory[0] = 0;
	for (int n = 0; n < MESSAGES; n++) {
		CLAIM(write_one(one) == IBV_WC_SUCCESS);
		CLAIM(outcome(one, IBV_WR_ATOMIC_FETCH_AND_ADD, piece(8, 8), (uintptr_t)&memory[200], mr->rkey) == IBV_WC_SUCCESS);
		CLAIM(memory[1] == (uint64_t)n);
	}
}

int main(int argc, char **argv)
{
	static const struct {
		const char *plan;
		void (*program)(void);
	} programs[] = {
		{"setup-fails-once", setup_fails_once},
		{"post-failures", post_failures},
		{"failing-completions", failing_completions},
		{"link-flap", link_flap},
		{"gid-moves-after-flap", gid_moves_after_flap},
		{"dying-adapter", dying_adapter},
		{"peer-vanishes", peer_vanishes},
		{"silent-host-once", silent_host_once},
		{"stale-gid-once", stale_gid_once},
		{"stale-key", stale_key},
		{"no-peer-memory", no_peer_memory},
		{"out-of-objects", out_of_objects},
		{"second-region-fails", second_region_fails},
		{"polling-fails", polling_fails},
		{"posting-stops", posting_stops},
		{"event-burst", event_burst},
	};
	CLAIM(argc == 2);
	for (unsigned i = 0; i < sizeof(programs) / sizeof(programs[0]); i++)
		if (!strcmp(argv[1], programs[i].plan)) {
			programs[i].program();
			return 0;
		}
	survives();
	return 0;
}
