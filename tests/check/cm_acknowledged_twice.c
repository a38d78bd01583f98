/* An event of rdma_cm is acknowledged, and once more at the end of the function. */
#include "cm_events.h"

int main(void)
{
	struct asker asker;
	ask(&asker);
	struct rdma_cm_event *event = next_event(&asker);
	MUST(!rdma_ack_cm_event(event));
#ifndef FIXED
	rdma_ack_cm_event(event); // BUG: events-acknowledged-twice
#endif
	end_id(&asker);
	return 0;
}
