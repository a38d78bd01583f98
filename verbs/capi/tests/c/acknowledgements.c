/* Events of rdma_cm and the calls that wait for their acknowledgement, from another thread; private data that is read late;
 * requests whose peers have gone, and answers that fail. */
#include "cm_kit.h"
#include <pthread.h>
#include <stdatomic.h>

/* A thread that acknowledges an event when it is told to. */
struct late {
	struct rdma_cm_event *event;
	pthread_t thread;
	atomic_int is_done;
};

static void *acknowledge(void *given)
{
	struct late *late = given;
	/* Time for the call of the other thread to wait. If it does not, it returns before this is done. */
	usleep(200000);
	atomic_store(&late->is_done, 1);
	CLAIM(rdma_ack_cm_event(late->event) == 0);
	return NULL;
}

static void acknowledge_later(struct late *late, struct rdma_cm_event *event)
{
	*late = (struct late){.event = event};
	CLAIM(pthread_create(&late->thread, NULL, acknowledge, late) == 0);
}

static int was_waited_for(struct late *late)
{
	int is_done = atomic_load(&late->is_done);
	CLAIM(pthread_join(late->thread, NULL) == 0);
	return is_done;
}

static struct rdma_cm_event *resolving(struct rdma_cm_id **id)
{
	struct sockaddr_in to = own;
	to.sin_port = htons(7471);
	CLAIM(rdma_create_id(active, id, NULL, RDMA_PS_TCP) == 0);
	CLAIM(rdma_resolve_addr(*id, NULL, (struct sockaddr *)&to, 1000) == 0);
	return next(active, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
}

static void destroying_and_moving_wait(void)
{
	struct rdma_cm_id *id;
	struct late late;
	acknowledge_later(&late, resolving(&id));
	CLAIM(rdma_destroy_id(id) == 0 && was_waited_for(&late));
	acknowledge_later(&late, resolving(&id));
	CLAIM(rdma_migrate_id(id, passive) == 0 && was_waited_for(&late) && id->channel == passive);
	/* One that is acknowledged is not waited for, nor is one that was not fetched. */
	CLAIM(rdma_resolve_route(id, 1000) == 0 && rdma_destroy_id(id) == 0 && is_quiet(passive));
	/* A synchronous one acknowledges its own, and becomes no other. */
	struct sockaddr_in to = own;
	CLAIM(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == 0);
	CLAIM(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 1000) == 0 && id->event);
	REFUSES(rdma_migrate_id(id, NULL), EINVAL);
	CLAIM(rdma_migrate_id(id, active) == 0 && !id->event);
	CLAIM(rdma_migrate_id(id, NULL) == 0 && rdma_resolve_route(id, 1000) == 0 && rdma_destroy_id(id) == 0);
}

/* A thread that acknowledges an event of a completion queue. */
static void *acknowledge_completion(void *given)
{
	struct ibv_cq *cq = given;
	usleep(200000);
	atomic_store((atomic_int *)cq->cq_context, 1);
	ibv_ack_cq_events(cq, 1);
	return NULL;
}

/* The completion queues that rdma_create_qp has made are the program's as all others. */
static void destroying_a_queue_pair_waits_for_events_of_its_queues(void)
{
	struct sockaddr_in at = own;
	struct ibv_recv_wr receive = {.wr_id = 1}, *bad;
	struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
	for (int is_endpoint = 0; is_endpoint < 2; is_endpoint++) {
		struct ibv_qp_init_attr wants = {
			.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}, .qp_type = IBV_QPT_RC};
		struct rdma_cm_id *id;
		struct ibv_cq *cq;
		void *cookie;
		pthread_t thread;
		atomic_int is_done = 0;
		CLAIM(rdma_create_id(active, &id, NULL, RDMA_PS_TCP) == 0 && rdma_bind_addr(id, (struct sockaddr *)&at) == 0);
		if (!id->verbs) {
			/* An address of the host alone is on no device. */
			CLAIM(rdma_destroy_id(id) == 0);
			id = resolved(RDMA_PS_TCP, &at);
		}
		CLAIM(rdma_create_qp(id, NULL, &wants) == 0);
		CLAIM(ibv_post_recv(id->qp, &receive, &bad) == 0 && ibv_req_notify_cq(id->recv_cq, 0) == 0);
		CLAIM(ibv_modify_qp(id->qp, &error, IBV_QP_STATE) == 0);
		CLAIM(ibv_get_cq_event(id->recv_cq_channel, &cq, &cookie) == 0 && cq == id->recv_cq);
		cq->cq_context = &is_done;
		CLAIM(pthread_create(&thread, NULL, acknowledge_completion, cq) == 0);
		if (is_endpoint)
			rdma_destroy_ep(id);
		else
			rdma_destroy_qp(id);
		CLAIM(atomic_load(&is_done) == 1 && pthread_join(thread, NULL) == 0);
		if (!is_endpoint)
			CLAIM(rdma_destroy_id(id) == 0);
	}
}

