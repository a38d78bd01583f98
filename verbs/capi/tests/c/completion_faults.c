/* Completions that the rules of tests/call_faults.rs change: after a call of the program, and with what follows. */
#include "expect.h"

static struct ibv_qp *queue_pair(void)
{
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	struct ibv_qp *qp = ibv_create_qp(pd, &wants);
	CLAIM(qp);
	init(qp);
	return qp;
}

int main(void)
{
	open_device();
	struct ibv_qp *one = queue_pair(), *other = queue_pair();
	connect_to(one, other->qp_num);
	connect_to(other, one->qp_num);
	struct ibv_sge sge = piece(0, 8);
	struct ibv_send_wr write = {.wr_id = 3, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad = NULL;
	write.wr.rdma.remote_addr = (uintptr_t)memory + 64;
	write.wr.rdma.rkey = mr->rkey;
	FAILS(ibv_post_send(one, &write, &bad), 0);
	CLAIM(completion().status == IBV_WC_SUCCESS);
	/* The second call of this name: open_device made the first one. */
	FAILS(ibv_query_gid(ctx, 1, 0, &own_gid), 0);
	FAILS(ibv_post_send(one, &write, &bad), 0);
	struct ibv_wc failed = completion();
	CLAIM(failed.status == IBV_WC_RETRY_EXC_ERR && failed.vendor_err == 129 && failed.wr_id == 3);
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr made;
	FAILS(ibv_query_qp(one, &attr, IBV_QP_STATE, &made), 0);
	CLAIM(attr.qp_state == IBV_QPS_ERR);
	FAILS(ibv_post_send(one, &write, &bad), 0);
	CLAIM(completion().status == IBV_WC_WR_FLUSH_ERR);
	return 0;
}
