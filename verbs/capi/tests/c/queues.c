/* Completion queues and their clocks, queue depths, inline data, signalling, options of connections. */
#include "expect.h"
#include <pthread.h>

static uint64_t raw_clock(void)
{
	struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
	FAILS(ibv_query_rt_values_ex(ctx, &values), 0);
	CLAIM(values.comp_mask == IBV_VALUES_MASK_RAW_CLOCK && values.raw_clock.tv_sec == 0);
	return values.raw_clock.tv_nsec;
}

static uint64_t wall_clock(void)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static struct ibv_qp *to_itself(struct ibv_qp_init_attr wants)
{
	struct ibv_qp *qp = ibv_create_qp(pd, &wants);
	CLAIM(qp);
	init(qp);
	connect_to(qp, qp->qp_num);
	return qp;
}

static void time_stamps(void)
{
	struct ibv_device_attr_ex attr;
	struct ibv_values_ex other = {.comp_mask = 1 << 5};
	FAILS(ibv_query_device_ex(ctx, NULL, &attr), 0);
	/* In kHz: a cycle is a nanosecond. */
	CLAIM(attr.hca_core_clock == 1000000 && attr.completion_timestamp_mask == UINT64_MAX);
	FAILS(ibv_query_rt_values_ex(ctx, &other), EINVAL);
	other.comp_mask = 0;
	FAILS(ibv_query_rt_values_ex(ctx, &other), 0);
	FAILS(ibv_query_rt_values_ex(ctx, NULL), EINVAL);

	struct ibv_cq_init_attr_ex stamped = {
		.cqe = 8,
		.wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
	};
	struct ibv_cq_ex *cqx = ibv_create_cq_ex(ctx, &stamped);
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	CLAIM(cqx);
	wants.send_cq = wants.recv_cq = ibv_cq_ex_to_cq(cqx);
	struct ibv_qp *qp = to_itself(wants);
	struct ibv_sge sge = piece(0, 8);
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
	wr.wr.rdma.remote_addr = (uintptr_t)(memory + 8);
	wr.wr.rdma.rkey = mr->rkey;
	struct ibv_poll_cq_attr poll = {0};
	uint64_t last = raw_clock(), last_wall = wall_clock();
	CLAIM(last);
	for (int i = 0; i < 4; i++) {
		post(qp, &wr);
		time_t end = time(NULL) + 60;
		while (ibv_start_poll(cqx, &poll))
			CLAIM(time(NULL) <= end);
		uint64_t at = ibv_wc_read_completion_ts(cqx), wall = ibv_wc_read_completion_wallclock_ns(cqx);
		CLAIM(wall == ibv_wc_read_completion_wallclock_ns(cqx));
		CLAIM(cqx->status == IBV_WC_SUCCESS);
		CLAIM(at > last && at <= raw_clock());
		/* Converted to a clock that an operator may set: a few milliseconds of the same moment. */
		CLAIM(wall + 10000000 > last_wall && wall < wall_clock() + 10000000);
		ibv_end_poll(cqx);
		last = at;
		last_wall = wall;
	}
	/* The wall clock orders completions as they came, however quickly they are read one after the other. */
	for (int round = 0; round < 200; round++) {
		for (int i = 0; i < 8; i++)
			post(qp, &wr);
		for (int left = 8; left;) {
			time_t end = time(NULL) + 5;
			while (ibv_start_poll(cqx, &poll))
				CLAIM(time(NULL) <= end);
			do {
				uint64_t wall = ibv_wc_read_completion_wallclock_ns(cqx);
				CLAIM(wall >= last_wall && wall == ibv_wc_read_completion_wallclock_ns(cqx));
				last_wall = wall;
				left--;
			} while (left && !ibv_next_poll(cqx));
			ibv_end_poll(cqx);
		}
	}
	FAILS(ibv_destroy_qp(qp), 0);
	FAILS(ibv_destroy_cq(ibv_cq_ex_to_cq(cqx)), 0);
}

