//! Which calls are points.

/// What a call is to the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Its place is where it enters: what it causes elsewhere comes after that.
    Enters,
    /// Its place is where it leaves: what it changes in this process is there only then.
    Leaves,
    /// It asks, waits or looks, and changes nothing.
    Other,
}

/// What calls begin with that change something.
const ENTERS: [&str; 30] = [
    "ibv_post_send",
    "ibv_wr_",
    "ibv_create_",
    "ibv_destroy_",
    "ibv_modify_",
    "ibv_open_",
    "ibv_close_",
    "ibv_alloc_",
    "ibv_dealloc_",
    "ibv_reg_",
    "ibv_dereg_",
    "ibv_rereg_",
    "ibv_bind_",
    "ibv_attach_",
    "ibv_detach_",
    "ibv_resize_",
    "rdma_create_",
    "rdma_destroy_",
    "rdma_bind_",
    "rdma_resolve_",
    "rdma_listen",
    "rdma_connect",
    "rdma_accept",
    "rdma_reject",
    "rdma_disconnect",
    "rdma_join_",
    "rdma_leave_",
    "rdma_reg_",
    "rdma_dereg_",
    "rdma_migrate_",
];

/// What calls begin with whose effect is in this process alone.
const LEAVES: [&str; 3] = ["ibv_post_recv", "ibv_post_srq_", "ibv_req_notify_"];

impl Kind {
    pub(super) fn of(call: &str) -> Kind {
        let begins = |all: &[&str]| all.iter().any(|one| call.starts_with(one));
        if begins(&LEAVES) {
            Kind::Leaves
        } else if begins(&ENTERS) {
            Kind::Enters
        } else {
            Kind::Other
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_change_something_are_points() {
        assert_eq!(Kind::of("ibv_post_send"), Kind::Enters);
        assert_eq!(Kind::of("ibv_post_srq_recv"), Kind::Leaves);
        assert_eq!(Kind::of("rdma_create_id"), Kind::Enters);
        for other in ["ibv_poll_cq", "ibv_query_port", "rdma_get_cm_event", "ibv_get_device_list"] {
            assert_eq!(Kind::of(other), Kind::Other, "{other}");
        }
    }
}
