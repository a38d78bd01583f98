//! MRA: acknowledges a message whose answer will take a while.

use super::field::{CmBody, MadBytes, MadField};
use super::{CommId, PrivateData};

/// Message that an MRA acknowledges (two bits).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum MraOf {
    /// The request (REQ).
    #[default]
    Req = 0,
    /// The reply (REP).
    Rep = 1,
    /// The alternate path (LAP).
    Lap = 2,
    /// Reserved value.
    Reserved = 3,
}

/// A message receipt acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mra {
    /// Communication id of the sender.
    pub local_id: CommId,
    /// Communication id of the receiver.
    pub remote_id: CommId,
    /// Message that is acknowledged.
    pub of: MraOf,
    /// Time that the answer may take from now (5 bits: 4.096 µs · 2^t).
    pub service_timeout: u8,
    /// Private data of the consumer.
    pub private_data: PrivateData<{ Mra::PRIVATE_DATA_BYTES }>,
}

const LOCAL_ID: MadField = MadField::bytes(0, 4);
const REMOTE_ID: MadField = MadField::bytes(4, 4);
const OF: MadField = MadField::bits(8, 0, 2);
const SERVICE_TIMEOUT: MadField = MadField::bits(9, 0, 5);
const PRIVATE_DATA: MadBytes<{ Mra::PRIVATE_DATA_BYTES }> = MadBytes::at(10);

impl Mra {
    /// Bytes of private data that the message has room for.
    pub const PRIVATE_DATA_BYTES: usize = 222;

    pub(super) fn read(body: &CmBody) -> Mra {
        Mra {
            local_id: CommId(LOCAL_ID.u32(body)),
            remote_id: CommId(REMOTE_ID.u32(body)),
            of: match OF.u8(body) {
                0 => MraOf::Req,
                1 => MraOf::Rep,
                2 => MraOf::Lap,
                _ => MraOf::Reserved,
            },
            service_timeout: SERVICE_TIMEOUT.u8(body),
            private_data: PRIVATE_DATA.private_data(body),
        }
    }

    pub(super) fn write(&self, body: &mut CmBody) {
        LOCAL_ID.write(body, self.local_id.0.into());
        REMOTE_ID.write(body, self.remote_id.0.into());
        OF.write(body, self.of as u64);
        SERVICE_TIMEOUT.write(body, self.service_timeout.into());
        PRIVATE_DATA.write(body, &self.private_data.0);
    }
}