static void vectors_and_moderation(void)
{
	struct ibv_device_attr_ex attr;
	struct ibv_modify_cq_attr change = {.attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = {.cq_count = 16, .cq_period = 100}};
	CLAIM(ctx->num_comp_vectors > 1);
	for (int vector = 0; vector < ctx->num_comp_vectors; vector++) {
		struct ibv_cq *one = ibv_create_cq(ctx, 1, NULL, NULL, vector);
		CLAIM(one && one->cqe >= 1);
		FAILS(ibv_destroy_cq(one), 0);
	}
	REFUSED(ibv_create_cq(ctx, 1, NULL, NULL, ctx->num_comp_vectors), EINVAL);
	FAILS(ibv_query_device_ex(ctx, NULL, &attr), 0);
	CLAIM(attr.cq_mod_caps.max_cq_count >= 16 && attr.cq_mod_caps.max_cq_period >= 100);
	FAILS(ibv_modify_cq(cq, &change), 0);
	struct ibv_modify_cq_attr nothing = {.attr_mask = 0};
	FAILS(ibv_modify_cq(cq, &nothing), EINVAL);
	change.attr_mask = 1 << 1;
	FAILS(ibv_modify_cq(cq, &change), EOPNOTSUPP);
	FAILS(ibv_modify_cq(cq, NULL), EINVAL);
	struct ibv_cq_init_attr_ex wants = {.cqe = 1, .comp_mask = 1 << 7};
	REFUSED(ibv_create_cq_ex(ctx, &wants), EOPNOTSUPP);
	wants.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
	wants.flags = 1 << 9;
	REFUSED(ibv_create_cq_ex(ctx, &wants), EOPNOTSUPP);
	wants.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
	wants.comp_vector = ctx->num_comp_vectors;
	REFUSED(ibv_create_cq_ex(ctx, &wants), EINVAL);
}

static volatile int traffic_goes_on = 1;

static void *resize_again_and_again(void *arg)
{
	struct ibv_cq *resized = arg;
	uint64_t count = 0;
	for (int depth = 16; traffic_goes_on; depth = depth == 200 ? 16 : depth + 1) {
		/* Never less than can be outstanding, so that nothing may be lost. */
		FAILS(ibv_resize_cq(resized, depth), 0);
		CLAIM(resized->cqe >= depth);
		count++;
	}
	CLAIM(count > 10);
	return NULL;
}

