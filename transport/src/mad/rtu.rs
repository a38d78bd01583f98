//! RTU: the active side is ready to use the connection.

use super::field::{CmBody, MadBytes, MadField};
use super::{CommId, PrivateData};

/// A message of the active side that it is ready to use the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rtu {
    /// Communication id of the sender.
    pub local_id: CommId,
    /// Communication id of the receiver.
    pub remote_id: CommId,
    /// Private data of the consumer.
    pub private_data: PrivateData<{ Rtu::PRIVATE_DATA_BYTES }>,
}

const LOCAL_ID: MadField = MadField::bytes(0, 4);
const REMOTE_ID: MadField = MadField::bytes(4, 4);
const PRIVATE_DATA: MadBytes<{ Rtu::PRIVATE_DATA_BYTES }> = MadBytes::at(8);

impl Rtu {
    /// Bytes of private data that the message has room for.
    pub const PRIVATE_DATA_BYTES: usize = 224;

    pub(super) fn read(body: &CmBody) -> Rtu {
        Rtu {
            local_id: CommId(LOCAL_ID.u32(body)),
            remote_id: CommId(REMOTE_ID.u32(body)),
            private_data: PRIVATE_DATA.private_data(body),
        }
    }

    pub(super) fn write(&self, body: &mut CmBody) {
        LOCAL_ID.write(body, self.local_id.0.into());
        REMOTE_ID.write(body, self.remote_id.0.into());
        PRIVATE_DATA.write(body, &self.private_data.0);
    }
}
