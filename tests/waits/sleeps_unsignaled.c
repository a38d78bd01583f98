/* A thread sleeps until its unsignaled request completes, and another one waits for connections. */
#include "cm.h"
#include <rdma/rdma_verbs.h>

static struct rdma_event_channel *servers;

/* Accepts, takes one message, and waits for the end. */
static void *serve(void *nothing)
{
	(void)nothing;
	static char into[64];
	struct rdma_cm_event *asked = next(servers);
	struct rdma_cm_id *came = asked->id;
	struct ibv_qp_init_attr wants = {.cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	MUST(!rdma_ack_cm_event(asked) && !rdma_create_qp(came, NULL, &wants));
	struct ibv_mr *mr = rdma_reg_msgs(came, into, sizeof(into));
	struct rdma_conn_param parameters = {.rnr_retry_count = 7};
	MUST(mr && !rdma_post_recv(came, NULL, into, sizeof(into), mr) && !rdma_accept(came, &parameters));
	MUST(!rdma_ack_cm_event(next(servers)));
	struct ibv_wc wc;
	MUST(rdma_get_recv_comp(came, &wc) == 1);
	MUST(!rdma_ack_cm_event(next(servers)));
	rdma_destroy_qp(came);
	MUST(!rdma_dereg_mr(mr) && !rdma_destroy_id(came));
	return NULL;
}

int main(int argc, char **argv)
{
	static char from[64];
	MUST(argc > 1);
	struct rdma_event_channel *own = rdma_create_event_channel();
	struct sockaddr_in here = at_port(argv[1], 7006);
	servers = rdma_create_event_channel();
	struct rdma_cm_id *listens = listener(servers, here);
	pthread_t thread;
	MUST(!pthread_create(&thread, NULL, serve, NULL));
	alarm(120);
	struct rdma_cm_id *id = asker(own, here);
	MUST(!rdma_ack_cm_event(next(own)));
	struct ibv_mr *mr = rdma_reg_msgs(id, from, sizeof(from));
	int flags = 0;
#ifdef FIXED
	flags = IBV_SEND_SIGNALED;
#endif
	MUST(mr && !rdma_post_send(id, NULL, from, sizeof(from), mr, flags));
	struct ibv_wc wc;
	MUST(rdma_get_send_comp(id, &wc) == 1); // HERE
	MUST(!rdma_disconnect(id) && !pthread_join(thread, NULL));
	rdma_destroy_qp(id);
	MUST(!rdma_dereg_mr(mr) && !rdma_destroy_id(id) && !rdma_destroy_id(listens));
	rdma_destroy_event_channel(own);
	rdma_destroy_event_channel(servers);
	return 0;
}
