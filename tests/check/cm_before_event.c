/* The route is resolved before the event of the address has been got. */
#include "cm_events.h"

int main(void)
{
	struct asker asker;
	ask(&asker);
#ifdef FIXED
	pass_event(&asker, RDMA_CM_EVENT_ADDR_RESOLVED);
#endif
	MUST(!rdma_resolve_route(asker.id, 1000)); // BUG: step-before-event
#ifndef FIXED
	pass_event(&asker, RDMA_CM_EVENT_ADDR_RESOLVED);
#endif
	pass_event(&asker, RDMA_CM_EVENT_ROUTE_RESOLVED);
	end_id(&asker);
	return 0;
}
