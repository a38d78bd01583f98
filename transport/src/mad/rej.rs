//! REJ: refuses a request, a reply or a connection.

use super::field::{Bytes, CmBody, Field};
use super::{CommId, PrivateData, RejectReason, Rejected};

/// A rejection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rej {
    /// Of the sender; none if it refuses a request that it has given no id.
    pub local_id: CommId,
    /// Of the receiver; none if the sender gives up a request that was never answered.
    pub remote_id: CommId,
    /// Which message is refused.
    pub rejected: Rejected,
    /// Bytes of `info` that mean something (7 bits; those that arrive may claim more than there are).
    pub info_length: u8,
    /// Why.
    pub reason: RejectReason,
    /// Additional information: what it is depends on the reason. Linux gives its node GUID with
    /// [`RejectReason::TIMEOUT`].
    pub info: PrivateData<{ Rej::INFO_BYTES }>,
    /// What the consumer says.
    pub private_data: PrivateData<{ Rej::PRIVATE_DATA_BYTES }>,
}

const LOCAL_ID: Field = Field::bytes(0, 4);
const REMOTE_ID: Field = Field::bytes(4, 4);
const REJECTED: Field = Field::bits(8, 0, 2);
const INFO_LENGTH: Field = Field::bits(9, 0, 7);
const REASON: Field = Field::bytes(10, 2);
const INFO: Bytes<{ Rej::INFO_BYTES }> = Bytes::at(12);
const PRIVATE_DATA: Bytes<{ Rej::PRIVATE_DATA_BYTES }> = Bytes::at(84);

impl Rej {
    /// Room for additional information.
    pub const INFO_BYTES: usize = 72;
    /// Room for private data.
    pub const PRIVATE_DATA_BYTES: usize = 148;

    /// The node GUID that comes with a timeout.
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
