//! The alternate path of a connection, and the state of its migration.

use alloc::sync::Arc;

use crate::path::Path;

/// Values of `path_mig_state` (`IBV_MIG_*`).
pub(super) const MIGRATED: u32 = 0;
pub(super) const REARM: u32 = 1;
pub(super) const ARMED: u32 = 2;

/// An alternate path that the device has resolved.
#[derive(Debug, Clone)]
pub struct AlternatePath {
    /// Addresses and packet marks.
    pub path: Arc<Path>,
    /// Entry of the P_Key table.
    pub pkey: u16,
}

/// State of path migration that is not in the attributes.
#[derive(Debug, Default)]
pub(super) struct Migration {
    pub(super) alternate: Option<AlternatePath>,
    /// True if the program was notified, since the last arming, that the peer's path is neither of its own
    /// ones.
    pub(super) is_refused: bool,
    /// True if it has migrated, and the device has not asked yet.
    pub(super) has_moved: bool,
}
