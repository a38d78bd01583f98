//! Which calls are points.

use pumice_calls::Call;

/// What a call is to the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It counts where it enters: what it causes elsewhere comes after that.
    Enters,
    /// It counts where it leaves: what it changes in this process is there only then.
    Leaves,
    /// It asks, waits or looks, and changes nothing.
    Other,
}

impl Kind {
    pub(super) const fn of(call: Call) -> Kind {
        if !call.changes_objects() {
            Kind::Other
        } else if call.expects() {
            Kind::Leaves
        } else {
            Kind::Enters
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
            assert_eq!(Kind::of(enters), Kind::Enters, "{enters}");
        }
        for leaves in [Call::ibv_post_recv, Call::ibv_post_srq_recv, Call::ibv_req_notify_cq] {
            assert_eq!(Kind::of(leaves), Kind::Leaves, "{leaves}");
        }
        for other in [
            Call::ibv_poll_cq,
            Call::ibv_query_port,
            Call::rdma_get_cm_event,
            Call::ibv_get_device_list,
            Call::rdma_getaddrinfo,
            Call::rsend,
        ] {
            assert_eq!(Kind::of(other), Kind::Other, "{other}");
        }
    }
}
