//! RTU: the active side is ready to use the connection.

use super::field::{Bytes, CmBody, Field};
use super::{CommId, PrivateData};

/// Ready to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rtu {
    /// Of the sender.
    pub local_id: CommId,
    /// Of the receiver.
    pub remote_id: CommId,
    /// What the consumer says.
    pub private_data: PrivateData<{ Rtu::PRIVATE_DATA_BYTES }>,
}

const LOCAL_ID: Field = Field::bytes(0, 4);
const REMOTE_ID: Field = Field::bytes(4, 4);
const PRIVATE_DATA: Bytes<{ Rtu::PRIVATE_DATA_BYTES }> = Bytes::at(8);

impl Rtu {
    /// Room for private data.
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
