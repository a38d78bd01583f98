/*
 * A controller of MRC and queue pairs of one process: profiles go step by step, an explicit profile's values are
 * used, denied and heard of, ports are disabled and enabled.
 */
#include "mrc_kit.h"

enum { FORMAT = 11, VALUES = 12, CONGESTION = 13, COUNT = 8 };

static struct mrc_context *mrc;
static struct mrc_cq *queue;
static struct mrc_qp *one, *other;
static uint32_t one_qpn, other_qpn;

#define ENDS(call, number)                                                                                   \
	do {                                                                                                 \
		errno = 0;                                                                                   \
		CLAIM((call) == -1 && errno == (number));                                                    \
	} while (0)

static void what_the_device_has(void)
{
	struct mrc_ctl_device_attr device;
	CLAIM(mrc_ctl_query_device(ctx, &device) == 0);
	CLAIM(device.ev.ev_fmt_mode_mask == (MRC_CTL_EV_FMT_MODE_STEV | MRC_CTL_EV_FMT_MODE_UDP));
	CLAIM(device.ev.ev_mode_mask == (MRC_CTL_EV_MODE_AUTO | MRC_CTL_EV_MODE_EXP | MRC_CTL_EV_MODE_GEN));
	CLAIM(device.ev.ev_max_width == 32 && device.ev.ev_count_align == 1 && device.ev.ev_max_count_profile >= 256);
	CLAIM(strcmp(device.cc.algorithms[0], "uet-1.0-nscc") == 0 && !device.cc.algorithms[1]);
	CLAIM(device.phy_port_mask == 2 && (device.opt_attr & MRC_CTL_OPT_CAP_EV_EVENT));
	int supported = 0;
	CLAIM(mrc_ctl_query_device_ex(ctx, mrc, &device, &supported) == 0 && supported == 1);
	uint32_t current;
	mrc_ctl_query_version(&current, NULL, NULL, NULL);
	CLAIM(current == MRC_CTL_API_CURRENT_VERSION);
	struct mrc_ctl_port_attr port = {0};
	CLAIM(mrc_ctl_query_port(mrc, 1, &port, MRC_CTL_PORT_ADMIN_STATE) == 0);
	CLAIM(port.port_admin_state == MRC_CTL_PORT_ADMIN_ENABLED);
	ENDS(mrc_ctl_query_port(mrc, 2, &port, MRC_CTL_PORT_ADMIN_STATE), EINVAL);
}

static void make_format(void)
{
	struct mrc_ctl_ev_fmt_profile_attr attr = {.profile_state = MRC_CTL_PROFILE_ONLINE};
	ENDS(mrc_ctl_modify_ev_fmt_profile(mrc, FORMAT, &attr, MRC_CTL_EV_FMT_PROFILE_STATE), EINVAL);
	struct mrc_ctl_ev_fmt_field fields[2] = {{16}, {16}};
	attr.profile_state = MRC_CTL_PROFILE_OFFLINE;
	attr.ev_fmt_mode = MRC_CTL_EV_FMT_MODE_SRV6;
	int mask = MRC_CTL_EV_FMT_PROFILE_STATE | MRC_CTL_EV_FMT_PROFILE_MODE;
	ENDS(mrc_ctl_modify_ev_fmt_profile(mrc, FORMAT, &attr, mask), EINVAL);
	attr.ev_fmt_mode = MRC_CTL_EV_FMT_MODE_STEV;
	CLAIM(mrc_ctl_modify_ev_fmt_profile(mrc, FORMAT, &attr, mask) == 0);
	attr.profile_state = MRC_CTL_PROFILE_ONLINE;
	ENDS(mrc_ctl_modify_ev_fmt_profile(mrc, FORMAT, &attr, MRC_CTL_EV_FMT_PROFILE_STATE), EINVAL);
	attr.ev_fmt_op.op = MRC_CTL_EV_FMT_OP_MODIFY_FIELDS;
	attr.ev_fmt_op.fmt_fields = fields;
	attr.ev_fmt_op.fmt_field_count = 2;
	CLAIM(mrc_ctl_modify_ev_fmt_profile(mrc, FORMAT, &attr, MRC_CTL_EV_FMT_PROFILE_STATE | MRC_CTL_EV_FMT_PROFILE_OP) == 0);
	struct mrc_ctl_ev_fmt_field had[2] = {{0}};
	struct mrc_ctl_ev_fmt_profile_attr asked = {
		.ev_fmt_op = {.op = MRC_CTL_EV_FMT_OP_QUERY_FIELDS, .fmt_fields = had, .fmt_field_count = 1}};
	ENDS(mrc_ctl_query_ev_fmt_profile(mrc, FORMAT, &asked, MRC_CTL_EV_FMT_PROFILE_OP), E2BIG);
	CLAIM(asked.ev_fmt_op.fmt_field_count == 2);
	CLAIM(mrc_ctl_query_ev_fmt_profile(mrc, FORMAT, &asked, MRC_CTL_EV_FMT_PROFILE_OP | MRC_CTL_EV_FMT_PROFILE_MODE) == 0);
	CLAIM(had[0].width == 16 && had[1].width == 16 && asked.ev_fmt_mode == MRC_CTL_EV_FMT_MODE_STEV);
	CLAIM(asked.profile_state == MRC_CTL_PROFILE_ONLINE);
}

