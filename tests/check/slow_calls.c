/* Calls that could be fewer, and payload that the adapter fetches. */
#include "ends.h"

enum { LIST = 16 };

static void post_list(struct ends *ends, int flags)
{
	struct ibv_sge sges[LIST];
	struct ibv_send_wr wrs[LIST], *bad;
	for (int k = 0; k < LIST; k++) {
		wrs[k] = request(ends, &sges[k], IBV_WR_RDMA_WRITE, k + 1 < LIST ? flags : flags | IBV_SEND_SIGNALED);
#ifdef FIXED
		wrs[k].next = k + 1 < LIST ? &wrs[k + 1] : NULL;
	}
	MUST(!ibv_post_send(ends->here, wrs, &bad));
#else
		MUST(!ibv_post_send(ends->here, &wrs[k], &bad)); // BUG: one-post-per-doorbell short-without-inline
	}
#endif
}

/* Receives that a queue pair in error gives back. */
static void receive_list(struct ends *ends)
{
	for (int k = 0; k < LIST; k++)
		MUST(!post_receive(ends, ends->there));
#ifdef FIXED
	struct ibv_wc wcs[LIST];
	for (int left = LIST; left;)
		left -= ibv_poll_cq(ends->recv_cq, left, wcs);
#else
	for (int k = 0; k < LIST; k++)
		poll_one(ends->recv_cq); // BUG: polls-one-at-a-time
#endif
}

int main(void)
{
	struct ends ends;
	open_device(&ends);
	make_ends(&ends, 64);
	connect_ends(&ends);
	for (int k = 0; k < 200; k++) {
#ifdef FIXED
		post_list(&ends, IBV_SEND_INLINE);
#else
		post_list(&ends, 0);
#endif
		poll_one(ends.send_cq);
	}
	struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
	MUST(!ibv_modify_qp(ends.there, &error, IBV_QP_STATE));
	for (int k = 0; k < 200; k++)
		receive_list(&ends);
	close_device(&ends);
	return 0;
}
