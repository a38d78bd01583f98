//! LAP and APR: an alternate path for a connection, and the answer to it.

use super::field::{CM_BYTES, CmBody, MadBytes, MadField};
use super::{CommId, MAD_BYTES, Mad, MadHeader, PathFields, PrivateData, attribute};
use crate::types::Gid;
use crate::wire::Qpn;

/// Load alternate path: the sender of the REQ offers a path for the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lap {
    /// Communication id of the sender.
    pub local_id: CommId,
    /// Communication id of the receiver.
    pub remote_id: CommId,
    /// Queue pair number of the receiver.
    pub remote_qpn: Qpn,
    /// Time within which the receiver has to answer (5 bits: 4.096 µs · 2^t).
    pub remote_response_timeout: u8,
    /// The path, seen from the sender.
    pub alternate: PathFields,
    /// Private data of the consumer.
    pub private_data: PrivateData<{ Lap::PRIVATE_DATA_BYTES }>,
}

/// Outcome of loading an alternate path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ApStatus(pub u8);

impl ApStatus {
    /// The path is loaded.
    pub const LOADED: ApStatus = ApStatus(0);
    /// The receiver has no such connection.
    pub const INVALID_COMM_ID: ApStatus = ApStatus(1);
    /// The receiver does not load alternate paths by LAP.
    pub const UNSUPPORTED: ApStatus = ApStatus(2);
    /// The consumer does not want the path.
    pub const REJECTED: ApStatus = ApStatus(3);
}

/// Alternate path response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Apr {
    /// Communication id of the sender.
    pub local_id: CommId,
    /// Communication id of the receiver.
    pub remote_id: CommId,
    /// Outcome of loading the path.
    pub status: ApStatus,
    /// Number of bytes of `info` that are valid.
    pub info_length: u8,
    /// Additional information about the status.
    pub info: PrivateData<{ Apr::INFO_BYTES }>,
    /// Private data of the consumer.
    pub private_data: PrivateData<{ Apr::PRIVATE_DATA_BYTES }>,
}

const LOCAL_ID: MadField = MadField::bytes(0, 4);
const REMOTE_ID: MadField = MadField::bytes(4, 4);
const REMOTE_QPN: MadField = MadField::bits(12, 0, 24);
const REMOTE_RESPONSE_TIMEOUT: MadField = MadField::bits(15, 0, 5);
const LOCAL_LID: MadField = MadField::bytes(20, 2);
const REMOTE_LID: MadField = MadField::bytes(22, 2);
const LOCAL_GID: MadBytes<16> = MadBytes::at(24);
const REMOTE_GID: MadBytes<16> = MadBytes::at(40);
const FLOW_LABEL: MadField = MadField::bits(56, 0, 20);
const TRAFFIC_CLASS: MadField = MadField::bytes(59, 1);
const HOP_LIMIT: MadField = MadField::bytes(60, 1);
const PACKET_RATE: MadField = MadField::bits(61, 2, 6);
const SL: MadField = MadField::bits(62, 0, 4);
const SUBNET_LOCAL: MadField = MadField::bits(62, 4, 1);
const LOCAL_ACK_TIMEOUT: MadField = MadField::bits(63, 0, 5);
const LAP_PRIVATE_DATA: MadBytes<{ Lap::PRIVATE_DATA_BYTES }> = MadBytes::at(64);
const INFO_LENGTH: MadField = MadField::bytes(8, 1);
const STATUS: MadField = MadField::bytes(9, 1);
const INFO: MadBytes<{ Apr::INFO_BYTES }> = MadBytes::at(12);
const APR_PRIVATE_DATA: MadBytes<{ Apr::PRIVATE_DATA_BYTES }> = MadBytes::at(84);

impl Lap {
    /// Bytes of private data that the message has room for.
    pub const PRIVATE_DATA_BYTES: usize = 168;

