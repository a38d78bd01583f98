// A solution of exercise 1.
#include "ends.h"

int main(void)
{
	struct ibv_context *context = open_first_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	size_t bytes = 1 << 20;
	char *memory = aligned_alloc(4096, bytes);
	need(pd && memory, "a domain and memory");
	struct ibv_mr *mr;
	while ((mr = ibv_reg_mr(pd, memory, bytes, IBV_ACCESS_LOCAL_WRITE)) == NULL && bytes > 1)
		bytes /= 2;
	need(mr != NULL, "ibv_reg_mr");
	printf("registered %zu bytes\n", bytes);
	ibv_dereg_mr(mr);
	free(memory);
	ibv_dealloc_pd(pd);
	ibv_close_device(context);
	return 0;
}
