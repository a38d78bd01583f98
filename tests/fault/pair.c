/* One end of a connection: says its queue pair and GID, reads those of the other end, and then posts receive requests
 * ("recv 4"), sends messages one after the other ("send 4") or waits for completions ("wait 4"). An argument is the code
 * of the RNR timer. */
#include "../sweep/steps.h"

static int rnr_timer = 1;

static int connect_to(struct ibv_qp *qp, uint32_t peer, const union ibv_gid *gid)
{
	struct ibv_qp_attr init = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_LOCAL_WRITE};
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer,
		.rq_psn = 7,
		.min_rnr_timer = rnr_timer,
		.ah_attr = {.is_global = 1, .grh = {.dgid = *gid, .hop_limit = 64}, .port_num = 1},
	};
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS, .sq_psn = 7, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7};
	int failed = ibv_modify_qp(qp, &init,
				   IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (!failed)
		failed = ibv_modify_qp(qp, &rtr,
				       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (!failed)
		failed = ibv_modify_qp(qp, &rts,
				       IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					       IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
	return complain("connecting", failed);
}

static int wait_for_one(struct all *all)
{
	struct ibv_wc wc;
	int found;
	while (!(found = ibv_poll_cq(all->cq, 1, &wc)))
		;
	if (found < 0)
		return complain("ibv_poll_cq", EIO);
	return wc.status ? complain(ibv_wc_status_str(wc.status), EIO) : 0;
}

static int say_who(struct all *all)
{
	union ibv_gid gid;
	if (ibv_query_gid(all->context, 1, 0, &gid))
		return complain("ibv_query_gid", errno);
	printf("%u", all->qp->qp_num);
	for (int i = 0; i < 16; i++)
		printf(" %u", gid.raw[i]);
	puts("");
	return 0;
}

static int hear_who(struct all *all)
{
	union ibv_gid gid;
	unsigned int peer, byte;
	int failed = scanf("%u", &peer) != 1;
	for (int i = 0; i < 16 && !failed; i++) {
		failed = scanf("%u", &byte) != 1;
		gid.raw[i] = byte;
	}
	return failed || connect_to(all->qp, peer, &gid);
}

static int make_unconnected(struct all *all)
{
	memset(all, 0, sizeof(*all));
	if ((all->context = open_first()) && (all->pd = ibv_alloc_pd(all->context)) &&
	    (all->cq = ibv_create_cq(all->context, 8, NULL, NULL, 0)) &&
	    (all->mr = ibv_reg_mr(all->pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE)) &&
	    (all->qp = make_qp(all->pd, all->cq)))
		return 0;
	return complain("making a queue pair", errno ? errno : EIO);
}

int main(int count, char **arguments)
{
	struct all all;
	char what[8];
	int failed = make_unconnected(&all), messages;
	if (count > 1)
		rnr_timer = atoi(arguments[1]);
	setvbuf(stdout, NULL, _IOLBF, 0);
	failed = failed || say_who(&all) || hear_who(&all);
	if (!failed)
		puts("ready");
	while (!failed && scanf("%7s %d", what, &messages) == 2) {
		for (int i = 0; i < messages && !failed; i++) {
			if (what[0] == 'r')
				failed = post_receive(all.qp, all.mr);
			else
				failed = (what[0] == 's' && post_send(all.qp, all.mr)) || wait_for_one(&all);
		}
		if (!failed)
			printf("done %d\n", messages);
	}
	return give_back(&all) || failed;
}
