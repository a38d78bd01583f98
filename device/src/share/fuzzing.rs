//! What fuzzing reaches of this module: its records, read, written and read again.

use super::record;

/// Reads bytes as a registry, as they are and with a right checksum. `None`: they are none; false: what was
/// read is something else after it was written and read again.
pub fn share_record_is_stable(bytes: &[u8]) -> Option<bool> {
    let mut sealed = bytes.to_vec();
    if let Some((body, sum)) = sealed.split_last_chunk_mut::<8>() {
        *sum = record::checksum(body).to_le_bytes();
    }
    let members = record::decode(bytes).or_else(|| record::decode(&sealed))?;
    let written = record::encode(&members);
    Some(record::decode(&written).is_some_and(|again| record::encode(&again) == written))
}
