#include "ends.h"

int main(void)
{
	struct ends ends;
	open_device(&ends);
	struct ibv_cq_init_attr_ex wants = {.cqe = 8, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(ends.context, &wants);
	MUST(cq);
	MUST(ends.recv_cq = ibv_create_cq(ends.context, 8, NULL, NULL, 0));
	ends.send_cq = ibv_cq_ex_to_cq(cq);
	ends.here = make_qp(&ends, IBV_QPT_RC, ends.send_cq);
	ends.there = make_qp(&ends, IBV_QPT_RC, ends.recv_cq);
	connect_ends(&ends);
	struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
	MUST(!post_receive(&ends, ends.here) && !ibv_modify_qp(ends.here, &error, IBV_QP_STATE));
	struct ibv_poll_cq_attr none = {0};
	while (ibv_start_poll(cq, &none))
		;
	MUST(cq->status == IBV_WC_WR_FLUSH_ERR);
#ifdef FIXED
	int is_receive = cq->wr_id == 0;
#else
	int is_receive = ibv_wc_read_opcode(cq) & IBV_WC_RECV; // BUG: wc-field-of-error
#endif
	ibv_end_poll(cq);
	MUST(is_receive);
	close_device(&ends);
	return 0;
}
