/* The program connects before the route is resolved. */
#include "cm_events.h"

int main(void)
{
	struct asker asker;
	ask_and_hear(&asker);
#ifndef FIXED
	struct rdma_conn_param parameters = {.responder_resources = 1, .initiator_depth = 1, .retry_count = 7};
	MUST(rdma_connect(asker.id, &parameters) == -1); // BUG: call-refused
#endif
	end_id(&asker);
	return 0;
}
