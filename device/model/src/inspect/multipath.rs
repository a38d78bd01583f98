//! MRC as other processes see it: profiles, and queue pairs with their paths.

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
