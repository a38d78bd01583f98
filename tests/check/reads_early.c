/* Prints what is in the buffer of a receive before the message has come, and after. */
#include "ends.h"

int main(void)
{
	struct ends ends;
	open_device(&ends);
	make_ends(&ends, 8);
	connect_ends(&ends);
	memset(memory, 0x33, 8);
	MUST(!post_receive(&ends, ends.there));
	volatile unsigned char *received = (unsigned char *)memory + 128;
	printf("%#x %#x %#x ", received[0], received[7], received[8]);
	MUST(!post(&ends, IBV_WR_SEND, IBV_SEND_SIGNALED));
	poll_one(ends.recv_cq);
	poll_one(ends.send_cq);
	printf("%#x\n", received[0]);
	close_device(&ends);
	return 0;
}
