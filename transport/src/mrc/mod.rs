//! MRC 1.0 (Multipath Reliable Connection) as plain state without I/O: WRITEs over many paths at once.
//!
//! A queue pair sprays its packets over hundreds of entropy values. The responder places each packet in
//! memory on arrival and reports in bitmaps which packets have arrived. The requester retransmits missing
//! packets one by one, and avoids paths that lose packets. Each half has two layers: *reliability* handles
//! packets (window, bitmap, SACK, NACK, timers, paths), and *semantics* handles messages (their order and
//! completion).
//!
//! [`constants`] lists what this implementation chose where the published texts are silent or disagree.
//!
//! Settings, counters and shared state of an MRC queue pair.
//!
//! Settings of an MRC queue pair, given at its creation and connection. Every value has a default.

use alloc::boxed::Box;
use core::net::IpAddr;

use self::congestion::{CongestionControl, Unlimited};
use self::constants::{
    DEFAULT_BASE_RTT_NS, DEFAULT_EXP_CNT, DEFAULT_LINEAR_CNT, DEFAULT_MAX_WIMM, DEFAULT_MPR, DEFAULT_TIMEOUT,
    SACK_THRESHOLD_BYTES,
};
use self::paths::{EvProfile, ReversePaths};
use crate::host::QpContext;
use crate::types::{Access, Mtu, Peer};
use crate::wire::{Psn, Qpn};

/// Settings that both halves of a queue pair need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MrcSettings {
    /// Objects that the queue pair is attached to.
    pub context: QpContext,
    /// Number of the peer's queue pair.
    pub peer: Qpn,
    /// Partition key of all packets.
    pub pkey: u16,
    /// Path MTU.
    pub mtu: Mtu,
    /// Access rights of the peer, which needs remote write.
    pub access: Access,
    /// Number of entries of the send queue.
    pub max_send_wr: u32,
    /// True if both sides have agreed that the responder may change the window.
    pub has_dynamic_mpr: bool,
    /// True if trimmed packets are answered with a NACK.
    pub sends_trim_nack: bool,
    /// Address of the peer, for reports; `None` if it is not known.
    pub peer_address: Option<IpAddr>,
    /// Number of resets of the queue pair before, for reports.
    pub connection: u32,
    /// True if changes of state are reported. Those of a queue pair that carries the WRITEs of another one
    /// are not: the other one reports its own.
    pub reports_states: bool,
}

impl MrcSettings {
    /// Returns the defaults for a queue pair.
    pub const fn new(context: QpContext, peer: Qpn, mtu: Mtu) -> MrcSettings {
        MrcSettings {
            context,
            peer,
            pkey: 0xffff,
            mtu,
            access: Access::REMOTE_WRITE,
            max_send_wr: 128,
            has_dynamic_mpr: false,
            sends_trim_nack: true,
            peer_address: None,
            connection: 0,
            reports_states: true,
        }
    }

    /// Returns the peer, for reports.
    pub(crate) fn peer(&self) -> Option<Peer> {
        Some(Peer { address: self.peer_address?, qpn: self.peer })
    }

    /// Returns the payload bytes of a full packet.
    pub(crate) const fn mtu_bytes(&self) -> u32 {
        self.mtu.bytes() as u32
    }
}

/// Attributes of the responder, set at the transition to RTR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponderAttributes {
    /// PSN of the first packet.
    pub first_psn: Psn,
    /// Window in units of 128 PSNs.
    pub mpr_dest: u8,
    /// Number of WRITEs with immediate that may be in flight.
    pub max_wimm_dest: u16,
    /// Number of received bytes after which a SACK is sent, at most half a window.
    pub sack_threshold_bytes: u32,
}

impl ResponderAttributes {
    /// Returns the defaults.
    pub const fn new(first_psn: Psn) -> ResponderAttributes {
        ResponderAttributes {
            first_psn,
            mpr_dest: DEFAULT_MPR,
            max_wimm_dest: DEFAULT_MAX_WIMM,
            sack_threshold_bytes: SACK_THRESHOLD_BYTES,
        }
    }
}

