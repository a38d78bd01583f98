//! The use that requests make of memory: of peers, of the program's own, and by peers.

use std::net::IpAddr;

use pumice_platform::call_stack::Stack;
use pumice_transport::types::{RemoteRange, SendRequest, WrClass};
use pumice_transport::wire::ProcessIndex;

/// The process that a queue pair is connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::check) struct PeerProcess {
    pub(in crate::check) address: IpAddr,
    pub(in crate::check) process: ProcessIndex,
}

/// The memory of a peer: the peer, and the R_Key.
pub(in crate::check) type PeerMemory = (PeerProcess, u32);

/// An access of a request to memory of a peer.
#[derive(Debug, Clone)]
pub(in crate::check) struct PeerMemoryAccess {
    pub(in crate::check) number: u32,
    pub(in crate::check) message: u64,
    pub(in crate::check) class: WrClass,
    pub(in crate::check) name: &'static str,
    /// Address of the first byte of its payload in this process; 0 if it has none.
    pub(in crate::check) source: u64,
    pub(in crate::check) stack: Stack,
}

/// Returns the memory of the peer that a request names.
pub(in crate::check) fn target_of(
    request: &SendRequest<'_>,
    length_bytes: u32,
) -> Option<(WrClass, RemoteRange)> {
    let info = request.opcode.info();
    let length_bytes = match info.class {
        WrClass::Write | WrClass::Read => length_bytes.into(),
        WrClass::Atomic => 8,
        // ATOMIC WRITE, with its one word; FLUSH uses no bytes.
        WrClass::Confirmed if info.data.is_sent() => 8,
        _ => return None,
    };
    let range = RemoteRange { rkey: request.remote.rkey, address: request.remote.address, length_bytes };
    let class = if info.class == WrClass::Confirmed { WrClass::Atomic } else { info.class };
    (length_bytes > 0).then_some((class, range))
}

/// Reports whether the bytes depend on which of two requests of different queue pairs is first.
pub(in crate::check) fn conflict(one: WrClass, other: WrClass) -> bool {
    one == WrClass::Write || other == WrClass::Write
}

/// Memory that a READ or an atomic fills.
#[derive(Debug, Clone)]
pub(in crate::check) struct LandingBuffer {
    pub(in crate::check) number: u32,
    pub(in crate::check) message: u64,
    pub(in crate::check) name: &'static str,
    pub(in crate::check) stack: Stack,
}

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
