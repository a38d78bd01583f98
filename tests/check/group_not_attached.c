/* The receiver is not attached to the group. */
#include "datagrams.h"

int main(void)
{
	struct ends ends;
	union ibv_gid group = {.raw = {[10] = 0xff, 0xff, 239, 1, 2, 3}};
	struct ibv_ah *ah = datagram_ends(&ends, &group);
	MUST(!receive_datagram(&ends, 48));
#ifdef FIXED
	MUST(!ibv_attach_mcast(ends.there, &group, 0));
#endif
	MUST(!send_datagram(&ends, ah, 0xffffff)); // BUG: datagram-to-no-qp
	await_datagram(&ends);
#ifdef FIXED
	MUST(!ibv_detach_mcast(ends.there, &group, 0));
#endif
	end_datagrams(&ends, ah);
	return 0;
}
