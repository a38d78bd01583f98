/* No queue pair has the number. */
#include "datagrams.h"

int main(void)
{
	struct ends ends;
	struct ibv_ah *ah = datagram_ends(&ends, NULL);
	MUST(!receive_datagram(&ends, 48));
#ifdef FIXED
	MUST(!send_datagram(&ends, ah, ends.there->qp_num));
#else
	MUST(!send_datagram(&ends, ah, ends.there->qp_num + 7)); // BUG: datagram-to-no-qp
#endif
	await_datagram(&ends);
	end_datagrams(&ends, ah);
	return 0;
}
