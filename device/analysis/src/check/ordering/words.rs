//! Ranges and queue pairs in words.

use pumice_transport::types::RemoteRange;

use crate::check::context::{CheckContext, counted};

/// Returns a range in words, as in "64 bytes at 0x1000".
pub(super) fn in_words(range: &RemoteRange) -> String {
    format!("{} at {:#x}", counted(range.length_bytes, "byte"), range.address)
}

/// Returns the name of a queue pair in messages.
pub(super) fn name_of(context: &CheckContext, number: u32) -> String {
    context.qps.get(&number).map_or_else(|| format!("queue pair number {number:#x}"), |qp| qp.name.clone())
}