static struct mrc_ctl_ev value(uint32_t number)
{
	struct mrc_ctl_ev ev = {.port = 1};
	memcpy(ev.val, &number, sizeof(number));
	return ev;
}

static void make_values(void)
{
	struct mrc_ctl_ev_profile_attr attr = {
		.profile_state = MRC_CTL_PROFILE_OFFLINE,
		.ev_mode = MRC_CTL_EV_MODE_EXP,
		.ev_fmt_profile_id = FORMAT,
		.ev_count = COUNT,
		.ev_min_active = 2,
		.ev_event_mask = MRC_CTL_EV_GOOD | MRC_CTL_EV_ASSUMED_BAD,
	};
	int mask = MRC_CTL_EV_PROFILE_STATE | MRC_CTL_EV_PROFILE_MODE | MRC_CTL_EV_PROFILE_FMT_ID |
		   MRC_CTL_EV_PROFILE_COUNT | MRC_CTL_EV_PROFILE_MIN_ACTIVE | MRC_CTL_EV_PROFILE_EVENT_MASK;
	attr.ev_min_active = COUNT + 1;
	ENDS(mrc_ctl_modify_ev_profile(mrc, VALUES, &attr, mask), EINVAL);
	attr.ev_min_active = 2;
	CLAIM(mrc_ctl_modify_ev_profile(mrc, VALUES, &attr, mask) == 0);
	attr.profile_state = MRC_CTL_PROFILE_ONLINE;
	ENDS(mrc_ctl_modify_ev_profile(mrc, VALUES, &attr, MRC_CTL_EV_PROFILE_STATE), EINVAL);
	struct mrc_ctl_ev_op_entry entries[COUNT];
	for (uint32_t index = 0; index < COUNT; index++)
		entries[index] = (struct mrc_ctl_ev_op_entry){.ev = MRC_CTL_EV_UNPOPULATED,
							      .ev_new = value(0x70000 + 0xc100 + index),
							      .state = MRC_CTL_EV_GOOD};
	attr.ev_op.op = MRC_CTL_EV_OP_REPLACE_EV;
	attr.ev_op.entries = entries;
	attr.ev_op.entry_count = COUNT;
	CLAIM(mrc_ctl_modify_ev_profile(mrc, VALUES, &attr, MRC_CTL_EV_PROFILE_STATE | MRC_CTL_EV_PROFILE_EV_OP) == 0);
	struct mrc_ctl_ev_op_entry had[COUNT] = {0};
	struct mrc_ctl_ev_profile_attr asked = {
		.ev_op = {.op = MRC_CTL_EV_OP_QUERY_EV_ARRAY, .entries = had, .entry_count = COUNT - 1}};
	ENDS(mrc_ctl_query_ev_profile(mrc, VALUES, &asked, MRC_CTL_EV_PROFILE_EV_OP), E2BIG);
	CLAIM(asked.ev_op.entry_count == COUNT);
	CLAIM(mrc_ctl_query_ev_profile(mrc, VALUES, &asked, MRC_CTL_EV_PROFILE_EV_OP) == 0);
	CLAIM(asked.profile_state == MRC_CTL_PROFILE_ONLINE && asked.ev_count == COUNT && asked.ev_min_active == 2);
	struct mrc_ctl_ev last = value(0x70000 + 0xc100 + COUNT - 1);
	CLAIM(memcmp(&had[COUNT - 1].ev, &last, sizeof(last)) == 0 && had[0].state == MRC_CTL_EV_GOOD);
	/* A format that a profile uses stays. */
	struct mrc_ctl_ev_fmt_profile_attr format = {.profile_state = MRC_CTL_PROFILE_OFFLINE};
	ENDS(mrc_ctl_modify_ev_fmt_profile(mrc, FORMAT, &format, MRC_CTL_EV_FMT_PROFILE_STATE), EBUSY);
}

