//! DREQ and DREP: the end of a connection.

use super::field::{CmBody, MadBytes, MadField};
use super::{CommId, PrivateData};
use crate::wire::Qpn;

/// A request to disconnect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dreq {
    /// Communication id of the sender.
    pub local_id: CommId,
    /// Communication id of the receiver.
    pub remote_id: CommId,
    /// Queue pair number of the receiver: proves that the sender knows the connection that it disconnects.
    pub remote_qpn: Qpn,
    /// Private data of the consumer.
    pub private_data: PrivateData<{ Dreq::PRIVATE_DATA_BYTES }>,
}

/// The reply to a [`Dreq`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drep {
    /// Communication id of the sender.
    pub local_id: CommId,
    /// Communication id of the receiver.
    pub remote_id: CommId,
    /// Private data of the consumer.
    pub private_data: PrivateData<{ Drep::PRIVATE_DATA_BYTES }>,
}

const LOCAL_ID: MadField = MadField::bytes(0, 4);
const REMOTE_ID: MadField = MadField::bytes(4, 4);
const REMOTE_QPN: MadField = MadField::bytes(8, 3);
const DREQ_PRIVATE_DATA: MadBytes<{ Dreq::PRIVATE_DATA_BYTES }> = MadBytes::at(12);
const DREP_PRIVATE_DATA: MadBytes<{ Drep::PRIVATE_DATA_BYTES }> = MadBytes::at(8);

impl Dreq {
    /// Bytes of private data that the message has room for.
    pub const PRIVATE_DATA_BYTES: usize = 220;

    pub(super) fn read(body: &CmBody) -> Dreq {
        Dreq {
            local_id: CommId(LOCAL_ID.u32(body)),
            remote_id: CommId(REMOTE_ID.u32(body)),
            remote_qpn: Qpn::new(REMOTE_QPN.u32(body)),
            private_data: DREQ_PRIVATE_DATA.private_data(body),
        }
    }

    pub(super) fn write(&self, body: &mut CmBody) {
        LOCAL_ID.write(body, self.local_id.0.into());
        REMOTE_ID.write(body, self.remote_id.0.into());
        REMOTE_QPN.write(body, self.remote_qpn.value().into());
        DREQ_PRIVATE_DATA.write(body, &self.private_data.0);
    }
}

impl Drep {
    /// Bytes of private data that the message has room for.
    pub const PRIVATE_DATA_BYTES: usize = 224;

    pub(super) fn read(body: &CmBody) -> Drep {
        Drep {
            local_id: CommId(LOCAL_ID.u32(body)),
            remote_id: CommId(REMOTE_ID.u32(body)),
            private_data: DREP_PRIVATE_DATA.private_data(body),
        }
    }

    pub(super) fn write(&self, body: &mut CmBody) {
        LOCAL_ID.write(body, self.local_id.0.into());
        REMOTE_ID.write(body, self.remote_id.0.into());
        DREP_PRIVATE_DATA.write(body, &self.private_data.0);
    }
}