static void resize(void)
{
	struct ibv_cq *resized = ibv_create_cq(ctx, 16, NULL, NULL, 1);
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	wants.send_cq = wants.recv_cq = resized;
	wants.cap.max_send_wr = 16;
	struct ibv_qp *qp = to_itself(wants);
	struct ibv_sge sge = piece(0, 8);
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED}, *bad;
	wr.wr.rdma.remote_addr = (uintptr_t)(memory + 8);
	wr.wr.rdma.rkey = mr->rkey;
	/* What waits in the queue stays, in order. Receives of a queue pair in error are flushed as they are posted. */
	struct ibv_qp *broken = ibv_create_qp(pd, &wants);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	struct ibv_recv_wr receive = {.sg_list = &sge, .num_sge = 1}, *bad_receive;
	struct ibv_wc wc[10];
	CLAIM(broken);
	init(broken);
	FAILS(ibv_modify_qp(broken, &attr, IBV_QP_STATE), 0);
	for (receive.wr_id = 0; receive.wr_id < 10; receive.wr_id++)
		FAILS(ibv_post_recv(broken, &receive, &bad_receive), 0);
	FAILS(ibv_resize_cq(resized, 9), EINVAL);
	FAILS(ibv_resize_cq(resized, 0), EINVAL);
	FAILS(ibv_resize_cq(resized, -1), EINVAL);
	FAILS(ibv_resize_cq(resized, INT32_MAX), EINVAL);
	CLAIM(resized->cqe >= 16);
	FAILS(ibv_resize_cq(resized, 10), 0);
	CLAIM(resized->cqe >= 10);
	FAILS(ibv_resize_cq(resized, 100), 0);
	CLAIM(ibv_poll_cq(resized, 10, wc) == 10);
	for (int i = 0; i < 10; i++)
		CLAIM(wc[i].status == IBV_WC_WR_FLUSH_ERR && wc[i].wr_id == (uint64_t)i);
	FAILS(ibv_destroy_qp(broken), 0);
	/* Another thread resizes; every completion comes, once, in order. */
	pthread_t thread;
	CLAIM(pthread_create(&thread, NULL, resize_again_and_again, resized) == 0);
	uint64_t posted = 0, polled = 0;
	time_t end = time(NULL) + 60;
	while (polled < 20000) {
		for (; posted < 20000 && posted - polled < 16; posted++) {
			wr.wr_id = posted;
			FAILS(ibv_post_send(qp, &wr, &bad), 0);
		}
		int count = ibv_poll_cq(resized, 10, wc);
		CLAIM(count >= 0 && time(NULL) <= end);
		for (int i = 0; i < count; i++)
			CLAIM(wc[i].status == IBV_WC_SUCCESS && wc[i].wr_id == polled++);
	}
	traffic_goes_on = 0;
	CLAIM(pthread_join(thread, NULL) == 0);
	CLAIM(ibv_poll_cq(resized, 10, wc) == 0);
	FAILS(ibv_destroy_qp(qp), 0);
	FAILS(ibv_destroy_cq(resized), 0);
}

/* A slot of the send queue is free once its completion, or a later one, was polled. */
static void full_queues(void)
{
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	wants.cap.max_send_wr = wants.cap.max_recv_wr = 4;
	struct ibv_qp *qp = ibv_create_qp(pd, &wants);
	CLAIM(qp && wants.cap.max_send_wr >= 4 && wants.cap.max_recv_wr >= 4 && wants.cap.max_send_sge >= 4);
	init(qp);
	connect_to(qp, qp->qp_num);
	struct ibv_sge sge = piece(0, 8);
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad = NULL;
	wr.wr.rdma.remote_addr = (uintptr_t)(memory + 8);
	wr.wr.rdma.rkey = mr->rkey;
	/* Unsignaled requests fill it for ever, executed or not. */
	memory[0] = 1;
	memory[8] = 0;
	for (uint32_t i = 0; i < wants.cap.max_send_wr - 1; i++)
		post(qp, &wr);
	time_t end = time(NULL) + 60;
	struct ibv_wc wc;
	while (*(volatile uint64_t *)(memory + 8) != 1)
		CLAIM(ibv_poll_cq(cq, 1, &wc) == 0 && time(NULL) <= end);
	wr.send_flags = IBV_SEND_SIGNALED;
	wr.wr_id = 2;
	post(qp, &wr);
	wr.wr_id = 3;
	FAILS(ibv_post_send(qp, &wr, &bad), ENOMEM);
	CLAIM(bad == &wr);
	/* One completion frees them all. */
	CLAIM(completion().wr_id == 2);
	for (uint32_t i = 0; i < wants.cap.max_send_wr; i++)
		post(qp, &wr);
	FAILS(ibv_post_send(qp, &wr, &bad), ENOMEM);
	completions(wants.cap.max_send_wr);
	struct ibv_recv_wr receive = {.sg_list = &sge, .num_sge = 1}, *bad_receive = NULL;
	for (uint32_t i = 0; i < wants.cap.max_recv_wr; i++)
		FAILS(ibv_post_recv(qp, &receive, &bad_receive), 0);
	FAILS(ibv_post_recv(qp, &receive, &bad_receive), ENOMEM);
	CLAIM(bad_receive == &receive);
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr made;
	FAILS(ibv_query_qp(qp, &attr, IBV_QP_CAP, &made), 0);
	CLAIM(!memcmp(&made.cap, &wants.cap, sizeof(made.cap)) && !memcmp(&attr.cap, &wants.cap, sizeof(attr.cap)));
	FAILS(ibv_destroy_qp(qp), 0);
}