static void make_congestion(void)
{
	struct mrc_ctl_cc_nscc_cfg nscc = {.base_rtt = 200000, .gamma = 0.5, .max_cwnd = 1 << 20};
	struct mrc_ctl_cc_profile_attr attr = {
		.profile_state = MRC_CTL_PROFILE_OFFLINE, .algorithm = "dcqcn", .cc_config = &nscc};
	ENDS(mrc_ctl_modify_cc_profile(mrc, CONGESTION, &attr, MRC_CTL_CC_PROFILE_STATE | MRC_CTL_CC_PROFILE_ALGORITHM), EINVAL);
	attr.algorithm = "uet-1.0-nscc";
	CLAIM(mrc_ctl_modify_cc_profile(mrc, CONGESTION, &attr, MRC_CTL_CC_PROFILE_STATE | MRC_CTL_CC_PROFILE_ALGORITHM) == 0);
	attr.profile_state = MRC_CTL_PROFILE_ONLINE;
	ENDS(mrc_ctl_modify_cc_profile(mrc, CONGESTION, &attr, MRC_CTL_CC_PROFILE_STATE), EINVAL);
	CLAIM(mrc_ctl_modify_cc_profile(mrc, CONGESTION, &attr, MRC_CTL_CC_PROFILE_STATE | MRC_CTL_CC_PROFILE_CONFIG) == 0);
	struct mrc_ctl_cc_nscc_cfg had = {0};
	struct mrc_ctl_cc_profile_attr asked = {.cc_config = &had};
	CLAIM(mrc_ctl_query_cc_profile(mrc, CONGESTION, &asked, MRC_CTL_CC_PROFILE_CONFIG | MRC_CTL_CC_PROFILE_ALGORITHM) == 0);
	CLAIM(strcmp(asked.algorithm, "uet-1.0-nscc") == 0 && had.base_rtt == 200000 && had.gamma == 0.5f);
	CLAIM(asked.cur_profile_state == MRC_CTL_PROFILE_ONLINE && had.max_cwnd == 1 << 20 && had.qa_gate == 3);
}

static struct mrc_qp *make_qp(uint32_t *qpn, uint64_t values)
{
	struct mrc_qp_init_attr init = {
		.send_cq = queue,
		.recv_cq = queue,
		.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1},
		.sq_sig_all = 1,
		.pd = pd,
	};
	struct mrc_qp *qp = mrc_create_qp(mrc, &init);
	CLAIM(qp && mrc_get_qpn(qp, qpn) == 0);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
	struct mrc_qp_attr profiles = {.profile = {.ev_profile_id = 999, .cc_profile_id = CONGESTION}};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	/* A profile that does not exist. */
	FAILS(mrc_modify_qp(qp, &attr, mask, &profiles, MRC_QP_EV_PROFILE_ID), ENOENT);
	profiles.profile.ev_profile_id = values;
	FAILS(mrc_modify_qp(qp, &attr, mask, &profiles, MRC_QP_EV_PROFILE_ID | MRC_QP_CC_PROFILE_ID), 0);
	return qp;
}

static void connect_qp(struct mrc_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR,
				  .path_mtu = IBV_MTU_1024,
				  .dest_qp_num = peer,
				  .rq_psn = 7,
				  .ah_attr = own_address()};
	FAILS(mrc_modify_qp(qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN, NULL, 0), 0);
	struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS, .sq_psn = 7};
	struct mrc_qp_attr limits = {.mpr = {.mpr = 4}, .wimm = {.max_wimm = 2}, .timeout = 12, .retry = {5, 3}};
	FAILS(mrc_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN, &limits,
			    MRC_QP_MPR | MRC_QP_MAX_WIMM | MRC_QP_TIMEOUT | MRC_QP_RETRY_CNT),
	      0);
}

