//! REJ: refuses a request, a reply or a connection.

use super::field::{CmBody, MadBytes, MadField};
use super::{CommId, PrivateData, RejectReason, Rejected};

/// A rejection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rej {
    /// Communication id of the sender; none if it refuses a request that it has given no id.
    pub local_id: CommId,
    /// Communication id of the receiver; none if the sender gives up a request that was never answered.
    pub remote_id: CommId,
    /// Message that is refused.
    pub rejected: Rejected,
    /// Number of bytes of `info` that are valid (7 bits; a message that arrives may claim more than there
    /// are).
    pub info_length: u8,
    /// Reason of the rejection.
    pub reason: RejectReason,
    /// Additional information, whose meaning depends on the reason. Linux gives its node GUID with
    /// [`RejectReason::TIMEOUT`].
    pub info: PrivateData<{ Rej::INFO_BYTES }>,
    /// Private data of the consumer.
    pub private_data: PrivateData<{ Rej::PRIVATE_DATA_BYTES }>,
}

const LOCAL_ID: MadField = MadField::bytes(0, 4);
const REMOTE_ID: MadField = MadField::bytes(4, 4);
const REJECTED: MadField = MadField::bits(8, 0, 2);
const INFO_LENGTH: MadField = MadField::bits(9, 0, 7);
const REASON: MadField = MadField::bytes(10, 2);
const INFO: MadBytes<{ Rej::INFO_BYTES }> = MadBytes::at(12);
const PRIVATE_DATA: MadBytes<{ Rej::PRIVATE_DATA_BYTES }> = MadBytes::at(84);

impl Rej {
    /// Bytes of additional information that the message has room for.
    pub const INFO_BYTES: usize = 72;
    /// Bytes of private data that the message has room for.
    pub const PRIVATE_DATA_BYTES: usize = 148;

    /// Returns the node GUID that comes with the reason [`RejectReason::TIMEOUT`].
    pub fn timeout_ca_guid(&self) -> Option<u64> {
        //= linux:cm.c#cm_acquire_rejected_id
        //| A REJ because of a timeout names the sender by its node GUID.
        let guid = self.info.first_chunk().filter(|_| self.reason == RejectReason::TIMEOUT)?;
        Some(u64::from_be_bytes(*guid))
    }

    pub(super) fn read(body: &CmBody) -> Rej {
        Rej {
            local_id: CommId(LOCAL_ID.u32(body)),
            remote_id: CommId(REMOTE_ID.u32(body)),
            rejected: Rejected::from_bits(REJECTED.u8(body)),
            info_length: INFO_LENGTH.u8(body),
            reason: RejectReason(REASON.u16(body)),
            info: INFO.private_data(body),
            private_data: PRIVATE_DATA.private_data(body),
        }
    }

    pub(super) fn write(&self, body: &mut CmBody) {
        LOCAL_ID.write(body, self.local_id.0.into());
        REMOTE_ID.write(body, self.remote_id.0.into());
        REJECTED.write(body, self.rejected as u64);
        INFO_LENGTH.write(body, self.info_length.into());
        REASON.write(body, self.reason.0.into());
        INFO.write(body, &self.info.0);
        PRIVATE_DATA.write(body, &self.private_data.0);
    }
}
