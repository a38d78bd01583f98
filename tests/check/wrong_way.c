/* An MTU that the port does not have, and a GID of the other IP version. */
#include "ends.h"

int main(void)
{
	struct ends ends;
	open_device(&ends);
	make_ends(&ends, 8);
	MUST(!to_init(ends.here) && !to_init(ends.there));
	struct ibv_qp_attr rtr = rtr_attributes(ends.here, ends.there->qp_num);
#ifndef FIXED
	inet_pton(AF_INET6, "fe80::1", rtr.ah_attr.grh.dgid.raw);
#endif
	ibv_modify_qp(ends.here, &rtr, RTR_MASK); // BUG: gid-of-other-family
	close_device(&ends);
	return 0;
}