static void inline_data(void)
{
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	struct ibv_qp *qp = ibv_create_qp(pd, &wants);
	uint32_t most = wants.cap.max_inline_data;
	CLAIM(qp && most >= 256);
	init(qp);
	connect_to(qp, qp->qp_num);
	char *text = malloc(most + 1);
	memset(text, 'x', most + 1);
	/* The key is not looked at, and the memory may go at once. */
	struct ibv_sge sge[2] = {{.addr = (uintptr_t)text, .length = most, .lkey = 0xbad}, {.addr = (uintptr_t)text, .length = 1}};
	struct ibv_send_wr wr = {
		.sg_list = sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE}, *bad;
	wr.wr.rdma.remote_addr = (uintptr_t)memory;
	wr.wr.rdma.rkey = mr->rkey;
	memset(memory, 0, most + 1);
	post(qp, &wr);
	memset(text, 'y', most + 1);
	completions(1);
	CLAIM(((char *)memory)[0] == 'x' && ((char *)memory)[most - 1] == 'x' && ((char *)memory)[most] == 0);
	wr.num_sge = 2;
	FAILS(ibv_post_send(qp, &wr, &bad), EINVAL);
	wr.num_sge = 1;
	sge[0].length = most + 1;
	FAILS(ibv_post_send(qp, &wr, &bad), EINVAL);
	/* Only for what is sent. */
	sge[0] = piece(0, 8);
	wr.opcode = IBV_WR_RDMA_READ;
	FAILS(ibv_post_send(qp, &wr, &bad), EINVAL);
	wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
	FAILS(ibv_post_send(qp, &wr, &bad), EINVAL);
	CLAIM(bad == &wr);
	free(text);
	FAILS(ibv_destroy_qp(qp), 0);
	/* Without room for inline data there is none. */
	wants = qp_wants(IBV_QPT_RC);
	wants.cap.max_inline_data = 0;
	qp = to_itself(wants);
	FAILS(ibv_query_qp(qp, &(struct ibv_qp_attr){0}, IBV_QP_CAP, &wants), 0);
	sge[0].length = wants.cap.max_inline_data + 1;
	wr.opcode = IBV_WR_RDMA_WRITE;
	FAILS(ibv_post_send(qp, &wr, &bad), EINVAL);
	FAILS(ibv_destroy_qp(qp), 0);
}

static void signalling(void)
{
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	struct ibv_sge sge = piece(0, 8);
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
	wr.wr.rdma.remote_addr = (uintptr_t)(memory + 8);
	wr.wr.rdma.rkey = mr->rkey;
	wants.sq_sig_all = 1;
	struct ibv_qp *qp = to_itself(wants);
	for (wr.wr_id = 1; wr.wr_id <= 3; wr.wr_id++) {
		post(qp, &wr);
		CLAIM(completion().wr_id == wr.wr_id);
	}
	struct ibv_qp_attr attr;
	FAILS(ibv_query_qp(qp, &attr, IBV_QP_STATE, &wants), 0);
	CLAIM(wants.sq_sig_all == 1);
	FAILS(ibv_destroy_qp(qp), 0);
	/* Unsignaled ones complete when they fail. */
	struct ibv_qp *other;
	qp = pair(IBV_QPT_RC, &other);
	wr.wr_id = 8;
	wr.wr.rdma.rkey = 0;
	post(qp, &wr);
	struct ibv_wc wc = completion();
	CLAIM(wc.wr_id == 8 && wc.status == IBV_WC_REM_ACCESS_ERR);
	post(qp, &wr);
	CLAIM(completion().status == IBV_WC_WR_FLUSH_ERR);
	FAILS(ibv_destroy_qp(qp), 0);
	FAILS(ibv_destroy_qp(other), 0);
}

