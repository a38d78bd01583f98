/* The receiver is not attached to the group. */
#include "datagrams.h"

int main(void)
{
	struct ends ends;
	union ibv_gid group = {.raw = {[10] = 0xff, 0xff, 239, 1, 2, 44}};
	struct ibv_ah *ah = datagram_ends(&ends, &group);
	alarm(120);
#ifdef FIXED
	MUST(!ibv_attach_mcast(ends.there, &group, 0));
#endif
	MUST(!receive_datagram(&ends, 48) && !send_datagram(&ends, ah, 0xffffff));
	poll_one(ends.send_cq);
	poll_one(ends.recv_cq); // HERE
#ifdef FIXED
	MUST(!ibv_detach_mcast(ends.there, &group, 0));
#endif
	MUST(!ibv_destroy_ah(ah));
	close_device(&ends);
	return 0;
}
