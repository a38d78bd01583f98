//! The limits of the device, as `ibv_query_device` reports them, and the number of objects of a process.

use serde::Deserialize;

/// Sizes of the device's tables and queues. The defaults are those of rdma_rxe, rounded up where a software
/// device has no reason to be smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Largest number of protection domains.
    pub max_pd: u32,
    /// Largest number of memory regions, and of memory windows; together below 2^24.
    pub max_mr: u32,
    /// Size of the device memory in bytes.
    pub max_dm_size: u64,
    /// Largest number of address handles.
    pub max_ah: u32,
    /// Largest number of completion queues.
    pub max_cq: u32,
    /// Largest number of entries of a completion queue.
    pub max_cqe: u32,
    /// Number of completion vectors.
    pub num_comp_vectors: u32,
    /// Largest number of queue pairs; at most 65536, because 16 bits of a QPN choose one here.
    pub max_qp: u32,
    /// Largest number of requests of a send or receive queue.
    pub max_qp_wr: u32,
    /// Largest number of scatter/gather elements of a request.
    pub max_sge: u32,
    /// Largest length of inline data in bytes.
    pub max_inline_data: u32,
    /// Largest number of shared receive queues; below 65536.
    pub max_srq: u32,
    /// Largest number of requests of a shared receive queue.
    pub max_srq_wr: u32,
    /// Largest number of scatter/gather elements of a request of a shared receive queue.
    pub max_srq_sge: u32,
    /// Largest number of XRC domains.
    pub max_xrcd: u32,
    /// Largest number of multicast groups.
    pub max_mcast_grp: u32,
    /// Largest number of queue pairs of one multicast group.
    pub max_mcast_qp_attach: u32,
    /// Number of entries of the P_Key table.
    pub pkey_table_len: u16,
    /// Largest number of READs and atomics that a queue pair may have outstanding as initiator; at most 128.
    pub max_init_rd_atomic: u8,
    /// Largest number of READs and atomics of peers that a queue pair may have outstanding; at most 128.
    pub max_rd_atomic: u8,
    /// Largest number of asynchronous events that wait for the application.
    pub max_async_events: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_pd: 32_768,
            max_mr: 524_288,
            max_dm_size: 1 << 20,
            max_ah: 32_767,
            max_cq: 16_384,
            max_cqe: 1 << 20,
            num_comp_vectors: 8,
            max_qp: 65_536,
            max_qp_wr: 16_384,
            max_sge: 32,
            max_inline_data: 512,
            max_srq: 960,
            max_srq_wr: 16_384,
            max_srq_sge: 32,
            max_xrcd: 1024,
            max_mcast_grp: 8192,
            max_mcast_qp_attach: 56,
            pkey_table_len: 1,
            max_init_rd_atomic: 128,
            max_rd_atomic: 128,
            max_async_events: 1 << 16,
        }
    }
}

/// The number of objects of a process, for each of [`ObjectSummary::KINDS`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ObjectSummary(pub [u64; ObjectSummary::KINDS.len()]);

impl ObjectSummary {
    /// The kinds as `rdma resource` of iproute2 names them; a `cm_id` is a connection or a listener.
    pub const KINDS: [&str; 5] = ["pd", "cq", "qp", "cm_id", "mr"];
}
