/* What the programs about XRC share. */
#include "expect.h"
#include <sys/stat.h>

#define XRC_INIT_ATTR_FULL (IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS)

/* A file without a name. */
__attribute__((unused)) static int new_file(void)
{
	char name[] = "/tmp/pumice-xrc-XXXXXX";
	int fd = mkstemp(name);
	CLAIM(fd >= 0 && unlink(name) == 0);
	return fd;
}

/* Another descriptor of the same file, as another open(2) makes it. */
__attribute__((unused)) static int opened_again(int fd)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	int again = open(path, O_RDWR);
	CLAIM(again >= 0);
	return again;
}

__attribute__((unused)) static void post_to_srq(struct ibv_srq *srq, uint64_t wr_id, unsigned offset, uint32_t length)
{
	struct ibv_sge sge = piece(offset, length);
	struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad;
	FAILS(ibv_post_srq_recv(srq, &wr, &bad), 0);
}

/* Attributes of a receiving half, up to ready to receive. */
__attribute__((unused)) static struct ibv_qp_attr receiving(uint32_t peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer,
		.rq_psn = 100,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 12,
		.ah_attr = own_address(),
	};
	return attr;
}

#define INIT_MASK (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define RTR_MASK                                                                                             \
	(IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |                      \
	 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)

/* The next asynchronous event, which has to be there within five seconds. */
__attribute__((unused)) static struct ibv_async_event next_event(struct ibv_context *context)
{
	struct pollfd readable = {.fd = context->async_fd, .events = POLLIN};
	struct ibv_async_event event;
	CLAIM(poll(&readable, 1, 60000) == 1);
	CLAIM(ibv_get_async_event(context, &event) == 0);
	return event;
}

__attribute__((unused)) static void no_event(struct ibv_context *context)
{
	struct pollfd readable = {.fd = context->async_fd, .events = POLLIN};
	CLAIM(poll(&readable, 1, 50) == 0);
}
