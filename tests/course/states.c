// A solution of exercise 2.
#include "ends.h"

int main(void)
{
	static struct end one, other;
	struct ibv_context *context = open_first_device();
	open_end(&one, context, IBV_ACCESS_LOCAL_WRITE, 1);
	open_end(&other, context, IBV_ACCESS_LOCAL_WRITE, 1);
	connect_end(&one, &other, 0, 7);
	connect_end(&other, &one, 0, 7);
	post_receive_at(&one, 0);
	struct ibv_qp_attr err = {.qp_state = IBV_QPS_ERR};
	need(ibv_modify_qp(one.qp, &err, IBV_QP_STATE) == 0, "ERR");
	struct ibv_wc wc;
	while (ibv_poll_cq(one.cq, 1, &wc) == 0)
		;
	puts(ibv_wc_status_str(wc.status));
	close_end(&one);
	close_end(&other);
	ibv_close_device(context);
	return 0;
}
