//! A door for fuzzing: the readers of what other processes write are private, and this is no part of the API.

pub use pumice_share::fuzzing::{ring_message_is_stable, share_record_is_stable, survive_ring};

/// Reads bytes as the record of a target of a shared XRC domain; see [`share_record_is_stable`].
pub fn domain_record_is_stable(bytes: &[u8]) -> Option<bool> {
    pumice_share::xrc::is_stable(bytes)
}
