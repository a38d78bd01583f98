//! Ranges in words.

use pumice_transport::types::RemoteRange;

use crate::check::checker::counted;

/// As in "64 bytes at 0x1000".
pub(super) fn in_words(range: &RemoteRange) -> String {
    format!("{} at {:#x}", counted(range.length_bytes, "byte"), range.address)
}