/// Attributes of the requester, set at the transition to RTS.
#[derive(Debug)]
pub struct RequesterAttributes {
    /// PSN of the first packet.
    pub first_psn: Psn,
    /// The peer's window in units of 128 PSNs.
    pub mpr: u8,
    /// Number of WRITEs with immediate that may be in flight.
    pub max_wimm: u16,
    /// Exponent of the local ACK timeout.
    pub timeout: u8,
    /// Number of retries at the local ACK timeout.
    pub linear_cnt: u8,
    /// Number of retries at doubled timeouts; 25 for retrying forever.
    pub exp_cnt: u8,
    /// True if switches trim and the peer answers trimmed packets.
    pub has_trimming: bool,
    /// True if data packets carry time stamps.
    pub has_timestamps: bool,
    /// Assumed round trip until one is measured.
    pub base_rtt_ns: u64,
    /// Entropy values of the paths.
    pub profile: EvProfile,
    /// Seed of the order in which paths are used.
    pub seed: u64,
    /// Most packets of full size that leave by one path in a row: more than one if a change of the path
    /// costs the sender something.
    pub packets_in_a_row: u8,
    /// Congestion control, which limits the number of bytes in flight.
    pub congestion: Box<dyn CongestionControl>,
}

impl RequesterAttributes {
    /// Returns the defaults: the paths of the profile, and no congestion control.
    pub fn new(first_psn: Psn, profile: EvProfile, seed: u64) -> RequesterAttributes {
        RequesterAttributes {
            first_psn,
            mpr: DEFAULT_MPR,
            max_wimm: DEFAULT_MAX_WIMM,
            timeout: DEFAULT_TIMEOUT,
            linear_cnt: DEFAULT_LINEAR_CNT,
            exp_cnt: DEFAULT_EXP_CNT,
            has_trimming: false,
            has_timestamps: true,
            base_rtt_ns: DEFAULT_BASE_RTT_NS,
            profile,
            seed,
            packets_in_a_row: 1,
            congestion: Box::new(Unlimited),
        }
    }
}

/// Counts since the queue pair was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MrcStatistics {
    /// Data packets sent, retransmissions included.
    pub data_sent: u64,
    /// Data packets retransmitted.
    pub retransmitted: u64,
    /// Losses found by a hole in the SACK bitmaps.
    pub holes: u64,
    /// Losses found by a probe.
    pub probed_losses: u64,
    /// Timeouts of the local ACK timer.
    pub timeouts: u64,
    /// NACKs received.
    pub nacks: u64,
    /// NACKs of trimmed packets received.
    pub trims: u64,
    /// Reliability probes sent.
    pub probes_sent: u64,
    /// SACKs sent.
    pub sacks_sent: u64,
    /// NACKs sent.
    pub nacks_sent: u64,
    /// Transport ACKs sent.
    pub acks_sent: u64,
    /// Data packets received and placed in memory.
    pub data_placed: u64,
    /// Data packets received that had arrived before.
    pub duplicates: u64,
    /// Packets received that are invalid or have no meaning in the state of the queue pair.
    pub dropped: u64,
}

pub(crate) struct MrcCallContext<'a, H> {
    pub(crate) settings: &'a MrcSettings,
    pub(crate) now_ns: u64,
    pub(crate) statistics: &'a mut MrcStatistics,
    pub(crate) reverse: &'a mut ReversePaths,
    pub(crate) host: &'a mut H,
}

pub mod congestion;
pub mod constants;
pub mod endpoint;
pub mod entropy;
pub mod paths;
mod queue_pair;
mod reliability;
mod requester;
mod responder;
mod semantics;
pub mod wire;

pub use queue_pair::{MrcPostError, MrcProgress, MrcQueuePair};
