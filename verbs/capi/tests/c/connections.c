/* librdmacm: events in their order, private data, and what is refused with which errno. */
#include "cm_kit.h"
#include <signal.h>
#include <sys/time.h>

static void wait_for(struct ibv_cq *of)
{
	struct ibv_wc wc;
	time_t end = time(NULL) + 60;
	int count;
	while ((count = ibv_poll_cq(of, 1, &wc)) == 0)
		CLAIM(time(NULL) <= end);
	CLAIM(count == 1 && wc.status == IBV_WC_SUCCESS);
}

static void a_connection_lives_and_ends(void)
{
	struct sockaddr_in at;
	struct rdma_cm_id *waits = listener(RDMA_PS_TCP, &at), *asks = resolved(RDMA_PS_TCP, &at), *asked;
	give_queue_pair(asks);
	struct rdma_conn_param says = {
		.private_data = "please", .private_data_len = 7, .responder_resources = 3, .initiator_depth = 5, .retry_count = 6};
	CLAIM(rdma_connect(asks, &says) == 0);
	struct rdma_cm_event *request = next(passive, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	asked = request->id;
	CLAIM(request->listen_id == waits && asked != waits && asked->context == &passive && asked->verbs == asks->verbs);
	CLAIM(request->param.conn.private_data_len == 56 && !memcmp(request->param.conn.private_data, "please\0", 8));
	CLAIM(request->param.conn.responder_resources == 5 && request->param.conn.initiator_depth == 3);
	CLAIM(request->param.conn.retry_count == 6 && request->param.conn.qp_num == asks->qp->qp_num);
	CLAIM(rdma_get_dst_port(asked) == rdma_get_src_port(asks) && rdma_get_src_port(asked) == at.sin_port);
	give_queue_pair(asked);
	struct ibv_mr *region = ibv_reg_mr(asked->pd, memory, sizeof(memory), RIGHTS);
	CLAIM(region);
	struct ibv_sge to = {.addr = (uintptr_t)memory, .length = 8, .lkey = region->lkey}, from = to;
	struct ibv_recv_wr receive = {.sg_list = &to, .num_sge = 1}, *bad_receive;
	CLAIM(ibv_post_recv(asked->qp, &receive, &bad_receive) == 0);
	says.private_data = "welcome";
	says.private_data_len = 8;
	says.responder_resources = 5;
	says.initiator_depth = 3;
	CLAIM(rdma_accept(asked, &says) == 0);
	REFUSES(rdma_accept(asked, &says), EINVAL);
	CLAIM(rdma_ack_cm_event(request) == 0);
	struct rdma_cm_event *answer = next(active, RDMA_CM_EVENT_ESTABLISHED, 0);
	CLAIM(answer->id == asks && answer->param.conn.private_data_len == 196);
	CLAIM(!strcmp(answer->param.conn.private_data, "welcome"));
	CLAIM(answer->param.conn.qp_num == asked->qp->qp_num);
	CLAIM(rdma_ack_cm_event(answer) == 0);
	see(passive, asked, RDMA_CM_EVENT_ESTABLISHED, 0);
	struct ibv_qp_attr has;
	struct ibv_qp_init_attr had;
	CLAIM(ibv_query_qp(asks->qp, &has, IBV_QP_STATE, &had) == 0 && has.qp_state == IBV_QPS_RTS);
	CLAIM(has.max_rd_atomic == 5 && has.max_dest_rd_atomic == 3);
	memory[0] = 0;
	memory[1] = 0x1122;
	from.addr += 8;
	struct ibv_send_wr send = {.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
	CLAIM(ibv_post_send(asks->qp, &send, &bad) == 0);
	wait_for(asks->send_cq);
	wait_for(asked->recv_cq);
	CLAIM(memory[0] == 0x1122);
	CLAIM(rdma_disconnect(asks) == 0);
	see(passive, asked, RDMA_CM_EVENT_DISCONNECTED, 0);
	CLAIM(rdma_disconnect(asked) == 0);
	see(active, asks, RDMA_CM_EVENT_DISCONNECTED, 0);
	CLAIM(rdma_disconnect(asks) == 0);
	ibv_dereg_mr(region);
	gone(asks);
	gone(asked);
	CLAIM(rdma_destroy_id(waits) == 0);
}

static void requests_are_rejected(void)
{
	struct sockaddr_in at;
	struct rdma_cm_id *waits = listener(RDMA_PS_TCP, &at), *asks = resolved(RDMA_PS_TCP, &at);
	give_queue_pair(asks);
	char data[148] = "no";
	struct rdma_conn_param says = {.private_data = data, .private_data_len = 57};
	REFUSES(rdma_connect(asks, &says), EINVAL);
	says.private_data_len = 56;
	says.initiator_depth = 200;
	REFUSES(rdma_connect(asks, &says), EINVAL);
	says.initiator_depth = RDMA_MAX_INIT_DEPTH;
	CLAIM(rdma_connect(asks, &says) == 0);
	REFUSES(rdma_connect(asks, &says), EINVAL);
	struct rdma_cm_event *event = next(passive, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	struct rdma_cm_id *asked = event->id;
	REFUSES(rdma_reject(asked, data, 149), EINVAL);
	CLAIM(rdma_reject(asked, data, 148) == 0);
	/* Destroyed before its event is acknowledged. */
	CLAIM(rdma_destroy_id(asked) == 0);
	CLAIM(event->param.conn.private_data_len == 56 && rdma_ack_cm_event(event) == 0);
	event = next(active, RDMA_CM_EVENT_REJECTED, 28);
	CLAIM(event->param.conn.private_data_len == 148 && !strcmp(event->param.conn.private_data, "no"));
	CLAIM(rdma_ack_cm_event(event) == 0);
	gone(asks);
	/* No listener is there any more. */
	CLAIM(rdma_destroy_id(waits) == 0);
	asks = resolved(RDMA_PS_TCP, &at);
	give_queue_pair(asks);
	CLAIM(rdma_connect(asks, NULL) == 0);
	see(active, asks, RDMA_CM_EVENT_REJECTED, 8);
	gone(asks);
	CLAIM(is_quiet(active) && is_quiet(passive));
}

static void the_program_brings_its_own_queue_pair(void)
{
	struct sockaddr_in at;
	struct rdma_cm_id *waits = listener(RDMA_PS_TCP, &at), *asks = resolved(RDMA_PS_TCP, &at);
	struct ibv_cq *queue = ibv_create_cq(asks->verbs, 4, NULL, NULL, 0);
	struct ibv_qp_init_attr wants = {
		.send_cq = queue, .recv_cq = queue, .cap = {.max_send_wr = 1, .max_recv_wr = 1}, .qp_type = IBV_QPT_RC};
	struct ibv_qp *qp = ibv_create_qp(asks->pd, &wants);
	CLAIM(queue && qp);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
	int mask;
	/* As in Linux: without a connection, what every queue pair begins with in any state. */
	CLAIM(rdma_init_qp_attr(asks, &attr, &mask) == 0 && attr.qp_state == IBV_QPS_RTR);
	CLAIM(mask == (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	struct rdma_conn_param says = {.qp_num = qp->qp_num, .retry_count = 7};
	REFUSES(rdma_connect(asks, NULL), EINVAL);
	CLAIM(rdma_connect(asks, &says) == 0);
	struct rdma_cm_event *event = next(passive, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	struct rdma_cm_id *asked = event->id;
	give_queue_pair(asked);
	CLAIM(rdma_accept(asked, NULL) == 0 && rdma_ack_cm_event(event) == 0);
	see(active, asks, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
	CLAIM(is_quiet(passive));
	for (enum ibv_qp_state state = IBV_QPS_INIT; state <= IBV_QPS_RTS; state++) {
		attr.qp_state = state;
		CLAIM(rdma_init_qp_attr(asks, &attr, &mask) == 0);
		FAILS(ibv_modify_qp(qp, &attr, mask), 0);
	}
	CLAIM(rdma_establish(asks) == 0);
	see(passive, asked, RDMA_CM_EVENT_ESTABLISHED, 0);
	/* Its end comes on another channel. */
	struct rdma_event_channel *other = rdma_create_event_channel();
	CLAIM(other && rdma_migrate_id(asked, other) == 0 && asked->channel == other);
	CLAIM(rdma_destroy_id(asks) == 0);
	see(other, asked, RDMA_CM_EVENT_DISCONNECTED, 0);
	gone(asked);
	rdma_destroy_event_channel(other);
	CLAIM(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(queue) == 0 && rdma_destroy_id(waits) == 0);
}

static void datagrams_are_asked_for(void)
{
	struct sockaddr_in at;
	struct rdma_cm_id *waits = listener(RDMA_PS_UDP, &at), *asks = resolved(RDMA_PS_UDP, &at);
	struct rdma_conn_param says = {.private_data = "who", .private_data_len = 4};
	CLAIM(rdma_connect(asks, &says) == 0);
	struct rdma_cm_event *event = next(passive, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	struct rdma_cm_id *asked = event->id;
	CLAIM(event->param.ud.private_data_len == 180 && !strcmp(event->param.ud.private_data, "who"));
	struct rdma_conn_param answers = {.private_data = "I", .private_data_len = 2, .qp_num = 0x1234};
	CLAIM(rdma_accept(asked, &answers) == 0 && rdma_ack_cm_event(event) == 0);
	event = next(active, RDMA_CM_EVENT_ESTABLISHED, 0);
	CLAIM(event->param.ud.qp_num == 0x1234 && event->param.ud.qkey == RDMA_UDP_QKEY);
	CLAIM(event->param.ud.private_data_len == 136 && !strcmp(event->param.ud.private_data, "I"));
	struct ibv_ah *handle = ibv_create_ah(asks->pd, &event->param.ud.ah_attr);
	CLAIM(handle && ibv_destroy_ah(handle) == 0);
	CLAIM(rdma_ack_cm_event(event) == 0 && is_quiet(passive));
	CLAIM(rdma_destroy_id(asks) == 0 && rdma_destroy_id(asked) == 0 && rdma_destroy_id(waits) == 0);
}

static void on_alarm(int signal)
{
	(void)signal;
}

static void what_is_wrong_is_refused(void)
{
	struct rdma_cm_id *id, *second;
	struct rdma_cm_event *event;
	REFUSES(rdma_create_id(active, NULL, NULL, RDMA_PS_TCP), EINVAL);
	REFUSES(rdma_create_id(active, &id, NULL, 0x107), EINVAL);
	REFUSES(rdma_destroy_id(NULL), EINVAL);
	REFUSES(rdma_get_cm_event(NULL, &event), EINVAL);
	REFUSES(rdma_ack_cm_event(NULL), EINVAL);
	CLAIM(rdma_create_id(active, &id, NULL, RDMA_PS_TCP) == 0 && !id->verbs);
	struct sockaddr_in far = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr("192.0.2.77")};
	REFUSES(rdma_bind_addr(id, NULL), EINVAL);
	REFUSES(rdma_bind_addr(id, (struct sockaddr *)&far), EADDRNOTAVAIL);
	far.sin_family = AF_UNIX;
	REFUSES(rdma_bind_addr(id, (struct sockaddr *)&far), EINVAL);
	REFUSES(rdma_disconnect(id), EINVAL);
	REFUSES(rdma_accept(id, NULL), EINVAL);
	REFUSES(rdma_reject(id, NULL, 0), EINVAL);
	REFUSES(rdma_join_multicast(id, (struct sockaddr *)&own, NULL), EINVAL);
	uint8_t byte = 3;
	REFUSES(rdma_set_option(id, 0, 9, &byte, 1), ENOSYS);
	REFUSES(rdma_set_option(id, 0, RDMA_OPTION_ID_TOS, &byte, 4), EINVAL);
	CLAIM(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, 1) == 0);
	struct sockaddr_in at = own;
	CLAIM(rdma_bind_addr(id, (struct sockaddr *)&at) == 0);
	REFUSES(rdma_bind_addr(id, (struct sockaddr *)&at), EINVAL);
	at.sin_port = rdma_get_src_port(id);
	CLAIM(rdma_create_id(active, &second, NULL, RDMA_PS_TCP) == 0);
	REFUSES(rdma_bind_addr(second, (struct sockaddr *)&at), EADDRINUSE);
	CLAIM(rdma_destroy_id(id) == 0 && rdma_bind_addr(second, (struct sockaddr *)&at) == 0);
	CLAIM(rdma_destroy_id(second) == 0);
	/* Waiting ends with a signal, and is not begun on a channel that does not wait. */
	struct sigaction action = {.sa_handler = on_alarm};
	struct itimerval soon = {.it_value = {.tv_usec = 50000}, .it_interval = {.tv_usec = 50000}}, never = {0};
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &soon, NULL);
	REFUSES(rdma_get_cm_event(active, &event), EINTR);
	setitimer(ITIMER_REAL, &never, NULL);
	CLAIM(fcntl(active->fd, F_SETFL, O_NONBLOCK) == 0);
	REFUSES(rdma_get_cm_event(active, &event), EAGAIN);
}

int main(void)
{
	begin();
	int count = -1;
	struct ibv_context **devices = rdma_get_devices(&count);
	CLAIM(devices && count == 1 && devices[0] && !devices[1]);
	a_connection_lives_and_ends();
	requests_are_rejected();
	the_program_brings_its_own_queue_pair();
	datagrams_are_asked_for();
	what_is_wrong_is_refused();
	struct sockaddr_in at;
	struct rdma_cm_id *id = listener(RDMA_PS_TCP, &at);
	CLAIM(id->verbs == devices[0] && rdma_destroy_id(id) == 0);
	rdma_free_devices(devices);
	rdma_destroy_event_channel(passive);
	rdma_destroy_event_channel(active);
	return 0;
}
