/* The datagram goes to a number that no queue pair has. */
#include "datagrams.h"

int main(void)
{
	struct ends ends;
	struct ibv_ah *ah = datagram_ends(&ends, NULL);
	alarm(120);
	uint32_t number = ends.there->qp_num;
#ifndef FIXED
	number += 7;
#endif
	MUST(!receive_datagram(&ends, 48) && !send_datagram(&ends, ah, number));
	poll_one(ends.send_cq);
	poll_one(ends.recv_cq); // HERE
	MUST(!ibv_destroy_ah(ah));
	close_device(&ends);
	return 0;
}
