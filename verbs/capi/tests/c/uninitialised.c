/* A program may send bytes that it never wrote, such as the padding of a structure. Under valgrind with the suppressions of this
 * project that is no error: an adapter would send them as well. */
#include "expect.h"

int main(void)
{
	open_device();
	struct ibv_qp *b, *a = pair(IBV_QPT_RC, &b);
	char *never_written = malloc(8192);
	struct ibv_mr *region = ibv_reg_mr(pd, never_written, 8192, RIGHTS);
	CLAIM(region);
	uint32_t lengths[] = {8, 64, 100, 1024, 5000};
	for (int i = 0; i < 5; i++) {
		struct ibv_sge sge = {.addr = (uintptr_t)never_written, .length = lengths[i], .lkey = region->lkey};
		struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
		post_receive(b, 1, 0, 8192);
		post(a, &wr);
		CLAIM(completions(2) == 1);
	}
	FAILS(ibv_destroy_qp(a), 0);
	FAILS(ibv_destroy_qp(b), 0);
	FAILS(ibv_dereg_mr(region), 0);
	free(never_written);
	return 0;
}