static struct ibv_wc next(void)
{
	struct ibv_wc wc = {0};
	time_t end = time(NULL) + 60;
	int count;
	while ((count = mrc_poll_cq(queue, 1, &wc)) == 0)
		CLAIM(time(NULL) <= end);
	CLAIM(count == 1);
	return wc;
}

static void write_once(uint32_t length)
{
	fill((uint8_t *)memory, length, length);
	struct ibv_sge sge = piece(0, length);
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_WRITE,
				 .wr.rdma = {(uintptr_t)memory + 32768, mr->rkey}},
			   *bad;
	FAILS(mrc_post_send(one, &wr, &bad), 0);
	CLAIM(next().status == IBV_WC_SUCCESS);
	holds((uint8_t *)memory + 32768, length, length);
}

static void change_state(uint32_t number, enum mrc_ctl_ev_state state)
{
	struct mrc_ctl_ev_op_entry entry = {.ev = value(number), .state = state};
	struct mrc_ctl_ev_profile_attr attr = {
		.ev_op = {.op = MRC_CTL_EV_OP_MODIFY_EV_STATE, .entries = &entry, .entry_count = 1}};
	CLAIM(mrc_ctl_modify_ev_profile(mrc, VALUES, &attr, MRC_CTL_EV_PROFILE_EV_OP) == 0);
	attr.ev_op.op = MRC_CTL_EV_OP_QUERY_EV_STATE;
	entry.state = 0;
	CLAIM(mrc_ctl_query_ev_profile(mrc, VALUES, &attr, MRC_CTL_EV_PROFILE_EV_OP) == 0);
	CLAIM(entry.state == state);
}

/* Paths to the own address and to one where no process is. */
static void probe(const char *unused)
{
	struct in_addr address;
	CLAIM(inet_pton(AF_INET, unused, &address) == 1);
	struct mrc_ctl_ep_req requests[3];
	for (int index = 0; index < 3; index++)
		requests[index] = (struct mrc_ctl_ep_req){.req_id = 40 + index,
							  .sgid = own_gid,
							  .dgid = own_gid,
							  .ev_fmt_mode = MRC_CTL_EV_FMT_MODE_UDP,
							  .req_ev = value(0xc200 + index)};
	struct mrc_ctl_ep_rsp answers[3] = {{0}};
	int count = -1;
	CLAIM(mrc_ctl_ep_batch_send_wait(mrc, 46, MRC_CTL_EP_OP_EV_PROBE, requests, 3, 1000000000, answers, &count) == 0);
	CLAIM(count == 3);
	int sum = 0;
	for (int index = 0; index < 3; index++) {
		CLAIM(answers[index].port == 1 && answers[index].rtt > 0 && answers[index].adj_svc_time == 0);
		sum += answers[index].req_id;
	}
	CLAIM(sum == 40 + 41 + 42);
	requests[0].op.port_status_update.port_status = 2;
	CLAIM(mrc_ctl_ep_batch_send_wait(mrc, 46, MRC_CTL_EP_OP_PORT_STATUS_UPDATE, requests, 1, 1000000000, answers, &count) == 0);
	CLAIM(count == 1);
	memcpy(&requests[1].dgid.raw[12], &address, 4);
	ENDS(mrc_ctl_ep_batch_send_wait(mrc, 0, MRC_CTL_EP_OP_EV_PROBE, requests, 2, 50000000, answers, &count), ETIMEDOUT);
	CLAIM(count == 1 && answers[0].req_id == 40);
	requests[1].req_id = 40;
	ENDS(mrc_ctl_ep_batch_send_wait(mrc, 0, MRC_CTL_EP_OP_EV_PROBE, requests, 2, 50000000, answers, &count), EINVAL);
}

