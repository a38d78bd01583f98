/* The channel is destroyed before the identifier that is on it. */
#include "cm_events.h"

int main(void)
{
	struct asker asker;
	ask_and_hear(&asker);
#ifdef FIXED
	end_id(&asker);
#else
	rdma_destroy_event_channel(asker.channel); // BUG: channel-destroyed-early
	MUST(!rdma_destroy_id(asker.id));
#endif
	return 0;
}
