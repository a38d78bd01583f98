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
	struct ibv_sge sge = {.addr = (uintptr_t)page, .length = 64, .lkey = mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
	MUST(!ibv_post_recv(ends.there, &wr, &bad));
#ifndef FIXED
	MUST(!munmap(page, BYTES)); // BUG: freed-while-in-use
#endif
	MUST(!ibv_destroy_qp(ends.there));
	ends.there = NULL;
	MUST(!ibv_dereg_mr(mr));
#ifdef FIXED
	MUST(!munmap(page, BYTES));
#endif
	close_device(&ends);
	return 0;
}