int main(int argc, char **argv)
{
	CLAIM(argc == 2);
	open_device();
	CLAIM((mrc = mrc_create_context(ctx, NULL)));
	CLAIM((queue = mrc_create_cq(mrc, 64, NULL, NULL, 0)));
	what_the_device_has();
	make_format();
	make_values();
	make_congestion();
	probe(argv[1]);
	struct mrc_cq *events = mrc_ctl_create_ev_event_cq(mrc, 16, NULL, NULL, 0);
	CLAIM(events);
	struct mrc_ctl_ev_event event;
	CLAIM(mrc_ctl_poll_ev_event(events, 1, &event) == 0);
	one = make_qp(&one_qpn, VALUES);
	other = make_qp(&other_qpn, VALUES);
	connect_qp(one, other_qpn);
	connect_qp(other, one_qpn);
	struct mrc_qp_attr of_mrc;
	FAILS(mrc_query_qp(one, NULL, 0, &of_mrc, 0, NULL), 0);
	CLAIM(of_mrc.mpr.mpr == 4 && of_mrc.wimm.max_wimm == 2 && of_mrc.timeout == 12 && of_mrc.retry.exp_cnt == 3);
	CLAIM(of_mrc.profile.ev_profile_id == VALUES && of_mrc.profile.cc_profile_id == CONGESTION);
	write_once(30000);
	/* Profiles in use stay. */
	struct mrc_ctl_ev_profile_attr off = {.profile_state = MRC_CTL_PROFILE_OFFLINE};
	ENDS(mrc_ctl_modify_ev_profile(mrc, VALUES, &off, MRC_CTL_EV_PROFILE_STATE), EBUSY);
	struct mrc_ctl_cc_profile_attr cc_off = {.profile_state = MRC_CTL_PROFILE_OFFLINE};
	ENDS(mrc_ctl_modify_cc_profile(mrc, CONGESTION, &cc_off, MRC_CTL_CC_PROFILE_STATE), EBUSY);
	/* A denied value is no event, and one that is good again is. */
	change_state(0x7c100, MRC_CTL_EV_DENIED);
	write_once(31000);
	change_state(0x7c100, MRC_CTL_EV_GOOD);
	write_once(32000);
	struct mrc_ctl_ev good = value(0x7c100);
	int heard = 0;
	while (mrc_ctl_poll_ev_event(events, 1, &event) == 1) {
		CLAIM(event.profile_id == VALUES && event.ev.port == 1 && event.state != MRC_CTL_EV_DENIED);
		/* On a busy machine timers find other values bad. */
		heard += memcmp(&event.ev, &good, sizeof(good)) == 0 && event.state == MRC_CTL_EV_GOOD;
	}
	CLAIM(heard >= 2); /* each queue pair says it */
	/* Without a port nothing leaves. */
	struct mrc_ctl_port_attr port = {.port_admin_state = MRC_CTL_PORT_ADMIN_DISABLED};
	CLAIM(mrc_ctl_modify_port(mrc, 1, &port, MRC_CTL_PORT_ADMIN_STATE) == 0);
	struct ibv_sge sge = piece(0, 100);
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_WRITE,
				 .wr.rdma = {(uintptr_t)memory + 32768, mr->rkey}},
			   *bad;
	FAILS(mrc_post_send(one, &wr, &bad), 0);
	struct ibv_wc wc;
	for (int poll = 0; poll < 100; poll++)
		CLAIM(mrc_poll_cq(queue, 1, &wc) == 0);
	port.port_admin_state = MRC_CTL_PORT_ADMIN_ENABLED;
	CLAIM(mrc_ctl_modify_port(mrc, 1, &port, MRC_CTL_PORT_ADMIN_STATE) == 0);
	CLAIM(next().status == IBV_WC_SUCCESS);
	FAILS(mrc_destroy_qp(one), 0);
	FAILS(mrc_destroy_qp(other), 0);
	CLAIM(mrc_ctl_modify_ev_profile(mrc, VALUES, &off, MRC_CTL_EV_PROFILE_STATE) == 0);
	off.profile_state = MRC_CTL_PROFILE_INIT;
	CLAIM(mrc_ctl_modify_ev_profile(mrc, VALUES, &off, MRC_CTL_EV_PROFILE_STATE) == 0);
	FAILS(mrc_destroy_cq(events), 0);
	FAILS(mrc_destroy_cq(queue), 0);
	CLAIM(mrc_destroy_context(mrc) == 0);
	return 0;
}
