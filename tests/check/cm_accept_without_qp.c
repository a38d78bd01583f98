/* The server accepts, and makes its queue pair after that. */
#include "cm_events.h"

int main(void)
{
	struct asker server, client;
	struct rdma_conn_param parameters = {.retry_count = 3};
	struct rdma_cm_event *asked = meet(&server, &client, &parameters);
	struct rdma_cm_id *came = asked->id;
	MUST(!rdma_ack_cm_event(asked));
#ifdef FIXED
	make_queue_pair(came);
	MUST(!rdma_accept(came, &parameters));
#else
	MUST(!rdma_accept(came, &parameters)); // BUG: connected-without-qp
	make_queue_pair(came);
#endif
	MUST(!rdma_ack_cm_event(next_event(&client)));
	rdma_destroy_qp(client.id);
	rdma_destroy_qp(came);
	MUST(!rdma_destroy_id(came));
	end_id(&client);
	end_id(&server);
	return 0;
}
