// A solution of exercise 4.
#include "ends.h"

enum { ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };

int main(void)
{
	static struct end asker, owner;
	struct ibv_context *context = open_first_device();
	open_end(&asker, context, IBV_ACCESS_LOCAL_WRITE, 1);
	open_end(&owner, context, ALL, 1);
	connect_end(&asker, &owner, 0, 7);
	connect_end(&owner, &asker, ALL, 7);
	for (int k = 0; k <= 100; k++) {
		struct ibv_sge into = {(uintptr_t)asker.memory, 8, asker.mr->lkey};
		struct ibv_send_wr request = {.sg_list = &into, .num_sge = 1}, *bad;
		if (k < 100) {
			request.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
			request.wr.atomic.remote_addr = (uintptr_t)owner.memory;
			request.wr.atomic.compare_add = 1;
			request.wr.atomic.rkey = owner.mr->rkey;
		} else {
			request.opcode = IBV_WR_RDMA_READ;
			request.wr.rdma.remote_addr = (uintptr_t)owner.memory;
			request.wr.rdma.rkey = owner.mr->rkey;
		}
		need(ibv_post_send(asker.qp, &request, &bad) == 0, "ibv_post_send");
		struct ibv_wc wc;
		while (ibv_poll_cq(asker.cq, 1, &wc) == 0)
			;
		need(wc.status == IBV_WC_SUCCESS, "completion");
	}
	printf("counter %lu\n", *(unsigned long *)asker.memory);
	close_end(&asker);
	close_end(&owner);
	ibv_close_device(context);
	return 0;
}
