/* Prints what a failed completion has in fields that failed completions do not have. */
#include "ends.h"

int main(void)
{
	struct ends ends;
	open_device(&ends);
	make_ends(&ends, 8);
	MUST(!to_init(ends.here) && !post_receive(&ends, ends.here));
	struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
	MUST(!ibv_modify_qp(ends.here, &error, IBV_QP_STATE));
	struct ibv_wc wc = poll_one(ends.send_cq);
	MUST(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == 0 && wc.qp_num == ends.here->qp_num);
	printf("%#x %#x %#x %#x %#x %#x %#x %#x %#x\n", wc.opcode, wc.byte_len, wc.imm_data, wc.src_qp, wc.wc_flags,
	       wc.pkey_index, wc.slid, wc.sl, wc.dlid_path_bits);
	close_device(&ends);
	return 0;
}
