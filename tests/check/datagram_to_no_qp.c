/* The number of the receiver has its bytes in the wrong order. */
#include "datagrams.h"

int main(void)
{
	struct ends ends;
	struct ibv_ah *ah = datagram_ends(&ends, NULL);
	MUST(!receive_datagram(&ends, 48));
#ifdef FIXED
	MUST(!send_datagram(&ends, ah, ends.there->qp_num));
#else
	MUST(!send_datagram(&ends, ah, htonl(ends.there->qp_num))); // BUG: datagram-to-no-qp
#endif
	await_datagram(&ends);
	end_datagrams(&ends, ah);
	return 0;
}
