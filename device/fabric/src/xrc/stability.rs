//! The test, for fuzzing, whether a record that was read is the same after being written and read again:
//! files of other processes may contain anything.

use super::codec::{self, HEADER_BYTES};
use super::record::{EVENTS, TargetRecord};

/// Position of the checksum in a header.
const SUM: std::ops::Range<usize> = 16..HEADER_BYTES;

/// Reads bytes as a record, as they are and with a correct checksum, then writes the record and reads it
/// again. Returns `None` if the bytes are not a record, and false if the second reading differs from the
/// first or has more events than a record stores.
pub fn is_stable(bytes: &[u8]) -> Option<bool> {
    let mut sealed = bytes.to_vec();
    if let Some(head) = codec::header(bytes)
        && let Some(sum) =
            bytes.get(HEADER_BYTES..head.length_bytes).map(|body| codec::checksum(head.sequence, body))
        && let Some(field) = sealed.get_mut(SUM)
    {
        field.copy_from_slice(&sum.to_le_bytes());
    }
    let mut record = TargetRecord::default();
    if !codec::decode(bytes, &mut record) && !codec::decode(&sealed, &mut record) {
        return None;
    }
    let (mut written, mut again) = (Vec::new(), TargetRecord::default());
    codec::encode(&record, &mut written);
    let same = codec::decode(&written, &mut again) && again == record;
    let few = record.events_since(0).count() <= EVENTS;
    record.forget_the_dead(&[false; 256]);
    Some(same && few && record.is_unused())
}