    /// Returns the LAP in a MAD of communication management, if it is one.
    pub fn of(mad: &Mad<'_>) -> Option<Lap> {
        (mad.header().attribute == attribute::LAP).then(|| Lap::read(&mad.body()))
    }

    /// Returns the MAD of this message in a transaction.
    pub fn emit(&self, transaction: u64) -> [u8; MAD_BYTES] {
        let mut body = [0; CM_BYTES];
        self.write(&mut body);
        mad(attribute::LAP, transaction, &body)
    }

    fn read(body: &CmBody) -> Lap {
        Lap {
            local_id: CommId(LOCAL_ID.u32(body)),
            remote_id: CommId(REMOTE_ID.u32(body)),
            remote_qpn: Qpn::new(REMOTE_QPN.u32(body)),
            remote_response_timeout: REMOTE_RESPONSE_TIMEOUT.u8(body),
            alternate: PathFields {
                local_lid: LOCAL_LID.u16(body),
                remote_lid: REMOTE_LID.u16(body),
                local_gid: Gid(LOCAL_GID.read(body)),
                remote_gid: Gid(REMOTE_GID.read(body)),
                flow_label: FLOW_LABEL.u32(body),
                packet_rate: PACKET_RATE.u8(body),
                traffic_class: TRAFFIC_CLASS.u8(body),
                hop_limit: HOP_LIMIT.u8(body),
                sl: SL.u8(body),
                subnet_local: SUBNET_LOCAL.flag(body),
                local_ack_timeout: LOCAL_ACK_TIMEOUT.u8(body),
            },
            private_data: LAP_PRIVATE_DATA.private_data(body),
        }
    }

    fn write(&self, body: &mut CmBody) {
        let path = &self.alternate;
        LOCAL_ID.write(body, self.local_id.0.into());
        REMOTE_ID.write(body, self.remote_id.0.into());
        REMOTE_QPN.write(body, self.remote_qpn.value().into());
        REMOTE_RESPONSE_TIMEOUT.write(body, self.remote_response_timeout.into());
        LOCAL_LID.write(body, path.local_lid.into());
        REMOTE_LID.write(body, path.remote_lid.into());
        LOCAL_GID.write(body, &path.local_gid.0);
        REMOTE_GID.write(body, &path.remote_gid.0);
        FLOW_LABEL.write(body, path.flow_label.into());
        TRAFFIC_CLASS.write(body, path.traffic_class.into());
        HOP_LIMIT.write(body, path.hop_limit.into());
        PACKET_RATE.write(body, path.packet_rate.into());
        SL.write(body, path.sl.into());
        SUBNET_LOCAL.write(body, path.subnet_local.into());
        LOCAL_ACK_TIMEOUT.write(body, path.local_ack_timeout.into());
        LAP_PRIVATE_DATA.write(body, &self.private_data.0);
    }
}

impl Apr {
    /// Bytes of additional information that the message has room for.
    pub const INFO_BYTES: usize = 72;
    /// Bytes of private data that the message has room for.
    pub const PRIVATE_DATA_BYTES: usize = 148;

    /// Returns the APR in a MAD of communication management, if it is one.
    pub fn of(mad: &Mad<'_>) -> Option<Apr> {
        (mad.header().attribute == attribute::APR).then(|| Apr::read(&mad.body()))
    }

    /// Returns the MAD of this message in a transaction.
    pub fn emit(&self, transaction: u64) -> [u8; MAD_BYTES] {
        let mut body = [0; CM_BYTES];
        self.write(&mut body);
        mad(attribute::APR, transaction, &body)
    }

    fn read(body: &CmBody) -> Apr {
        Apr {
            local_id: CommId(LOCAL_ID.u32(body)),
            remote_id: CommId(REMOTE_ID.u32(body)),
            status: ApStatus(STATUS.u8(body)),
            info_length: INFO_LENGTH.u8(body),
            info: INFO.private_data(body),
            private_data: APR_PRIVATE_DATA.private_data(body),
        }
    }

