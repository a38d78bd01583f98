/* rdma_destroy_id waits for an event that the program got and never acknowledges. */
#include "cm_events.h"

int main(void)
{
	struct asker asker;
	ask(&asker);
	struct rdma_cm_event *event = next_event(&asker); // BUG: events-not-acknowledged
	MUST(event);
#ifdef FIXED
	MUST(!rdma_ack_cm_event(event));
#else
	alarm(5);
#endif
	end_id(&asker);
	return 0;
}
