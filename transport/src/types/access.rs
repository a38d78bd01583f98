//! Access rights of memory regions, memory windows and queue pairs.

bitflags::bitflags! {
    /// Access rights (`IBV_ACCESS_*`). On a queue pair they limit the kinds of operation that a peer may ask
    /// for (NAK "invalid request" otherwise); on a memory region or window they protect the memory (NAK
    /// "remote access error" otherwise).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct Access: u32 {
        /// Local writes: receive scatter, READ target, atomic result. Reads are always allowed.
        const LOCAL_WRITE = 1;
        /// RDMA WRITE and ATOMIC WRITE by the peer; needs `LOCAL_WRITE` on an MR.
        const REMOTE_WRITE = 2;
        /// RDMA READ by the peer.
        const REMOTE_READ = 4;
        /// CmpSwap and FetchAdd by the peer; needs `LOCAL_WRITE` on an MR.
        const REMOTE_ATOMIC = 8;
        /// Memory windows may be bound to the region.
        const MW_BIND = 0x10;
        /// Remote addresses count from 0 instead of from the buffer's address.
        const ZERO_BASED = 0x20;
        /// On-demand paging: no page is pinned, as is always the case in a software device.
        const ON_DEMAND = 0x40;
        /// Huge pages: a hint, ignored.
        const HUGETLB = 0x80;
        /// FLUSH with placement "global visibility".
        const FLUSH_GLOBAL = 0x100;
        /// FLUSH with placement "persistence".
        const FLUSH_PERSISTENT = 0x200;
        /// Relaxed ordering: [`STORE_GUARANTEES`](super::STORE_GUARANTEES) lists the guarantees that stores
        /// there have. Only a shuffled schedule makes use of it.
        const RELAXED_ORDERING = 1 << 20;
    }
}

impl Access {
    /// Mask of the optional bits (1 << 20 … 1 << 29): unknown ones are ignored, never rejected.
    pub const OPTIONAL_RANGE: u32 = 0x3ff0_0000;
}
