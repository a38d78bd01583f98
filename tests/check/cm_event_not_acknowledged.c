/* rdma_destroy_id waits for an event that the program got and never acknowledges. */
#include "cm_events.h"

int main(void)
{
	struct asker asker;
	struct rdma_cm_event *event;
	ask(&asker);
	MUST(!rdma_get_cm_event(asker.channel, &event)); // BUG: events-not-acknowledged
#ifdef FIXED
	MUST(!rdma_ack_cm_event(event));
#else
	alarm(5);
#endif
	MUST(!rdma_destroy_id(asker.id));
	rdma_destroy_event_channel(asker.channel);
	return 0;
}
