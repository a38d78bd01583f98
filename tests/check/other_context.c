#include "ends.h"

int main(void)
{
	struct ends ends;
	open_device(&ends);
	struct ibv_device **list = ibv_get_device_list(NULL);
	MUST(list && list[0]);
	struct ibv_context *second = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	MUST(second);
#ifdef FIXED
	struct ibv_context *queues = ends.context;
#else
	struct ibv_context *queues = second;
#endif
	MUST(ends.send_cq = ibv_create_cq(queues, 8, NULL, NULL, 0));
	struct ibv_qp_init_attr wants = {
		.send_cq = ends.send_cq,
		.recv_cq = ends.send_cq,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
	ends.here = ibv_create_qp(ends.pd, &wants); // BUG: object-of-other-context
#ifdef FIXED
	MUST(ends.here);
#else
	MUST(!ends.here && errno == EINVAL);
#endif
	destroy_ends(&ends);
	memset(&ends.channel, 0, sizeof(ends) - offsetof(struct ends, channel));
	MUST(!ibv_close_device(second));
	close_device(&ends);
	return 0;
}
