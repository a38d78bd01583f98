/* Importing a device by its descriptor, and what was made with it: within a process, and across. */
#include "expect.h"
#include <sys/socket.h>
#include <sys/wait.h>

static void within_the_process(void)
{
	REFUSED(ibv_import_device(-1), EBADF);
	REFUSED(ibv_import_device(0), EINVAL);
	int descriptor = dup(ctx->cmd_fd);
	struct ibv_context *again = ibv_import_device(descriptor);
	CLAIM(again && again != ctx && again->device == ctx->device && again->cmd_fd == descriptor);
	CLAIM(again->async_fd != ctx->async_fd);

	struct ibv_pd *other = ibv_alloc_pd(ctx);
	CLAIM(other);
	REFUSED(ibv_import_pd(NULL, 0), EINVAL);
	REFUSED(ibv_import_pd(again, 0x777777), EINVAL);
	struct ibv_pd *same = ibv_import_pd(again, pd->handle), *imported_other = ibv_import_pd(again, other->handle);
	CLAIM(same && same->context == again && same->handle == pd->handle && imported_other);
	REFUSED(ibv_import_mr(same, 0x777777), EINVAL);
	REFUSED(ibv_import_mr(imported_other, mr->handle), EINVAL);
	REFUSED(ibv_import_mr(NULL, mr->handle), EINVAL);
	struct ibv_mr *region = ibv_import_mr(same, mr->handle);
	CLAIM(region && region->lkey == mr->lkey && region->rkey == mr->rkey && region->addr == NULL);
	CLAIM(region->length == mr->length && region->pd == same && region->context == again);

	/* A queue pair of the imported domain, with keys of the original. */
	struct ibv_cq *own_cq = cq;
	struct ibv_qp_init_attr wants = qp_wants(IBV_QPT_RC);
	CLAIM((wants.send_cq = wants.recv_cq = cq = ibv_create_cq(again, 8, NULL, NULL, 0)));
	struct ibv_qp *qp = ibv_create_qp(same, &wants);
	CLAIM(qp && qp->context == again);
	init(qp);
	connect_to(qp, qp->qp_num);
	memory[0] = 5;
	FAILS(outcome(qp, IBV_WR_RDMA_WRITE, piece(0, 8), (uintptr_t)(memory + 1), region->rkey), 0);
	CLAIM(memory[1] == 5);
	ibv_unimport_mr(region);
	ibv_unimport_pd(same);
	/* The objects themselves are still there. */
	FAILS(outcome(qp, IBV_WR_RDMA_WRITE, piece(0, 8), (uintptr_t)(memory + 2), mr->rkey), 0);
	FAILS(ibv_destroy_qp(qp), 0);
	FAILS(ibv_destroy_cq(cq), 0);
	cq = own_cq;

	/* Deallocation through either of them is for both. */
	FAILS(ibv_dealloc_pd(imported_other), 0);
	REFUSED(ibv_import_pd(again, other->handle), EINVAL);
	FAILS(ibv_dealloc_pd(other), EINVAL);

	struct ibv_alloc_dm_attr dm_attr = {.length = 64};
	struct ibv_dm *dm = ibv_alloc_dm(ctx, &dm_attr);
	REFUSED(ibv_import_dm(again, 0x777777), EINVAL);
	struct ibv_dm *same_dm = ibv_import_dm(again, dm->handle);
	char out[4];
	CLAIM(same_dm);
	FAILS(ibv_memcpy_to_dm(dm, 8, "same", 4), 0);
	FAILS(ibv_memcpy_from_dm(out, same_dm, 8, 4), 0);
	CLAIM(!memcmp(out, "same", 4));
	ibv_unimport_dm(same_dm);
	FAILS(ibv_free_dm(dm), 0);

	/* The last context takes the rest with it. */
	struct ibv_pd *left = ibv_alloc_pd(again);
	uint32_t left_handle = left->handle;
	FAILS(ibv_close_device(again), 0);
	CLAIM(fcntl(descriptor, F_GETFD) == -1 && errno == EBADF);
	CLAIM((left = ibv_import_pd(ctx, left_handle)));
	FAILS(ibv_dealloc_pd(left), 0);
	/* Another context of the process that was opened, not imported, has objects of its own. */
	struct ibv_context *stranger = ibv_open_device(ctx->device);
	REFUSED(ibv_import_pd(stranger, pd->handle), EINVAL);
	FAILS(ibv_close_device(stranger), 0);
}

static void send_descriptor(int socket, int descriptor)
{
	char space[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec byte = {.iov_base = "", .iov_len = 1};
	struct msghdr message = {.msg_iov = &byte, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space)};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
	CLAIM(sendmsg(socket, &message, 0) == 1);
}

static int receive_descriptor(int socket)
{
	char space[CMSG_SPACE(sizeof(int))], byte;
	struct iovec place = {.iov_base = &byte, .iov_len = 1};
	struct msghdr message = {.msg_iov = &place, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space)};
	int descriptor;
	CLAIM(recvmsg(socket, &message, 0) == 1 && CMSG_FIRSTHDR(&message));
	memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
	return descriptor;
}

/* The descriptor of another process opens the device; its objects cannot be had. */
static void across_processes(int socket)
{
	int descriptor = receive_descriptor(socket);
	struct ibv_context *imported = ibv_import_device(descriptor);
	CLAIM(imported);
	ctx = imported;
	CLAIM((pd = ibv_alloc_pd(ctx)));
	REFUSED(ibv_import_pd(ctx, 0), EOPNOTSUPP);
	REFUSED(ibv_import_pd(ctx, pd->handle), EOPNOTSUPP);
	REFUSED(ibv_import_mr(pd, 0), EOPNOTSUPP);
	REFUSED(ibv_import_dm(ctx, 1), EOPNOTSUPP);
	CLAIM((cq = ibv_create_cq(ctx, 8, NULL, NULL, 0)));
	CLAIM((mr = ibv_reg_mr(pd, memory, sizeof(memory), RIGHTS)));
	CLAIM(ibv_query_gid(ctx, 1, 0, &own_gid) == 0);
	struct ibv_qp *b, *a = pair(IBV_QPT_RC, &b);
	memory[0] = 9;
	FAILS(outcome(a, IBV_WR_RDMA_WRITE, piece(0, 8), (uintptr_t)(memory + 1), mr->rkey), 0);
	CLAIM(memory[1] == 9);
	FAILS(ibv_close_device(ctx), 0);
}

int main(void)
{
	int sockets[2], status = -1;
	CLAIM(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
	pid_t child = fork();
	if (child == 0) {
		across_processes(sockets[1]);
		_exit(0);
	}
	open_device();
	within_the_process();
	send_descriptor(sockets[0], ctx->cmd_fd);
	CLAIM(waitpid(child, &status, 0) == child);
	CLAIM(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	FAILS(ibv_close_device(ctx), 0);
	return 0;
}
