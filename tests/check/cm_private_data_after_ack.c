/* A server reads what its client said after it has acknowledged the request. */
#include "cm_events.h"
#include <string.h>

int main(void)
{
	struct asker server, client;
	char key[16] = "key 0x1234";
	struct rdma_conn_param says = { .private_data = key, .private_data_len = sizeof(key) };
	struct rdma_cm_event *event = meet(&server, &client, &says);
	struct rdma_cm_id *id = event->id;
	const char *said = event->param.conn.private_data;
#ifdef FIXED
	MUST(said[4] == '0');
	MUST(!rdma_ack_cm_event(event));
#else
	MUST(!rdma_ack_cm_event(event));
	MUST(!strncmp(said, key, sizeof(key))); // BUG: private-data-after-ack
	MUST(said[4] == '0');
#endif
	make_queue_pair(id);
	MUST(!rdma_accept(id, &says));
	pass_event(&client, RDMA_CM_EVENT_ESTABLISHED);
	pass_event(&server, RDMA_CM_EVENT_ESTABLISHED);
	MUST(!rdma_disconnect(client.id));
	pass_event(&client, RDMA_CM_EVENT_DISCONNECTED);
	pass_event(&server, RDMA_CM_EVENT_DISCONNECTED);
	rdma_destroy_qp(client.id);
	rdma_destroy_qp(id);
	MUST(!rdma_destroy_id(id));
	end_id(&client);
	end_id(&server);
	return 0;
}
