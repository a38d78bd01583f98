//! What is known about a peer that a queue pair is about to give up.

use std::net::IpAddr;

use pumice_model::port::Port;
use pumice_model::port::batch::Peer;
use pumice_transport::host::PeerProgress;
use pumice_transport::wire::Qpn;

/// Returns what is known about a peer that a queue pair is about to give up: whether its answer may still be
/// unread here, as far as all packets were taken by `drained_ns`; else what the group knows about its
/// process. `doubts` has the time since which the peer is silent, and that at which the timer expired.
pub(super) fn peer_progress(
    doubts: Option<(u64, Option<u64>)>,
    peer: Option<(IpAddr, Qpn)>,
    (now_ns, drained_ns): (u64, u64),
    port: &mut dyn Port,
) -> PeerProgress {
    let Some((since_ns, due_ns)) = doubts else { return PeerProgress::Unknown };
    if due_ns.is_some_and(|due_ns| drained_ns < due_ns) {
        return PeerProgress::Unread;
    }
    match (peer, port.group()) {
        (Some((address, qpn)), Some(group)) => {
            group.peer_progress(now_ns, Peer { address, process: qpn.process() }, since_ns)
        }
        _ => PeerProgress::Unknown,
    }
}
