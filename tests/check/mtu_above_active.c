#include "ends.h"

int main(void)
{
	struct ends ends;
	open_device(&ends);
	make_ends(&ends, 8);
	MUST(!to_init(ends.here));
	struct ibv_qp_attr rtr = rtr_attributes(ends.here, ends.there->qp_num);
	struct ibv_port_attr port;
	MUST(!ibv_query_port(ends.context, 1, &port));
#ifndef FIXED
	rtr.path_mtu = port.active_mtu + 1;
#endif
	ibv_modify_qp(ends.here, &rtr, RTR_MASK); // BUG: mtu-above-active
	close_device(&ends);
	return 0;
}
