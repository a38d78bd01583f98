//! Entry points for fuzzing. The readers of what other processes write are private, and this is no part of
//! the API.

pub use pumice_fabric::fuzzing::{registry_record_is_stable, ring_message_is_stable, survive_ring};

/// Reads bytes as the record of a target of a shared XRC domain; see [`registry_record_is_stable`].
pub fn domain_record_is_stable(bytes: &[u8]) -> Option<bool> {
    pumice_fabric::xrc::is_stable(bytes)
}
