/* The route is resolved before the event of the address has been got. */
#include "cm_events.h"

int main(void)
{
	struct asker asker;
	struct rdma_cm_event *event;
	ask(&asker);
#ifdef FIXED
	MUST(!rdma_get_cm_event(asker.channel, &event) && !rdma_ack_cm_event(event));
#endif
	MUST(!rdma_resolve_route(asker.id, 1000)); // BUG: step-before-event
#ifndef FIXED
	MUST(!rdma_get_cm_event(asker.channel, &event) && !rdma_ack_cm_event(event));
#endif
	MUST(!rdma_get_cm_event(asker.channel, &event) && !rdma_ack_cm_event(event));
	MUST(!rdma_destroy_id(asker.id));
	rdma_destroy_event_channel(asker.channel);
	return 0;
}
