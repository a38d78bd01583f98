//! Objects as other processes see them, MRC included.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// Most paths of a queue pair that a view contains.
pub const MAX_PATHS: usize = 256;
/// Most changes of paths of a queue pair that a view contains.
pub const MAX_PATH_CHANGES: usize = 32;
/// Most profiles that the views of a process contain.
pub const MAX_PROFILES: usize = 64;

/// The state of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum PathStateView {
    /// The path is used.
    Good,
    /// The path is left out for one pass of the set.
    Skip,
    /// Packets were lost on the path: it is tested, and not used.
    AssumedBad,
    /// The controller has excluded the path.
    Denied,
}

/// A path of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathView {
    /// The low half of its entropy value, which is the UDP source port.
    pub source_port: u16,
    /// Its plane, from 0.
    pub plane: u8,
    /// Its state.
    pub state: PathStateView,
    /// False for a path that is held back to replace others.
    pub active: bool,
    /// Number of data packets sent.
    pub sent: u64,
    /// Number of data packets that were lost, trimmed ones included.
    pub lost: u64,
    /// Number of reports of congestion: marks and trims.
    pub congested: u64,
    /// Number of consecutive probes that were answered, while it is ASSUMED_BAD.
    pub answered: u8,
}

/// A change of a path's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathChangeView {
    /// Time since the change, until the queue pair was last active, in ns.
    pub ago_ns: u64,
    /// The low half of the entropy value, which is the UDP source port.
    pub source_port: u16,
    /// The plane, from 0.
    pub plane: u8,
    /// The new state.
    pub state: PathStateView,
}

/// The facts about an MRC queue pair that other queue pairs do not have.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MrcView {
    /// The RC queue pair whose WRITEs it carries.
    pub twin_of: Option<u32>,
    /// Its profile of entropy values; `None`: the device chose them.
    pub ev_profile: Option<u64>,
    /// Its profile of congestion control; `None`: there is none.
    pub cc_profile: Option<u64>,
    /// Number of planes.
    pub planes: u8,
    /// Planes whose ports are up on both sides, bit n for plane n.
    pub planes_up: u32,
    /// Congestion window in bytes.
    pub window_bytes: u64,
    /// Number of losses that later packets have shown.
    pub holes: u64,
    /// Number of losses that the answer to a probe has shown.
    pub probed_losses: u64,
    /// Number of packets that switches have trimmed.
    pub trims: u64,
    /// Number of probes sent.
    pub probes_sent: u64,
    /// Number of SACKs sent.
    pub sacks_sent: u64,
    /// Number of packets that arrived a second time.
    pub duplicates: u64,
    /// Number of paths, of which the list may have fewer.
    pub path_count: u32,
    /// The paths.
    pub paths: Vec<PathView>,
    /// The newest changes of their states, the oldest first.
    pub changes: Vec<PathChangeView>,
}

/// A profile of the controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MrcProfileView {
    /// "format", "EV" or "CC".
    pub kind: String,
    /// Its number.
    pub id: u64,
    /// "INIT", "OFFLINE" or "ONLINE".
    pub stage: String,
    /// Its mode, or the name of its algorithm; empty while there is none.
    pub mode: String,
    /// Number of its entropy values that are GOOD, ASSUMED_BAD and DENIED.
    pub values: [u32; 3],
    /// Number of queue pairs that use it.
    pub queue_pairs: u32,
}

/// Most multicast groups of a queue pair that a view contains.
pub const MAX_GROUPS: usize = 2;

/// The other end of a connected queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerView {
    /// The peer's address.
    pub address: IpAddr,
    /// The peer's queue pair number.
    pub qpn: u32,
}

/// The way in which long messages are copied to a peer through shared memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyView {
    /// "cached" or "streaming".
    pub way: String,
    /// The reason why it is that one, in words.
    pub reason: String,
    /// Measured rate through the cache, in bytes per second.
    pub cached_bytes_per_s: Option<u64>,
    /// Measured rate past the cache, in bytes per second.
    pub streaming_bytes_per_s: Option<u64>,
}

