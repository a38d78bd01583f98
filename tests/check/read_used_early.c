/* The program looks at what a READ and an atomic bring before it has polled their completions. */
#include "ends.h"

#include "breakpoints.h"

#include <signal.h>

UNUSED static void own_trap(int number)
{
	_exit(number);
}

static int poll_before(struct ibv_cq *cq)
{
#ifdef FIXED
	poll_one(cq);
	return 0;
#else
	return 1;
#endif
}

static void poll_behind(struct ibv_cq *cq, int has_to)
{
	if (has_to)
		poll_one(cq);
}

/* A page of its own, so that functions of the C library are seen as well. */
static char page[4096] __attribute__((aligned(4096)));

int main(void)
{
	struct ends ends;
	struct ibv_sge sge;
	struct ibv_send_wr *bad;
	need_breakpoints();
#ifdef HANDLES
	signal(SIGTRAP, own_trap);
#endif
	open_device(&ends);
	make_ends(&ends, 8);
	connect_ends(&ends);
	struct ibv_mr *mr = ibv_reg_mr(ends.pd, page, sizeof(page), IBV_ACCESS_LOCAL_WRITE);
	MUST(mr);

	/* Bytes at the end of a result, by an instruction of the program. */
	strcpy(memory + 64, "what the peer has");
	struct ibv_send_wr read = request(&ends, &sge, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED);
	sge = (struct ibv_sge){.addr = (uintptr_t)page, .length = 2000, .lkey = mr->lkey};
	MUST(!ibv_post_send(ends.here, &read, &bad));
	int waits = poll_before(ends.send_cq);
	printf("%d\n", *(volatile char *)&page[1999]); // BUG: read-result-early
	poll_behind(ends.send_cq, waits);

	/* The beginning, by a function of the C library. */
	MUST(!ibv_post_send(ends.here, &read, &bad));
	waits = poll_before(ends.send_cq);
	puts(page); // BUG: read-result-early
	poll_behind(ends.send_cq, waits);

	/* The program may touch what is beside the result, and may use the result when it has polled. */
	sge.length = 8;
	sge.addr += 8;
	MUST(!ibv_post_send(ends.here, &read, &bad));
	memset(page, 0, 8);
	memset(page + 16, 1, 8);
	poll_one(ends.send_cq);
	printf("%.8s\n", page + 8);
	memset(page, 0, sizeof(page));

	/* A string may end before the result, and the C library's functions read beyond its end. */
	strcpy(page + 100, "beside it");
	sge.length = 2000;
	sge.addr = (uintptr_t)page + 112;
	MUST(!ibv_post_send(ends.here, &read, &bad));
	MUST(strlen(page + 100) == 9 && strchr(page + 100, 'i') == page + 103);
	poll_one(ends.send_cq);
	MUST(!strcmp(page + 112, "what the peer has"));

	MUST(!ibv_dereg_mr(mr));
	close_device(&ends);
	return 0;
}