    fn write(&self, body: &mut CmBody) {
        LOCAL_ID.write(body, self.local_id.0.into());
        REMOTE_ID.write(body, self.remote_id.0.into());
        STATUS.write(body, self.status.0.into());
        INFO_LENGTH.write(body, self.info_length.into());
        INFO.write(body, &self.info.0);
        APR_PRIVATE_DATA.write(body, &self.private_data.0);
    }
}

fn mad(attribute: u16, transaction: u64, body: &CmBody) -> [u8; MAD_BYTES] {
    let mut mad = [0; MAD_BYTES];
    MadHeader::communication(attribute, transaction, 0).emit(&mut mad);
    let (_, room) = mad.split_at_mut(MadHeader::LEN);
    room.copy_from_slice(body);
    mad
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a LAP with another value in each field, and its body written by the table of its fields.
    fn golden() -> (Lap, CmBody) {
        let (local_gid, remote_gid) = (Gid([0x11; 16]), Gid([0x22; 16]));
        let alternate = PathFields {
            local_lid: 0xffff,
            remote_lid: 0xfffe,
            local_gid,
            remote_gid,
            flow_label: 0xa_bcde,
            packet_rate: 0x15,
            traffic_class: 0x6a,
            hop_limit: 64,
            sl: 3,
            subnet_local: true,
            local_ack_timeout: 18,
        };
        let mut private_data = [0; Lap::PRIVATE_DATA_BYTES];
        private_data[0] = 0x77;
        let lap = Lap {
            local_id: CommId(0x0102_0304),
            remote_id: CommId(0x0506_0708),
            remote_qpn: Qpn::new(0x12_3456),
            remote_response_timeout: 20,
            alternate,
            private_data: PrivateData(private_data),
        };
        let mut body = [0; CM_BYTES];
        body[..8].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
        body[12..16].copy_from_slice(&[0x12, 0x34, 0x56, 20 << 3]);
        body[20..24].copy_from_slice(&[0xff, 0xff, 0xff, 0xfe]);
        body[24..40].fill(0x11);
        body[40..56].fill(0x22);
        body[56..65].copy_from_slice(&[0xab, 0xcd, 0xe0, 0x6a, 64, 0x15, 0x38, 18 << 3, 0x77]);
        (lap, body)
    }

    #[test]
    fn a_lap_is_where_its_table_says() {
        let (lap, expected) = golden();
        let mut body = [0; CM_BYTES];
        lap.write(&mut body);
        assert_eq!((body, Lap::read(&expected)), (expected, lap));
    }

    #[test]
    fn an_apr_is_where_its_table_says() {
        let (mut info, mut private_data) = ([0; Apr::INFO_BYTES], [0; Apr::PRIVATE_DATA_BYTES]);
        (info[71], private_data[147]) = (0x33, 0x44);
        let apr = Apr {
            local_id: CommId(0x0102_0304),
            remote_id: CommId(0x0506_0708),
            status: ApStatus::UNSUPPORTED,
            info_length: 72,
            info: PrivateData(info),
            private_data: PrivateData(private_data),
        };
        let (mut expected, mut body) = ([0; CM_BYTES], [0; CM_BYTES]);
        expected[..10].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8, 72, 2]);
        (expected[83], expected[231]) = (0x33, 0x44);
        apr.write(&mut body);
        assert_eq!((body, Apr::read(&expected)), (expected, apr));
        let (lap, _) = golden();
        let (asked, answered) = (lap.emit(7), apr.emit(8));
        let [asked, answered] = [&asked, &answered].map(|bytes| Mad::parse(bytes).unwrap());
        assert_eq!((Lap::of(&asked), Apr::of(&asked)), (Some(lap), None));
        assert_eq!((Lap::of(&answered), Apr::of(&answered)), (None, Some(apr)));
    }
}
