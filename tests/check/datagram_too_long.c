/* The receive has no room for the 40 bytes of the header. */
#include "datagrams.h"

int main(void)
{
	struct ends ends;
	struct ibv_ah *ah = datagram_ends(&ends, NULL);
#ifdef FIXED
	MUST(!receive_datagram(&ends, 48));
#else
	MUST(!receive_datagram(&ends, 8)); // BUG: datagram-too-long
#endif
	MUST(!send_datagram(&ends, ah, ends.there->qp_num));
	await_datagram(&ends);
	end_datagrams(&ends, ah);
	return 0;
}
