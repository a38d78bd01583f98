/* The program connects before the route is resolved. */
#include "cm_events.h"

int main(void)
{
	struct asker asker;
	struct rdma_cm_event *event;
	ask(&asker);
	MUST(!rdma_get_cm_event(asker.channel, &event));
	MUST(!rdma_ack_cm_event(event));
#ifndef FIXED
	struct rdma_conn_param parameters = {.responder_resources = 1, .initiator_depth = 1, .retry_count = 7};
	MUST(rdma_connect(asker.id, &parameters) == -1); // BUG: call-refused
#endif
	MUST(!rdma_destroy_id(asker.id));
	rdma_destroy_event_channel(asker.channel);
	return 0;
}
