//! The number of objects of a process.

/// The number of objects of a process, for each of [`ObjectSummary::KINDS`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ObjectSummary(pub [u64; ObjectSummary::KINDS.len()]);

impl ObjectSummary {
    /// The kinds as `rdma resource` of iproute2 names them; a `cm_id` is a connection or a listener.
    pub const KINDS: [&str; 5] = ["pd", "cq", "qp", "cm_id", "mr"];
}
