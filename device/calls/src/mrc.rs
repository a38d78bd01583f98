//! The calls of libmrc (`mrc.h` and `mrc_ctl.h`): queue pairs over many paths, and their controller.

use crate::row::CallFamily;

pub(crate) const FAMILY: CallFamily = CallFamily::Mrc;
/// Version of the symbols. Other libraries have none, and programs are linked without one.
pub(crate) const V1_0: &str = "MRC_1.0";

macro_rules! rows {
    ($then:ident $left:tt $($rows:tt)*) => { $then! { $left $($rows)* mrc {
        mrc_query_device_ex: minus(V1_0).queries(Context).no_page().fails(QUERY),
        mrc_query_device: minus(V1_0).queries(Context).no_page().fails(QUERY),
        mrc_query_version: plain(V1_0).converts().no_page(),
        mrc_create_context: null(V1_0).creates(MrcContext, Context).no_page().fails(MAKE),
        mrc_destroy_context: minus(V1_0).destroys(MrcContext).no_page().fails(DESTROY),
        mrc_create_comp_channel: minus(V1_0).creates(Channel, MrcContext).no_page().fails(MAKE_FILE),
        mrc_get_comp_channel_fd: minus(V1_0).queries(Channel).no_page().fails(QUERY),
        mrc_destroy_comp_channel: errno(V1_0).destroys(Channel).no_page().fails(DESTROY),
        mrc_create_cq: null(V1_0).creates(CompletionQueue, MrcContext).no_page().fails(MAKE),
        mrc_poll_cq: minus(V1_0).polls(CompletionQueue).no_page().fails(POLL),
        mrc_destroy_cq: errno(V1_0).destroys(CompletionQueue).no_page().fails(DESTROY),
        mrc_create_qp_hint: null(V1_0).creates(MrcHint, MrcContext).no_page().fails(MAKE),
        mrc_destroy_qp_hint: minus(V1_0).destroys(MrcHint).no_page().fails(DESTROY),
        mrc_query_qp_hint: minus(V1_0).queries(MrcHint).no_page().fails(QUERY),
        mrc_modify_qp_hint: minus(V1_0).changes(MrcHint).no_page().fails(CHANGE),
        mrc_create_qp: null(V1_0).creates(QueuePair, MrcContext).no_page().fails(MAKE),
        mrc_destroy_qp: errno(V1_0).destroys(QueuePair).no_page().fails(DESTROY),
        mrc_query_qp: errno(V1_0).queries(QueuePair).no_page().fails(QUERY),
        mrc_modify_qp: errno(V1_0).changes(QueuePair).no_page().fails(CHANGE_PATH),
        mrc_get_qpn: minus(V1_0).queries(QueuePair).no_page().fails(QUERY),
        mrc_post_recv: errno(V1_0).posts(QueuePair).no_page().fails(POST),
        mrc_post_send: errno(V1_0).posts(QueuePair).no_page().fails(POST),
        mrc_get_async_event: minus(V1_0).waits(MrcContext).no_page().fails(WAIT),
        mrc_ack_async_event: plain(V1_0).acknowledges(MrcContext).no_page(),
        mrc_req_notify_cq: errno(V1_0).arms(CompletionQueue).no_page().fails(ARM),
        mrc_get_cq_event: minus(V1_0).waits(Channel).no_page().fails(WAIT),
        mrc_ack_cq_events: plain(V1_0).acknowledges(CompletionQueue).no_page(),

        mrc_ctl_query_device_ex: minus(V1_0).queries(Context).no_page().fails(QUERY),
        mrc_ctl_query_device: minus(V1_0).queries(Context).no_page().fails(QUERY),
        mrc_ctl_query_version: plain(V1_0).converts().no_page(),
        mrc_ctl_query_port: minus(V1_0).queries(MrcContext).no_page().fails(QUERY),
        mrc_ctl_modify_port: minus(V1_0).changes(MrcContext).no_page().fails(CHANGE),
        mrc_ctl_modify_ev_fmt_profile: minus(V1_0).changes(MrcContext).no_page().fails(CHANGE),
        mrc_ctl_query_ev_fmt_profile: minus(V1_0).queries(MrcContext).no_page().fails(QUERY),
        mrc_ctl_modify_ev_profile: minus(V1_0).changes(MrcContext).no_page().fails(CHANGE),
        mrc_ctl_query_ev_profile: minus(V1_0).queries(MrcContext).no_page().fails(QUERY),
        mrc_ctl_modify_cc_profile: minus(V1_0).changes(MrcContext).no_page().fails(CHANGE),
        mrc_ctl_query_cc_profile: minus(V1_0).queries(MrcContext).no_page().fails(QUERY),
        mrc_ctl_create_ev_event_cq: null(V1_0).creates(CompletionQueue, MrcContext).no_page().fails(MAKE),
        mrc_ctl_poll_ev_event: negative(V1_0).polls(CompletionQueue).no_page().fails(POLL),
        mrc_ctl_ep_batch_send_wait: minus(V1_0).queries(MrcContext).no_page().fails(CHANGE),
    } } };
}
pub(crate) use rows;
