//! The classification of calls as points of the order.

use pumice_calls::Call;

/// The role of a call in the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PointTiming {
    /// The call counts where it enters: its effects elsewhere come after that.
    Enters,
    /// The call counts where it leaves: only then its change in this process is visible.
    Leaves,
    /// The call asks, waits or polls, and changes nothing.
    Other,
}

impl PointTiming {
    pub(super) const fn of(call: Call) -> PointTiming {
        if !call.changes_objects() {
            PointTiming::Other
        } else if call.expects() {
            PointTiming::Leaves
        } else {
            PointTiming::Enters
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_change_something_are_points() {
        for enters in [
            Call::ibv_post_send,
            Call::ibv_wr_start,
            Call::ibv_create_qp,
            Call::ibv_modify_qp,
            Call::ibv_dereg_mr,
            Call::rdma_create_id,
            Call::rdma_listen,
            Call::rdma_connect,
        ] {
            assert_eq!(PointTiming::of(enters), PointTiming::Enters, "{enters}");
        }
        for leaves in [Call::ibv_post_recv, Call::ibv_post_srq_recv, Call::ibv_req_notify_cq] {
            assert_eq!(PointTiming::of(leaves), PointTiming::Leaves, "{leaves}");
        }
        for other in [
            Call::ibv_poll_cq,
            Call::ibv_query_port,
            Call::rdma_get_cm_event,
            Call::ibv_get_device_list,
            Call::rdma_getaddrinfo,
            Call::rsend,
        ] {
            assert_eq!(PointTiming::of(other), PointTiming::Other, "{other}");
        }
    }
}