static void connection_options(void)
{
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	struct ibv_qp *qp = ibv_create_qp(pd, &wants);
	struct ibv_ece ece = {.options = 7}, strange;
	CLAIM(qp);
	FAILS(ibv_query_ece(NULL, &ece), EINVAL);
	FAILS(ibv_query_ece(qp, NULL), EINVAL);
	FAILS(ibv_query_ece(qp, &ece), 0);
	CLAIM(ece.vendor_id != 0 && ece.options == 0 && ece.comp_mask == 0);
	strange = ece;
	strange.vendor_id ^= 1;
	FAILS(ibv_set_ece(qp, &strange), EINVAL);
	strange = ece;
	strange.comp_mask = 1;
	FAILS(ibv_set_ece(qp, &strange), EINVAL);
	FAILS(ibv_set_ece(qp, NULL), EINVAL);
	/* What is not there is not accepted. */
	ece.options = 0xff;
	FAILS(ibv_set_ece(qp, &ece), 0);
	CLAIM(ece.options == 0);
	FAILS(ibv_destroy_qp(qp), 0);
}

/* A queue pair that ends owes its peer nothing: an adapter has acknowledged what it has received. */
static void what_has_arrived_is_acknowledged_before_the_end(void)
{
	for (enum ibv_qp_state last = IBV_QPS_RESET; last <= IBV_QPS_ERR; last += IBV_QPS_ERR) {
		struct ibv_qp *other, *one = pair(IBV_QPT_RC, &other);
		struct ibv_sge from = piece(64, 8);
		struct ibv_send_wr send = {.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
		post_receive(other, 1, 0, 8);
		post(one, &send);
		struct ibv_wc wc = completion();
		int received = wc.opcode & IBV_WC_RECV;
		CLAIM(wc.status == IBV_WC_SUCCESS);
		struct ibv_qp_attr attr = {.qp_state = last};
		FAILS(ibv_modify_qp(other, &attr, IBV_QP_STATE), 0);
		if (received) {
			wc = completion();
			CLAIM(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_SEND);
		}
		FAILS(ibv_destroy_qp(one), 0);
		FAILS(ibv_destroy_qp(other), 0);
	}
}

/* IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN: a full queue loses its oldest completions, and nothing fails. */
static void overruns_are_ignored_on_request(void)
{
	struct ibv_cq_init_attr_ex wants = {
		.cqe = 4, .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS, .flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN | IBV_CREATE_CQ_ATTR_SINGLE_THREADED};
	struct ibv_cq_ex *cqx = ibv_create_cq_ex(ctx, &wants);
	struct ibv_qp_init_attr init_attr = qp_wants(IBV_QPT_RC);
	CLAIM(cqx);
	struct ibv_cq *small = ibv_cq_ex_to_cq(cqx);
	init_attr.send_cq = init_attr.recv_cq = small;
	init_attr.cap.max_send_wr = 60;
	struct ibv_qp *qp = to_itself(init_attr);
	struct ibv_sge sge = piece(0, 8);
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED}, *bad;
	wr.wr.rdma.rkey = mr->rkey;
	/* Polling the last of them frees the whole send queue, time and again. */
	for (int turn = 0; turn < 3; turn++) {
		int depth = init_attr.cap.max_send_wr;
		memory[0] = turn + 1;
		for (int k = 0; k < depth; k++) {
			wr.wr_id = k;
			wr.wr.rdma.remote_addr = (uintptr_t)(memory + 1 + k);
			post(qp, &wr);
		}
		FAILS(ibv_post_send(qp, &wr, &bad), ENOMEM);
		/* The last WRITE is there, and its completion with it or soon after; no poll of this queue before. */
		time_t end = time(NULL) + 60;
		struct ibv_wc wc;
		while (((volatile uint64_t *)memory)[depth] != (uint64_t)turn + 1)
			CLAIM(ibv_poll_cq(cq, 1, &wc) == 0 && time(NULL) <= end);
		uint64_t next = 0;
		do {
			int count = ibv_poll_cq(small, 1, &wc);
			CLAIM(count >= 0 && time(NULL) <= end);
			if (count == 1) {
				CLAIM(wc.status == IBV_WC_SUCCESS && wc.wr_id >= next);
				next = wc.wr_id + 1;
			}
		} while (next < (uint64_t)depth);
	}
	struct pollfd event = {.fd = ctx->async_fd, .events = POLLIN};
	CLAIM(poll(&event, 1, 0) == 0);
	FAILS(ibv_destroy_qp(qp), 0);
	FAILS(ibv_destroy_cq(small), 0);
	wants.flags = 1 << 5;
	REFUSED(ibv_create_cq_ex(ctx, &wants), EOPNOTSUPP);
}

