//! The alternate path of a connection, and what is known of it.

use alloc::sync::Arc;

use crate::path::Path;

/// `IBV_MIG_*`.
pub(super) const MIGRATED: u32 = 0;
pub(super) const REARM: u32 = 1;
pub(super) const ARMED: u32 = 2;

/// What the device found out about an alternate path.
#[derive(Debug, Clone)]
pub struct AlternatePath {
    /// Addresses and marking.
    pub path: Arc<Path>,
    /// The entry of the P_Key table.
    pub pkey: u16,
}

/// What a queue pair knows of path migration beside its attributes.
#[derive(Debug, Default)]
pub(super) struct Migration {
    pub(super) alternate: Option<AlternatePath>,
    /// The program was told that the peer's path is none of its own, since the last arming.
    pub(super) is_refused: bool,
    /// It has migrated, and the device has not asked yet.
    pub(super) has_moved: bool,
}
