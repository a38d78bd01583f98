/* What the planted programs of MRC share: two queue pairs of libmrc in one process, "here" sends and "there" receives.
 * libmrc is opened by dlopen(3), as collective libraries do. */
#include "ends.h"
#include "../../verbs/capi/include/pumice/mrc.h"
#include <dlfcn.h>

#define CALLS(DO)                                                                                                      \
	DO(mrc_create_context)                                                                                         \
	DO(mrc_destroy_context)                                                                                        \
	DO(mrc_create_cq)                                                                                              \
	DO(mrc_destroy_cq)                                                                                             \
	DO(mrc_poll_cq)                                                                                                \
	DO(mrc_create_qp)                                                                                              \
	DO(mrc_destroy_qp)                                                                                             \
	DO(mrc_modify_qp)                                                                                              \
	DO(mrc_get_qpn)                                                                                                \
	DO(mrc_post_recv)                                                                                              \
	DO(mrc_get_async_event)                                                                                        \
	DO(mrc_ack_async_event)                                                                                        \
	DO(mrc_post_send)
#define POINTER(call) UNUSED static __typeof__(&call) do_##call;
#define FIND(call) MUST((do_##call = (__typeof__(&call))dlsym(library, #call)));
CALLS(POINTER)

static struct mrc_context *mrc;
static struct mrc_cq *mrc_cq;

/* An end that is made, and what is to be told to the other one. */
struct mrc_end {
	struct mrc_qp *qp;
	uint32_t qpn;
};

UNUSED static void open_mrc(struct ends *ends)
{
	void *library = dlopen("libmrc.so", RTLD_NOW);
	MUST(library);
	CALLS(FIND)
	open_device(ends);
	struct mrc_context_attr wants = {0};
	MUST(mrc = do_mrc_create_context(ends->context, &wants));
	MUST(mrc_cq = do_mrc_create_cq(mrc, 64, NULL, NULL, 0));
}

UNUSED static struct mrc_end make_mrc(struct ends *ends)
{
	struct mrc_end end;
	struct mrc_qp_init_attr wants = {
		.send_cq = mrc_cq,
		.recv_cq = mrc_cq,
		.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1},
		.pd = ends->pd,
	};
	MUST(end.qp = do_mrc_create_qp(mrc, &wants));
	MUST(!do_mrc_get_qpn(end.qp, &end.qpn));
	return end;
}

UNUSED static int mrc_to_init(struct mrc_end end, struct mrc_qp_attr *own, int mask)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
	return do_mrc_modify_qp(end.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, own,
				mask);
}

UNUSED static int mrc_to_rtr(struct ends *ends, struct mrc_end end, struct mrc_end peer, struct mrc_qp_attr *own,
			     int mask)
{
	union ibv_gid gid;
	MUST(!ibv_query_gid(ends->context, 1, 0, &gid));
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer.qpn,
		.ah_attr = {.is_global = 1, .grh = {.dgid = gid, .hop_limit = 64}, .port_num = 1},
	};
	return do_mrc_modify_qp(end.qp, &attr,
				IBV_QP_STATE | IBV_QP_AV | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_PATH_MTU, own, mask);
}

UNUSED static int mrc_to_rts(struct mrc_end end, struct mrc_qp_attr *own, int mask)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};
	return do_mrc_modify_qp(end.qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN, own, mask);
}

UNUSED static int mrc_write(struct ends *ends, struct mrc_end end, enum ibv_wr_opcode opcode)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = request(ends, &sge, opcode, IBV_SEND_SIGNALED), *bad;
	return do_mrc_post_send(end.qp, &wr, &bad);
}

UNUSED static void mrc_receive(struct mrc_end end)
{
	struct ibv_recv_wr wr = {0}, *bad;
	MUST(!do_mrc_post_recv(end.qp, &wr, &bad));
}

/* Polls one completion, of any status. */
UNUSED static struct ibv_wc mrc_poll_one(void)
{
	struct ibv_wc wc;
	int found;
	while ((found = do_mrc_poll_cq(mrc_cq, 1, &wc)) == 0)
		;
	MUST(found == 1);
	return wc;
}

/* Reads the events up to that of a queue pair that has refused a message. */
UNUSED static void mrc_read_events(void)
{
	struct mrc_async_event event;
	do {
		MUST(!do_mrc_get_async_event(mrc, &event));
		do_mrc_ack_async_event(&event);
	} while (event.event_type != IBV_EVENT_QP_REQ_ERR);
}

UNUSED static void close_mrc(struct ends *ends, struct mrc_end here, struct mrc_end there)
{
	struct ibv_wc wc;
	while (do_mrc_poll_cq(mrc_cq, 1, &wc) > 0)
		;
	MUST(!do_mrc_destroy_qp(here.qp) && !do_mrc_destroy_qp(there.qp) && !do_mrc_destroy_cq(mrc_cq));
	MUST(!do_mrc_destroy_context(mrc));
	close_device(ends);
}