/* max_rd_atomic 0 is taken for 1; a target of a smaller depth than its initiator's refuses what is too much. */
static void depths_of_reads(void)
{
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC), got;
	struct ibv_qp *one = ibv_create_qp(pd, &wants), *other = ibv_create_qp(pd, &wants);
	CLAIM(one && other);
	for (int initiator = 0; initiator <= 16; initiator += 16) {
		struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
		FAILS(ibv_modify_qp(one, &attr, IBV_QP_STATE), 0);
		FAILS(ibv_modify_qp(other, &attr, IBV_QP_STATE), 0);
		init(one);
		init(other);
		attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = other->qp_num,
					    .max_dest_rd_atomic = 1, .min_rnr_timer = 12, .ah_attr = own_address()};
		int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			   IBV_QP_MIN_RNR_TIMER;
		FAILS(ibv_modify_qp(one, &attr, mask), 0);
		attr.dest_qp_num = one->qp_num;
		FAILS(ibv_modify_qp(other, &attr, mask), 0);
		attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = initiator};
		mask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
		FAILS(ibv_modify_qp(one, &attr, mask), 0);
		FAILS(ibv_query_qp(one, &attr, IBV_QP_MAX_QP_RD_ATOMIC, &got), 0);
		CLAIM(attr.max_rd_atomic == initiator);
		struct ibv_sge sge = piece(0, 8);
		struct ibv_send_wr list[16] = {0}, *bad;
		for (int k = 0; k < 16; k++) {
			list[k] = (struct ibv_send_wr){.wr_id = k, .next = k < 15 ? &list[k + 1] : NULL, .sg_list = &sge, .num_sge = 1,
						       .opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED};
			list[k].wr.rdma.remote_addr = (uintptr_t)(memory + 64);
			list[k].wr.rdma.rkey = mr->rkey;
		}
		FAILS(ibv_post_send(one, list, &bad), 0);
		if (initiator == 0) {
			completions(16);
			continue;
		}
		enum ibv_wc_status first = IBV_WC_SUCCESS;
		for (int k = 0; k < 16; k++) {
			struct ibv_wc wc = completion();
			if (first == IBV_WC_SUCCESS)
				first = wc.status;
			else
				CLAIM(wc.status == IBV_WC_WR_FLUSH_ERR);
		}
		CLAIM(first == IBV_WC_REM_INV_REQ_ERR);
	}
	FAILS(ibv_destroy_qp(one), 0);
	FAILS(ibv_destroy_qp(other), 0);
}

int main(void)
{
	open_device();
	time_stamps();
	vectors_and_moderation();
	resize();
	full_queues();
	inline_data();
	signalling();
	connection_options();
	what_has_arrived_is_acknowledged_before_the_end();
	overruns_are_ignored_on_request();
	depths_of_reads();
	FAILS(ibv_close_device(ctx), 0);
	return 0;
}
