/* The process ends with an event of rdma_cm that it got and did not acknowledge. */
#include "cm_events.h"

int main(void)
{
	struct asker asker;
	ask_and_hear(&asker); // BUG: objects-left
	MUST(!rdma_resolve_route(asker.id, 1000));
	struct rdma_cm_event *event = next_event(&asker); // BUG: events-not-acknowledged
	MUST(event);
#ifdef FIXED
	MUST(!rdma_ack_cm_event(event));
	end_id(&asker);
#endif
	return 0;
}
