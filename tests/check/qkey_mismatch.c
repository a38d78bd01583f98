/* The receiver has another Q_Key than the datagram. */
#include "datagrams.h"

int main(void)
{
	struct ends ends;
	open_datagrams(&ends);
#ifdef FIXED
	ends.there = make_datagrams(&ends, ends.recv_cq, QKEY);
#else
	ends.there = make_datagrams(&ends, ends.recv_cq, 0x2222); // BUG: qkey-mismatch
#endif
	struct ibv_ah *ah = handle_to(&ends, NULL);
	/* The first 40 bytes are for the header. */
	MUST(!receive_datagram(&ends, 48));
	MUST(!send_datagram(&ends, ah, ends.there->qp_num));
	await_datagram(&ends);
	end_datagrams(&ends, ah);
	return 0;
}
