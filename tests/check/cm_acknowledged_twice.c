/* An event of rdma_cm is acknowledged, and once more at the end of the function. */
#include "cm_events.h"

int main(void)
{
	struct asker asker;
	struct rdma_cm_event *event;
	ask(&asker);
	MUST(!rdma_get_cm_event(asker.channel, &event));
	MUST(!rdma_ack_cm_event(event));
#ifndef FIXED
	rdma_ack_cm_event(event); // BUG: events-acknowledged-twice
#endif
	MUST(!rdma_destroy_id(asker.id));
	rdma_destroy_event_channel(asker.channel);
	return 0;
}
