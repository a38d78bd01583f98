/* A message has no receive request, and rnr_retry is 7. */
#include "ends.h"

int main(void)
{
	struct ends ends;
	open_device(&ends);
	make_ends(&ends, 8);
	connect_ends(&ends);
#ifdef FIXED
	MUST(!post_receive(&ends, ends.there));
#endif
	MUST(!post(&ends, IBV_WR_SEND, IBV_SEND_SIGNALED));
	alarm(120);
	MUST(poll_one(ends.send_cq).status == IBV_WC_SUCCESS); // HERE
	MUST(poll_one(ends.recv_cq).status == IBV_WC_SUCCESS);
	close_device(&ends);
	return 0;
}
