#include "ends.h"
#include <sys/mman.h>

enum { BYTES = 4096 };

int main(void)
{
	struct ends ends;
	open_device(&ends);
	make_ends(&ends, 8);
	connect_ends(&ends);
	char *page = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(page != MAP_FAILED);
	struct ibv_mr *mr = ibv_reg_mr(ends.pd, page, BYTES, IBV_ACCESS_LOCAL_WRITE);
	MUST(mr);
	struct ibv_sge sge;
	struct ibv_send_wr wr = request(&ends, &sge, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED), *bad;
	sge = (struct ibv_sge){.addr = (uintptr_t)page, .length = 64, .lkey = mr->lkey};
	MUST(!ibv_post_send(ends.here, &wr, &bad)); // BUG: freed-while-in-use
#ifndef FIXED
	MUST(!munmap(page, BYTES));
#endif
	poll_one(ends.send_cq);
	MUST(!ibv_dereg_mr(mr));
#ifdef FIXED
	MUST(!munmap(page, BYTES));
#endif
	close_device(&ends);
	return 0;
}
