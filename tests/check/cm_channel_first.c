/* The channel is destroyed before the identifier that is on it. */
#include "cm_events.h"

int main(void)
{
	struct asker asker;
	struct rdma_cm_event *event;
	ask(&asker);
	MUST(!rdma_get_cm_event(asker.channel, &event));
	MUST(!rdma_ack_cm_event(event));
#ifdef FIXED
	MUST(!rdma_destroy_id(asker.id));
	rdma_destroy_event_channel(asker.channel);
#else
	rdma_destroy_event_channel(asker.channel); // BUG: channel-destroyed-early
	MUST(!rdma_destroy_id(asker.id));
#endif
	return 0;
}
