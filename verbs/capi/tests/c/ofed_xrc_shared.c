/* OFED 1.x's calls in three processes: A makes the receive queue pair, B has the SRQ, this one sends. */
#include "xrc_kit.h"
#include <pumice/ofed_xrc.h>
#include <sys/wait.h>

struct child {
	pid_t pid;
	int to, from;
};

static void tell(int fd, uint32_t number)
{
	CLAIM(write(fd, &number, sizeof(number)) == sizeof(number));
}

static uint32_t hear(int fd)
{
	uint32_t number = 0;
	struct pollfd readable = {.fd = fd, .events = POLLIN};
	CLAIM(poll(&readable, 1, 60000) == 1);
	CLAIM(read(fd, &number, sizeof(number)) == sizeof(number));
	return number;
}

static struct child started(void (*role)(int domain_file, int in, int out), int domain_file)
{
	int down[2], up[2];
	CLAIM(pipe(down) == 0 && pipe(up) == 0);
	pid_t pid = fork();
	CLAIM(pid >= 0);
	if (pid == 0) {
		close(down[1]);
		close(up[0]);
		role(domain_file, down[0], up[1]);
		_exit(0);
	}
	close(down[0]);
	close(up[1]);
	return (struct child){.pid = pid, .to = down[1], .from = up[0]};
}

static void ended(struct child child)
{
	int status;
	CLAIM(waitpid(child.pid, &status, 0) == child.pid);
	CLAIM(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* A: makes the queue pair, connects it, and ends without a word when told. */
static void creator(int file, int in, int out)
{
	open_device();
	struct ibv_xrc_domain *domain = ibv_open_xrc_domain(ctx, file, O_CREAT | O_EXCL);
	CLAIM(domain);
	struct ofed_qp_init_attr init = {.xrc_domain = domain};
	uint32_t number;
	FAILS(ibv_create_xrc_rcv_qp(&init, &number), 0);
	tell(out, number);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = RIGHTS};
	FAILS(ibv_modify_xrc_rcv_qp(domain, number, &attr, INIT_MASK), 0);
	attr = receiving(hear(in));
	FAILS(ibv_modify_xrc_rcv_qp(domain, number, &attr, RTR_MASK), 0);
	tell(out, 0);
	hear(in);
}

/* B: registers, receives three messages, sees the queue pair fail, and is the last to leave it. */
static void owner(int file, int in, int out)
{
	open_device();
	struct ibv_xrc_domain *domain = ibv_open_xrc_domain(ctx, file, 0);
	CLAIM(domain);
	REFUSED(ibv_open_xrc_domain(ctx, file, O_CREAT | O_EXCL), EINVAL);
	struct ibv_srq_init_attr srq_init = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_xrc_srq(pd, domain, cq, &srq_init);
	CLAIM(srq);
	uint32_t number = hear(in);
	FAILS(ibv_unreg_xrc_rcv_qp(domain, number), EINVAL);
	FAILS(ibv_reg_xrc_rcv_qp(domain, number + 1), EINVAL);
	FAILS(ibv_reg_xrc_rcv_qp(domain, number), 0);
	for (unsigned i = 0; i < 3; i++)
		post_to_srq(srq, i, 8 * i, 8);
	tell(out, ofed_srq(srq)->xrc_srq_num);
	for (unsigned i = 0; i < 3; i++) {
		struct ibv_wc wc = completion();
		CLAIM(wc.status == IBV_WC_SUCCESS && wc.wr_id == i && wc.qp_num == number && memory[i] == 100 + i);
		tell(out, i);
	}
	struct ibv_qp_attr attr;
	struct ofed_qp_init_attr init;
	FAILS(ibv_query_xrc_rcv_qp(domain, number, &attr, 0, &init), 0);
	CLAIM(attr.qp_state == IBV_QPS_RTR && attr.rq_psn == 103 && init.xrc_domain == domain);
	hear(in);
	attr.qp_state = IBV_QPS_ERR;
	FAILS(ibv_modify_xrc_rcv_qp(domain, number, &attr, IBV_QP_STATE), 0);
	unsigned expected[] = {IBV_EVENT_COMM_EST, IBV_EVENT_QP_LAST_WQE_REACHED};
	for (int i = 0; i < 2; i++) {
		struct ibv_async_event event = next_event(ctx);
		CLAIM((unsigned)event.event_type == (IBV_XRC_QP_EVENT_FLAG | expected[i]));
		CLAIM((uint32_t)event.element.xrc_qp_num == number);
		ibv_ack_async_event(&event);
	}
	FAILS(ibv_unreg_xrc_rcv_qp(domain, number), 0);
	FAILS(ibv_query_xrc_rcv_qp(domain, number, &attr, 0, &init), EINVAL);
	FAILS(ibv_destroy_srq(srq), 0);
	FAILS(ibv_close_xrc_domain(domain), 0);
	FAILS(ibv_close_device(ctx), 0);
}

static void a_receive_queue_pair(void)
{
	int file = new_file();
	/* Before this process has a device, which a child must not share. */
	struct child a = started(creator, file);
	uint32_t number = hear(a.from);
	struct child b = started(owner, file);
	tell(b.to, number);
	uint32_t srq_number = hear(b.from);

	open_device();
	struct ibv_qp_init_attr_ex wants = {
		.send_cq = cq,
		.cap = {.max_send_wr = 8, .max_send_sge = 1},
		.qp_type = IBV_QPT_XRC_SEND,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};
	struct ibv_qp *sender = ibv_create_qp_ex(ctx, &wants);
	CLAIM(sender);
	tell(a.to, sender->qp_num);
	hear(a.from);
	init(sender);
	connect_to(sender, number);
	for (unsigned i = 0; i < 3; i++) {
		memory[0] = 100 + i;
		struct ibv_sge sge = piece(0, 8);
		struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
		wr.xrc_remote_srq_num = srq_number;
		FAILS(ibv_post_send(sender, &wr, &bad), 0);
		CLAIM(completion().status == IBV_WC_SUCCESS);
		CLAIM(hear(b.from) == i);
		if (i == 0) {
			/* A is gone, its registration with it; B keeps the queue pair. */
			tell(a.to, 0);
			ended(a);
		}
	}
	tell(b.to, 0);
	ended(b);
	FAILS(ibv_destroy_qp(sender), 0);
	FAILS(ibv_close_device(ctx), 0);
}

/* A queue pair of type IBV_QPT_XRC, ready to send and to receive. */
static struct ibv_qp *duplex(struct ibv_xrc_domain *domain)
{
	struct ofed_qp_init_attr wants = {
		.send_cq = cq, .cap = {.max_send_wr = 8, .max_send_sge = 1}, .qp_type = IBV_QPT_XRC, .xrc_domain = domain};
	struct ibv_qp *qp = ibv_create_qp(pd, ofed_qp_init(&wants));
	CLAIM(qp);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = RIGHTS};
	FAILS(ibv_modify_qp(qp, &attr, INIT_MASK), 0);
	return qp;
}

