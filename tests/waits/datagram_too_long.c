/* The receive has no room for the header of the datagram. */
#include "datagrams.h"

int main(void)
{
	struct ends ends;
	struct ibv_ah *ah = datagram_ends(&ends, NULL);
	alarm(120);
#ifdef FIXED
	MUST(!receive_datagram(&ends, 48));
#else
	MUST(!receive_datagram(&ends, 8));
#endif
	MUST(!send_datagram(&ends, ah, ends.there->qp_num));
	poll_one(ends.send_cq);
	poll_one(ends.recv_cq); // HERE
	MUST(!ibv_destroy_ah(ah));
	close_device(&ends);
	return 0;
}
