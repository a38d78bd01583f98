/* The server accepts, and makes its queue pair after that. */
#include "cm_events.h"

static struct rdma_cm_event *next(struct rdma_event_channel *channel)
{
	struct rdma_cm_event *event;
	MUST(!rdma_get_cm_event(channel, &event));
	return event;
}

static void make(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr wants = {.cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	MUST(!rdma_create_qp(id, NULL, &wants));
}

int main(void)
{
	struct asker asker;
	struct rdma_cm_id *listens;
	struct rdma_event_channel *own = rdma_create_event_channel();
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(7471) };
	MUST(own && inet_pton(AF_INET, getenv("PUMICE_ADDR"), &at.sin_addr) == 1);
	MUST(!rdma_create_id(own, &listens, NULL, RDMA_PS_TCP) && !rdma_bind_addr(listens, (struct sockaddr *)&at));
	MUST(!rdma_listen(listens, 4));
	ask(&asker);
	MUST(!rdma_ack_cm_event(next(asker.channel)) && !rdma_resolve_route(asker.id, 1000));
	MUST(!rdma_ack_cm_event(next(asker.channel)));
	make(asker.id);
	struct rdma_conn_param parameters = {.retry_count = 3};
	MUST(!rdma_connect(asker.id, &parameters));
	struct rdma_cm_event *asked = next(own);
	struct rdma_cm_id *came = asked->id;
	MUST(!rdma_ack_cm_event(asked));
#ifdef FIXED
	make(came);
	MUST(!rdma_accept(came, &parameters));
#else
	MUST(!rdma_accept(came, &parameters)); // BUG: connected-without-qp
	make(came);
#endif
	MUST(!rdma_ack_cm_event(next(asker.channel)));
	rdma_destroy_qp(asker.id);
	rdma_destroy_qp(came);
	MUST(!rdma_destroy_id(asker.id) && !rdma_destroy_id(came) && !rdma_destroy_id(listens));
	rdma_destroy_event_channel(asker.channel);
	rdma_destroy_event_channel(own);
	return 0;
}
