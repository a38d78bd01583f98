//! WRITEs of peers into the memory of this process.

use pumice_transport::types::RemoteRange;

/// A WRITE of which packets are to come.
#[derive(Debug, Clone)]
pub(in crate::check) struct IncomingWrite {
    pub(in crate::check) range: RemoteRange,
    /// Access by another queue pair's peer to bytes of the range meanwhile.
    pub(in crate::check) met: Option<(u32, RemoteRange)>,
}

pub(in crate::check) fn overlap(one: &RemoteRange, other: &RemoteRange) -> bool {
    let end = |range: &RemoteRange| range.address.saturating_add(range.length_bytes);
    one.rkey == other.rkey && one.address < end(other) && other.address < end(one)
}
