/* Device memory and null regions. */
#include "expect.h"

#define ZERO_BASED (RIGHTS | IBV_ACCESS_ZERO_BASED)

static uint64_t size(void)
{
	struct ibv_device_attr_ex attr;
	FAILS(ibv_query_device_ex(ctx, NULL, &attr), 0);
	return attr.max_dm_size;
}

static struct ibv_dm *allocate(size_t length, uint32_t log_align, uint32_t comp_mask)
{
	struct ibv_alloc_dm_attr attr = {.length = length, .log_align_req = log_align, .comp_mask = comp_mask};
	return ibv_alloc_dm(ctx, &attr);
}

static void allocation(void)
{
	uint64_t most = size();
	CLAIM(most >= 64 << 10);
	REFUSED(ibv_alloc_dm(ctx, NULL), EINVAL);
	REFUSED(allocate(0, 0, 0), EINVAL);
	REFUSED(allocate(64, 40, 0), EINVAL);
	REFUSED(allocate(64, 0, 1), EOPNOTSUPP);
	REFUSED(allocate(most + 1, 0, 0), ENOMEM);
	struct ibv_dm *all = allocate(most, 12, 0);
	CLAIM(all && all->context == ctx);
	REFUSED(allocate(1, 0, 0), ENOMEM);
	FAILS(ibv_free_dm(all), 0);
}

static void copies(struct ibv_dm *dm)
{
	char out[16] = "overwritten";
	FAILS(ibv_memcpy_from_dm(out, dm, 100, 16), 0);
	CLAIM(out[0] == 0 && out[15] == 0);
	FAILS(ibv_memcpy_to_dm(dm, 100, "0123456789abcdef", 16), 0);
	FAILS(ibv_memcpy_from_dm(out, dm, 104, 12), 0);
	CLAIM(!memcmp(out, "456789abcdef", 12));
	FAILS(ibv_memcpy_to_dm(dm, 102, out, 4), EINVAL);
	FAILS(ibv_memcpy_to_dm(dm, 100, out, 3), EINVAL);
	FAILS(ibv_memcpy_to_dm(dm, 100, NULL, 4), EINVAL);
	FAILS(ibv_memcpy_to_dm(dm, 1020, out, 8), EFAULT);
	FAILS(ibv_memcpy_from_dm(out, dm, UINT64_MAX - 3, 8), EFAULT);
	FAILS(ibv_memcpy_from_dm(out, dm, 0, SIZE_MAX), EFAULT);
	FAILS(ibv_memcpy_from_dm(out, dm, 1024, 0), 0);
}

static void registered(struct ibv_dm *dm)
{
	REFUSED(ibv_reg_dm_mr(pd, dm, 0, 1024, RIGHTS), EINVAL);
	REFUSED(ibv_reg_dm_mr(pd, dm, 0, 1025, ZERO_BASED), EINVAL);
	REFUSED(ibv_reg_dm_mr(pd, dm, 1024, 1, ZERO_BASED), EINVAL);
	REFUSED(ibv_reg_dm_mr(pd, dm, UINT64_MAX, 8, ZERO_BASED), EINVAL);
	REFUSED(ibv_reg_dm_mr(pd, dm, 0, 8, ZERO_BASED | IBV_ACCESS_ON_DEMAND), EINVAL);
	REFUSED(ibv_reg_dm_mr(pd, dm, 0, 8, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_REMOTE_WRITE), EINVAL);
	REFUSED(ibv_reg_dm_mr(pd, NULL, 0, 8, ZERO_BASED), EINVAL);
	struct ibv_mr *region = ibv_reg_dm_mr(pd, dm, 512, 512, ZERO_BASED);
	CLAIM(region && region->length == 512 && region->pd == pd && region->addr == NULL);
	FAILS(ibv_free_dm(dm), EBUSY);
	struct ibv_qp *b, *a = pair(IBV_QPT_RC, &b);
	strcpy((char *)memory, "into the device");
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, piece(0, 16), 4, region->rkey), 0);
	char out[16];
	FAILS(ibv_memcpy_from_dm(out, dm, 516, 16), 0);
	CLAIM(!strcmp(out, "into the device"));
	FAILS(outcome(a, IBV_WR_RDMA_READ, piece(64, 16), 4, region->rkey), 0);
	CLAIM(!strcmp((char *)memory + 64, "into the device"));
	/* As local memory. */
	struct ibv_sge inside = {.addr = 4, .length = 16, .lkey = region->lkey};
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, inside, (uintptr_t)memory + 128, mr->rkey), 0);
	CLAIM(!strcmp((char *)memory + 128, "into the device"));
	FAILS(outcome(a, IBV_WR_ATOMIC_FETCH_AND_ADD, piece(0, 8), 0, region->rkey), 0);
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, piece(0, 16), 500, region->rkey), IBV_WC_REM_ACCESS_ERR);
	FAILS(ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, RIGHTS), IBV_REREG_MR_ERR_CMD);
	FAILS(ibv_destroy_qp(a), 0);
	FAILS(ibv_destroy_qp(b), 0);
	FAILS(ibv_dereg_mr(region), 0);
}

static void null_region(void)
{
	struct ibv_mr *null = ibv_alloc_null_mr(pd);
	CLAIM(null && null->length == SIZE_MAX && null->addr == NULL && null->lkey != mr->lkey);
	struct ibv_qp *b, *a = pair(IBV_QPT_RC, &b);
	struct ibv_sge nothing = {.addr = 0x1234, .length = 5000, .lkey = null->lkey};
	memset(memory, 0xff, 6000);
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, nothing, (uintptr_t)memory, mr->rkey), 0);
	for (int i = 0; i < 6000; i++)
		CLAIM(((unsigned char *)memory)[i] == (i < 5000 ? 0 : 0xff));
	FAILS(outcome(a, IBV_WR_RDMA_READ, nothing, (uintptr_t)memory, mr->rkey), 0);
	/* It swallows the middle of a message. */
	struct ibv_sge parts[3] = {piece(8000, 4), nothing, piece(8004, 4)};
	struct ibv_recv_wr receive = {.wr_id = 3, .sg_list = parts, .num_sge = 3}, *bad;
	parts[1].length = 100;
	strcpy((char *)memory + 100, "head");
	strcpy((char *)memory + 204, "tail");
	FAILS(ibv_post_recv(b, &receive, &bad), 0);
	struct ibv_sge whole = piece(100, 108);
	struct ibv_send_wr send = {.sg_list = &whole, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
	post(a, &send);
	CLAIM(completions(2) == 3);
	CLAIM(!memcmp((char *)memory + 8000, "headtail", 8));
	/* It is for local use, and can be neither changed nor bound to. */
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, piece(0, 8), 0, null->lkey), IBV_WC_REM_ACCESS_ERR);
	FAILS(ibv_rereg_mr(null, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, RIGHTS), IBV_REREG_MR_ERR_CMD);
	FAILS(ibv_destroy_qp(a), 0);
	FAILS(ibv_destroy_qp(b), 0);
	FAILS(ibv_dereg_mr(null), 0);
}

int main(void)
{
	open_device();
	allocation();
	struct ibv_dm *dm = allocate(1024, 6, 0);
	CLAIM(dm);
	copies(dm);
	registered(dm);
	FAILS(ibv_free_dm(dm), 0);
	null_region();
	/* What is left goes with the context. */
	CLAIM(allocate(size(), 0, 0));
	FAILS(ibv_close_device(ctx), 0);
	open_device();
	CLAIM(allocate(size(), 0, 0));
	FAILS(ibv_close_device(ctx), 0);
	return 0;
}
