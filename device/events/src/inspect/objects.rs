//! Objects as other processes see them.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// Multicast groups of a queue pair that are told.
pub const MAX_GROUPS: usize = 2;

/// The other end of a connected queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerView {
    /// Its address.
    pub address: IpAddr,
    /// Its queue pair number.
    pub qpn: u32,
}

/// A queue pair. What is counted begins at 0 when the queue pair is made; `posted`, `ended` and `received`
/// begin again when it goes to RESET.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QpView {
    /// Queue pair number.
    pub qpn: u32,
    /// Queue pairs that the process had made before it: the stable name in fault plans and traces.
    pub ordinal: u32,
    /// "RC", "UC", "UD", …
    pub service: String,
    /// "RTS", "ERR", …
    pub state: String,
    /// The other end, once there is one.
    pub peer: Option<PeerView>,
    /// What carries its packets to the peer, in words; none without a peer, and if the process is of a
    /// version that does not say it.
    #[serde(default)]
    pub medium: Option<String>,
    /// Send requests posted.
    pub posted: u64,
    /// Send requests that ended, well or badly.
    pub ended: u64,
    /// Of the newest send requests, how many in sequence make no completion if they succeed.
    #[serde(default)]
    pub unsignaled: u64,
    /// Messages of the peer that arrived whole.
    pub received: u64,
    /// Packets sent: requests and responses, repeated ones included.
    pub sent_packets: u64,
    /// Their bytes, from the BTH to the ICRC.
    pub sent_bytes: u64,
    /// Packets received.
    pub received_packets: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Packets sent again.
    pub repeated_packets: u64,
    /// Acknowledgement timers that expired.
    pub timeouts: u64,
    /// RNR NAKs sent: it had no receive request for a message.
    pub rnr_naks_sent: u64,
    /// RNR NAKs received: the peer had no receive request.
    pub rnr_naks_received: u64,
    /// Other NAKs sent.
    pub naks_sent: u64,
    /// Other NAKs received.
    pub naks_received: u64,
    /// Packets for it that were dropped.
    pub dropped: u64,
    /// Request packets sent and not acknowledged.
    pub in_flight_packets: u32,
    /// Request packets that may be unacknowledged now; 0 without acknowledgements.
    pub window_packets: u32,
    /// Round trip time, smoothed, in ns.
    pub rtt_ns: Option<u64>,
    /// An RNR NAK came, and the time that it asked for is not over.
    pub waits_for_receiver: bool,
    /// Send requests that fit into its send queue.
    pub send_queue_depth: u32,
    /// Receive requests posted to its own receive queue; none with an SRQ.
    pub receives_posted: Option<u32>,
    /// Receive requests that fit.
    pub recv_queue_depth: u32,
    /// Numbers of its completion queues, for sends and for receives.
    pub send_cq: Option<u32>,
    /// As `send_cq`.
    pub recv_cq: Option<u32>,
    /// Number of its shared receive queue.
    pub srq: Option<u32>,
    /// The multicast group that its newest datagram went to, if it went to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<IpAddr>,
    /// Multicast groups that it is attached to, [`MAX_GROUPS`] of them at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<IpAddr>,
    /// What went wrong last, in words.
    pub last_error: Option<String>,
}

/// A completion queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CqView {
    /// Its number in the process.
    pub number: u32,
    /// Entries that fit.
    pub depth: u32,
    /// Completions to be polled.
    pub filled: u32,
    /// The next completion makes an event.
    pub armed: bool,
    /// It overran, or failed: nothing is added any more.
    pub failed: bool,
    /// Queue pairs and shared receive queues that complete here.
    pub users: u32,
}

/// A shared receive queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SrqView {
    /// Its number in the process.
    pub number: u32,
    /// Shared receive queues that the process had made before it.
    pub ordinal: u32,
    /// Receive requests that fit.
    pub depth: u32,
    /// Receive requests posted and not taken.
    pub posted: u32,
    /// The armed limit; 0 if none.
    pub limit: u32,
    /// It is one for XRC.
    pub xrc: bool,
    /// Number of its completion queue, if it is one for XRC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cq: Option<u32>,
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A queue pair with the longest numbers.
    pub(crate) fn qp(qpn: u32) -> QpView {
        QpView {
            qpn,
            ordinal: u32::MAX,
            service: "XRC_SEND".to_owned(),
            state: "RESET".to_owned(),
            peer: Some(PeerView { address: IpAddr::from([0xffff; 8]), qpn: 0xff_ffff }),
            medium: Some("UDP: it is no process of this user in this network namespace".to_owned()),
            posted: u64::MAX,
            ended: u64::MAX,
            unsignaled: u64::MAX,
            received: u64::MAX,
            sent_packets: u64::MAX,
            sent_bytes: u64::MAX,
            received_packets: u64::MAX,
            received_bytes: u64::MAX,
            repeated_packets: u64::MAX,
            timeouts: u64::MAX,
            rnr_naks_sent: u64::MAX,
            rnr_naks_received: u64::MAX,
            naks_sent: u64::MAX,
            naks_received: u64::MAX,
            dropped: u64::MAX,
            in_flight_packets: u32::MAX,
            window_packets: u32::MAX,
            rtt_ns: Some(u64::MAX),
            waits_for_receiver: true,
            send_queue_depth: u32::MAX,
            receives_posted: Some(u32::MAX),
            recv_queue_depth: u32::MAX,
            send_cq: Some(u32::MAX),
            recv_cq: Some(u32::MAX),
            srq: Some(u32::MAX),
            // What has groups has no peer, which is longer.
            group: None,
            groups: Vec::new(),
            last_error: None,
        }
    }
}