/// A queue pair. Its counts begin at 0 when the queue pair is created; `posted`, `ended` and `received` begin
/// again when it goes to RESET.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QpView {
    /// Queue pair number.
    pub qpn: u32,
    /// Number of queue pairs that the process had created before it: the stable name in fault plans and
    /// traces.
    pub ordinal: u32,
    /// "RC", "UC", "UD", …
    pub service: String,
    /// "RTS", "ERR", …
    pub state: String,
    /// The peer, once there is one.
    pub peer: Option<PeerView>,
    /// The medium that carries packets to the peer, in words; `None` without a peer, and if the process is of
    /// a version that does not send it.
    #[serde(default)]
    pub medium: Option<String>,
    /// The way in which long messages are copied to the peer; `None` if they do not go through shared memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy: Option<CopyView>,
    /// Number of send requests posted.
    pub posted: u64,
    /// Number of send requests that ended, with success or failure.
    pub ended: u64,
    /// Number of the newest send requests in sequence that make no completion if they succeed.
    #[serde(default)]
    pub unsignaled: u64,
    /// Number of messages of the peer that arrived whole.
    pub received: u64,
    /// Number of packets sent: requests and responses, including repeated ones.
    pub sent_packets: u64,
    /// Bytes of the sent packets, from the BTH to the ICRC.
    pub sent_bytes: u64,
    /// Number of packets received.
    pub received_packets: u64,
    /// Bytes of the received packets.
    pub received_bytes: u64,
    /// Number of packets sent again.
    pub repeated_packets: u64,
    /// Number of acknowledgement timers that expired.
    pub timeouts: u64,
    /// Number of RNR NAKs sent: the queue pair had no receive request for a message.
    pub rnr_naks_sent: u64,
    /// Number of RNR NAKs received: the peer had no receive request.
    pub rnr_naks_received: u64,
    /// Number of other NAKs sent.
    pub naks_sent: u64,
    /// Number of other NAKs received.
    pub naks_received: u64,
    /// Number of packets for the queue pair that were dropped.
    pub dropped: u64,
    /// Number of request packets sent and not acknowledged.
    pub in_flight_packets: u32,
    /// Number of request packets that may be unacknowledged now; 0 without acknowledgements.
    pub window_packets: u32,
    /// Round trip time, smoothed, in ns.
    pub rtt_ns: Option<u64>,
    /// True if an RNR NAK came, and the time that it asked for is not over.
    pub waits_for_receiver: bool,
    /// Number of entries of the send queue.
    pub send_queue_depth: u32,
    /// Number of receive requests posted to its own receive queue; `None` with an SRQ.
    pub receives_posted: Option<u32>,
    /// Number of entries of the receive queue.
    pub recv_queue_depth: u32,
    /// Number (name) of the completion queue for sends.
    pub send_cq: Option<u32>,
    /// Number (name) of the completion queue for receives.
    pub recv_cq: Option<u32>,
    /// Number (name) of the shared receive queue.
    pub srq: Option<u32>,
    /// The multicast group that its newest datagram went to, if it went to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<IpAddr>,
    /// The multicast groups that it is attached to, at most [`MAX_GROUPS`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<IpAddr>,
    /// The cause of its last problem, in words.
    pub last_error: Option<String>,
    /// The further facts about a queue pair of MRC; `None` for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mrc: Option<Box<MrcView>>,
}

/// A completion queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CqView {
    /// The number (name) of the queue in the process.
    pub number: u32,
    /// Number of completion queues that the program had created before it, which is its ordinal for people.
    /// `None`: the program did not create it, or the process is of a version that does not send the ordinal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordinal: Option<u32>,
    /// Number of entries.
    pub depth: u32,
    /// Number of completions that were not polled.
    pub filled: u32,
    /// True if the next completion makes an event.
    pub armed: bool,
    /// True if the queue overran or failed: no more completions are added.
    pub failed: bool,
    /// Number of queue pairs and shared receive queues that complete here.
    pub users: u32,
}

/// A shared receive queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SrqView {
    /// The number (name) of the queue in the process.
    pub number: u32,
    /// Number of shared receive queues that the process had created before it.
    pub ordinal: u32,
    /// Number of entries.
    pub depth: u32,
    /// Number of receive requests posted and not taken.
    pub posted: u32,
    /// The armed limit; 0 if none.
    pub limit: u32,
    /// True if the queue is one for XRC.
    pub xrc: bool,
    /// The number (name) of its completion queue, if it is one for XRC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cq: Option<u32>,
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a queue pair with the longest numbers.
    pub(crate) fn qp(qpn: u32) -> QpView {
        QpView {
            qpn,
            ordinal: u32::MAX,
            service: "XRC_SEND".to_owned(),
            state: "RESET".to_owned(),
            peer: Some(PeerView { address: IpAddr::from([0xffff; 8]), qpn: 0xff_ffff }),
            medium: Some("UDP: it is no process of this user in this network namespace".to_owned()),
            copy: Some(CopyView {
                way: "streaming".to_owned(),
                reason: "nothing above 64 KiB was sent yet".to_owned(),
                cached_bytes_per_s: Some(u64::MAX),
                streaming_bytes_per_s: Some(u64::MAX),
            }),
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
            // A queue pair with groups has no peer, which is longer.
            group: None,
            groups: Vec::new(),
            last_error: None,
            mrc: None,
        }
    }
}