static void a_listener_waits_for_its_requests(void)
{
	struct sockaddr_in at;
	struct rdma_cm_id *waits = listener(RDMA_PS_TCP, &at), *asks = resolved(RDMA_PS_TCP, &at);
	struct late late;
	give_queue_pair(asks);
	CLAIM(rdma_connect(asks, NULL) == 0);
	struct rdma_cm_event *event = next(passive, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	/* The identifier of the request goes without it. */
	CLAIM(rdma_destroy_id(event->id) == 0);
	acknowledge_later(&late, event);
	CLAIM(rdma_destroy_id(waits) == 0 && was_waited_for(&late));
	see(active, asks, RDMA_CM_EVENT_REJECTED, 28);
	gone(asks);
}

static void leaving_a_group_waits(void)
{
	struct rdma_cm_id *id;
	struct sockaddr_in from = own, group = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr("239.7.7.7")};
	struct late late;
	CLAIM(rdma_create_id(active, &id, NULL, RDMA_PS_UDP) == 0 && rdma_bind_addr(id, (struct sockaddr *)&from) == 0);
	CLAIM(rdma_join_multicast(id, (struct sockaddr *)&group, NULL) == 0);
	acknowledge_later(&late, next(active, RDMA_CM_EVENT_MULTICAST_JOIN, 0));
	CLAIM(rdma_leave_multicast(id, (struct sockaddr *)&group) == 0 && was_waited_for(&late));
	/* An event that waits in the channel goes with the membership. */
	CLAIM(rdma_join_multicast(id, (struct sockaddr *)&group, NULL) == 0);
	CLAIM(rdma_leave_multicast(id, (struct sockaddr *)&group) == 0 && is_quiet(active));
	CLAIM(rdma_join_multicast(id, (struct sockaddr *)&group, NULL) == 0);
	acknowledge_later(&late, next(active, RDMA_CM_EVENT_MULTICAST_JOIN, 0));
	CLAIM(rdma_destroy_id(id) == 0 && was_waited_for(&late));
}

/* It is a mistake, and people make it: rdma-core keeps the bytes until other memory is asked for. */
static void private_data_stays_behind_the_acknowledgement(void)
{
	struct sockaddr_in at;
	struct rdma_cm_id *waits = listener(RDMA_PS_TCP, &at), *asks = resolved(RDMA_PS_TCP, &at);
	struct rdma_conn_param says = {.private_data = "the client", .private_data_len = 11};
	give_queue_pair(asks);
	CLAIM(rdma_connect(asks, &says) == 0);
	struct rdma_cm_event *event = next(passive, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	struct rdma_cm_id *asked = event->id;
	const char *data = event->param.conn.private_data;
	CLAIM(data && rdma_ack_cm_event(event) == 0 && !strcmp(data, "the client"));
	CLAIM(event->param.conn.private_data == data && event->param.conn.private_data_len == 56);
	REFUSES(rdma_ack_cm_event(event), ENOENT);
	CLAIM(rdma_reject(asked, "no", 3) == 0 && rdma_destroy_id(asked) == 0);
	event = next(active, RDMA_CM_EVENT_REJECTED, 28);
	data = event->param.conn.private_data;
	CLAIM(rdma_ack_cm_event(event) == 0 && !strcmp(data, "no"));
	gone(asks);
	CLAIM(rdma_destroy_id(waits) == 0);
}

static void a_request_that_was_given_up_gets_no_queue_pair(void)
{
	struct sockaddr_in at;
	struct rdma_cm_id *waits = listener(RDMA_PS_TCP, &at), *asks = resolved(RDMA_PS_TCP, &at), *again = resolved(RDMA_PS_TCP, &at);
	give_queue_pair(asks);
	give_queue_pair(again);
	CLAIM(rdma_connect(asks, NULL) == 0);
	struct rdma_cm_event *event = next(passive, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	struct rdma_cm_id *asked = event->id;
	CLAIM(rdma_ack_cm_event(event) == 0);
	gone(asks);
	/* What follows on the same way has come behind the message of the client that went. */
	CLAIM(rdma_connect(again, NULL) == 0);
	event = next(passive, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	struct ibv_qp_init_attr wants = {
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}, .qp_type = IBV_QPT_RC};
	REFUSES(rdma_create_qp(asked, NULL, &wants), EINVAL);
	CLAIM(!asked->qp);
	REFUSES(rdma_accept(asked, &(struct rdma_conn_param){0}), EINVAL);
	REFUSES(rdma_reject(asked, NULL, 0), EINVAL);
	CLAIM(rdma_destroy_id(asked) == 0);
	/* An answer that fails is one, too: who asked is told. */
	char data[255] = "too much";
	struct rdma_conn_param says = {.private_data = data, .private_data_len = 197};
	asked = event->id;
	give_queue_pair(asked);
	CLAIM(rdma_ack_cm_event(event) == 0);
	REFUSES(rdma_accept(asked, &says), EINVAL);
	see(active, again, RDMA_CM_EVENT_REJECTED, 28);
	CLAIM(asked->qp->state == IBV_QPS_ERR);
	says.private_data_len = 0;
	REFUSES(rdma_accept(asked, &says), EINVAL);
	gone(asked);
	gone(again);
	CLAIM(is_quiet(active) && is_quiet(passive) && rdma_destroy_id(waits) == 0);
}

int main(void)
{
	begin();
	destroying_and_moving_wait();
	destroying_a_queue_pair_waits_for_events_of_its_queues();
	a_listener_waits_for_its_requests();
	leaving_a_group_waits();
	private_data_stays_behind_the_acknowledgement();
	a_request_that_was_given_up_gets_no_queue_pair();
	rdma_destroy_event_channel(active);
	rdma_destroy_event_channel(passive);
	return 0;
}