static void connect_duplex(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr attr = receiving(peer);
	FAILS(ibv_modify_qp(qp, &attr, RTR_MASK), 0);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .sq_psn = 100, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 4};
	FAILS(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC), 0);
}

static enum ibv_wc_status sent(struct ibv_qp *qp, uint32_t srq_number)
{
	struct ibv_sge sge = piece(0, 3000);
	struct ibv_send_wr wr = {.wr_id = 77, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
	wr.xrc_remote_srq_num = srq_number;
	FAILS(ibv_post_send(qp, &wr, &bad), 0);
	struct ibv_wc wc = completion();
	CLAIM(wc.wr_id == 77);
	return wc.status;
}

#define ROUNDS 20

/* A: makes the queue pair, and sends by it while others receive by it, until it fails for what one of them refused. */
static void maker(int file, int in, int out)
{
	open_device();
	struct ibv_xrc_domain *domain = ibv_open_xrc_domain(ctx, file, O_CREAT | O_EXCL);
	CLAIM(domain);
	struct ibv_qp *qp = duplex(domain);
	tell(out, qp->qp_num);
	connect_duplex(qp, hear(in));
	tell(out, 0);
	uint32_t srq_number = hear(in);
	for (int i = 0; i < ROUNDS; i++)
		CLAIM(sent(qp, srq_number) == IBV_WC_SUCCESS);
	tell(out, 0);
	enum ibv_event_type expected[] = {IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_LAST_WQE_REACHED};
	for (int i = 0; i < 2; i++) {
		struct ibv_async_event event = next_event(ctx);
		CLAIM(event.event_type == expected[i] && event.element.qp == qp);
		ibv_ack_async_event(&event);
	}
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	FAILS(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
	CLAIM(attr.qp_state == IBV_QPS_ERR);
	CLAIM(sent(qp, srq_number) == IBV_WC_WR_FLUSH_ERR);
	FAILS(ibv_close_xrc_domain(domain), EBUSY);
	FAILS(ibv_destroy_qp(qp), 0);
	FAILS(ibv_close_xrc_domain(domain), 0);
	FAILS(ibv_close_device(ctx), 0);
}

/* B: has an SRQ, and no right to the queue pair. */
static void receiver(int file, int in, int out)
{
	open_device();
	struct ibv_xrc_domain *domain = ibv_open_xrc_domain(ctx, file, 0);
	CLAIM(domain);
	struct ibv_srq_init_attr srq_init = {.attr = {.max_wr = ROUNDS, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_xrc_srq(pd, domain, cq, &srq_init);
	CLAIM(srq);
	for (unsigned i = 0; i < ROUNDS; i++)
		post_to_srq(srq, i, 3000 * i, 3000);
	uint32_t number = hear(in);
	tell(out, ofed_srq(srq)->xrc_srq_num);
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct ibv_wc wc = completion();
		CLAIM(wc.status == IBV_WC_SUCCESS && wc.wr_id == i && wc.qp_num == number && wc.byte_len == 3000);
		CLAIM(((char *)memory)[3000 * i] == (char)i && ((char *)memory)[3000 * i + 2999] == (char)i);
	}
	struct ibv_qp_attr attr;
	struct ofed_qp_init_attr init;
	FAILS(ibv_query_xrc_rcv_qp(domain, number, &attr, 0, &init), EINVAL);
	FAILS(ibv_reg_xrc_rcv_qp(domain, number), EINVAL);
	attr.qp_state = IBV_QPS_ERR;
	FAILS(ibv_modify_xrc_rcv_qp(domain, number, &attr, IBV_QP_STATE), EINVAL);
	tell(out, 0);
	/* The SRQ goes: what names it from now on is refused here, and fails the queue pair there. */
	FAILS(ibv_destroy_srq(srq), 0);
	tell(out, 0);
	hear(in);
	FAILS(ibv_close_xrc_domain(domain), 0);
	FAILS(ibv_close_device(ctx), 0);
}

/* A queue pair of type IBV_QPT_XRC is the target for SRQs of another process of its domain, and initiates meanwhile. */
static void a_full_duplex_queue_pair(void)
{
	int file = new_file();
	struct child a = started(maker, file);
	uint32_t number = hear(a.from);
	struct child b = started(receiver, file);
	tell(b.to, number);
	uint32_t theirs = hear(b.from);

	open_device();
	struct ibv_xrc_domain *domain = ibv_open_xrc_domain(ctx, -1, O_CREAT);
	struct ibv_srq_init_attr srq_init = {.attr = {.max_wr = ROUNDS, .max_sge = 1}};
	struct ibv_cq *received = ibv_create_cq(ctx, 64, NULL, NULL, 0);
	struct ibv_srq *srq = ibv_create_xrc_srq(pd, domain, received, &srq_init);
	CLAIM(domain && received && srq);
	for (unsigned i = 0; i < ROUNDS; i++)
		post_to_srq(srq, i, 8192, 3000);
	struct ibv_qp *qp = duplex(domain);
	connect_duplex(qp, number);
	tell(a.to, qp->qp_num);
	hear(a.from);
	tell(a.to, ofed_srq(srq)->xrc_srq_num);
	for (int i = 0; i < ROUNDS; i++) {
		memset(memory, i, 3000);
		CLAIM(sent(qp, theirs) == IBV_WC_SUCCESS);
	}
	struct ibv_wc wc;
	for (unsigned i = 0; i < ROUNDS; i += wc.wr_id == i) {
		time_t end = time(NULL) + 60;
		while (ibv_poll_cq(received, 1, &wc) == 0)
			CLAIM(time(NULL) <= end);
		CLAIM(wc.status == IBV_WC_SUCCESS && wc.wr_id == i && wc.qp_num == qp->qp_num);
	}
	hear(a.from);
	hear(b.from);
	hear(b.from);
	CLAIM(sent(qp, theirs) == IBV_WC_REM_INV_RD_REQ_ERR);
	ended(a);
	tell(b.to, 0);
	ended(b);
	FAILS(ibv_destroy_qp(qp), 0);
	FAILS(ibv_close_device(ctx), 0);
}

int main(void)
{
	a_receive_queue_pair();
	a_full_duplex_queue_pair();
	return 0;
}
