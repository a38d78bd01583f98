/* All receives have one buffer, and the program looks at it after each completion. A program that does not care for what
 * comes may do that. */
#include "ends.h"

#include "breakpoints.h"

enum { MESSAGES = 4 };

int main(void)
{
	struct ends ends;
	need_breakpoints();
	open_device(&ends);
	make_ends(&ends, 8);
	connect_ends(&ends);
	for (int k = 0; k < MESSAGES; k++)
		MUST(!post_receive(&ends, ends.there)); // BUG: buffers-overlap
	for (int k = 0; k < MESSAGES; k++) {
		memset(memory, k + 1, 8);
		MUST(!post(&ends, IBV_WR_SEND, IBV_SEND_SIGNALED));
		poll_one(ends.send_cq);
	}
	int sum = 0;
	for (int k = 0; k < MESSAGES; k++) {
		MUST(poll_one(ends.recv_cq).status == IBV_WC_SUCCESS);
#ifndef FIXED
		sum += *(volatile char *)(memory + 128);
#endif
	}
	close_device(&ends);
	return sum < 0;
}
