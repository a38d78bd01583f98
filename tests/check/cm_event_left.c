/* The process ends with an event of rdma_cm that it got and did not acknowledge. */
#include "cm_events.h"

int main(void)
{
	struct asker asker;
	struct rdma_cm_event *event;
	ask(&asker); // BUG: objects-left
	MUST(!rdma_get_cm_event(asker.channel, &event));
	MUST(!rdma_ack_cm_event(event));
	MUST(!rdma_resolve_route(asker.id, 1000));
	MUST(!rdma_get_cm_event(asker.channel, &event)); // BUG: events-not-acknowledged
#ifdef FIXED
	MUST(!rdma_ack_cm_event(event));
	MUST(!rdma_destroy_id(asker.id));
	rdma_destroy_event_channel(asker.channel);
#endif
	return 0;
}
