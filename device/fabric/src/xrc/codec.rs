//! A target as bytes. Other processes write them, so nothing in them is believed unchecked.

use std::net::IpAddr;

use pumice_transport::path::{Flow, Path};
use pumice_transport::qp::{
    MessageSnapshot, QpAttributes, ReplaySnapshot, ResponderSnapshot, TargetSnapshot,
};
use pumice_transport::types::{AddressVector, AsyncEventType, Gid, QpState};

use super::record::{EVENTS, TargetRecord};
use crate::members::record::{address_bytes, address_from};

/// Name and version of the format.
const MAGIC: u32 = 0x3258_6d70;
/// Length of the header: magic, length, sequence number, checksum.
pub(super) const HEADER_BYTES: usize = 24;
/// Number of replays of one target: as many READs and atomics as a peer may have outstanding.
const MAX_REPLAYS: usize = 255;
/// Length of the longest record, in bytes.
pub(super) const MAX_BYTES: usize = 8192;
const MAX_PSNS: u32 = 1 << 23;

/// The header of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(super) length_bytes: usize,
    pub(super) sequence: u64,
    sum: u64,
}

/// Decodes the header; `None` if the bytes are not one.
pub(crate) fn header(bytes: &[u8]) -> Option<Header> {
    let mut read = Reader(bytes);
    let (magic, length, sequence, sum) = (read.u32()?, read.u32()?, read.u64()?, read.u64()?);
    let length_bytes = usize::try_from(length).ok()?;
    let sound = magic == MAGIC && (HEADER_BYTES..=MAX_BYTES).contains(&length_bytes) && sequence < u64::MAX;
    sound.then_some(Header { length_bytes, sequence, sum })
}

/// Replaces `bytes` by a copy of the record.
pub(crate) fn encode(record: &TargetRecord, bytes: &mut Vec<u8>) {
    bytes.clear();
    bytes.resize(HEADER_BYTES, 0);
    let mut to = Writer(bytes);
    to.u32(record.qpn);
    to.u8(u8::from(record.half));
    record.registered.iter().for_each(|&word| to.u64(word));
    to.u64(record.executor);
    to.u64(record.event_count);
    record.events.iter().for_each(|&event| to.u8(event));
    snapshot(&mut to, &record.snapshot);
    let sum = checksum(record.sequence, bytes.get(HEADER_BYTES..).unwrap_or_default());
    let length = bytes.len() as u32;
    let mut head = Vec::with_capacity(HEADER_BYTES);
    let mut to = Writer(&mut head);
    to.u32(MAGIC);
    to.u32(length);
    to.u64(record.sequence);
    to.u64(sum);
    if let Some(front) = bytes.get_mut(..HEADER_BYTES) {
        front.copy_from_slice(&head);
    }
}

/// Reads a copy into `record`. Returns false if the copy is damaged; `record` is then unspecified.
pub(crate) fn decode(bytes: &[u8], record: &mut TargetRecord) -> bool {
    let Some(head) = header(bytes) else { return false };
    let Some(body) = bytes.get(HEADER_BYTES..head.length_bytes) else { return false };
    if checksum(head.sequence, body) != head.sum {
        return false;
    }
    record.sequence = head.sequence;
    read_body(&mut Reader(body), record).is_some()
}

fn read_body(from: &mut Reader<'_>, record: &mut TargetRecord) -> Option<()> {
    record.qpn = from.u32().filter(|&qpn| qpn <= 0xff_ffff)?;
    record.half = from.u8()? != 0;
    for word in &mut record.registered {
        *word = from.u64()?;
    }
    record.executor = from.u64()?;
    record.event_count = from.u64()?;
    for event in &mut record.events {
        *event = from.u8()?;
    }
    read_snapshot(from, &mut record.snapshot)
}

/// Returns the event with this number, of those that a target can have.
pub(crate) fn event_of(number: u8) -> Option<AsyncEventType> {
    [
        AsyncEventType::QpFatal,
        AsyncEventType::QpReqErr,
        AsyncEventType::QpAccessErr,
        AsyncEventType::CommEst,
        AsyncEventType::SqDrained,
        AsyncEventType::QpLastWqeReached,
    ]
    .into_iter()
    .find(|event| *event as u8 == number)
}

fn snapshot(to: &mut Writer<'_>, from: &TargetSnapshot) {
    to.u8(from.state as u8);
    to.u32(from.epoch);
    to.u16(from.pkey);
    attributes(to, &from.attributes);
    match &from.path {
        None => to.u8(0),
        Some(path) => {
            to.u8(1);
            to.address(path.flow.source);
            to.address(path.flow.destination);
            to.u16(path.flow.source_port);
            to.u16(path.flow.destination_port);
            to.u8(path.traffic_class);
            to.u8(path.hop_limit);
            to.u32(path.flow_label);
        }
    }
    responder(to, &from.responder);
}

fn read_snapshot(from: &mut Reader<'_>, into: &mut TargetSnapshot) -> Option<()> {
    into.state = QpState::from_verbs(from.u8()?.into())?;
    into.epoch = from.u32()?;
    into.pkey = from.u16()?;
    read_attributes(from, &mut into.attributes)?;
    into.path = match from.u8()? {
        0 => None,
        _ => {
            let (source, destination) = (from.address()?, from.address()?);
            if source.is_ipv4() != destination.is_ipv4() {
                return None;
            }
            let (source_port, destination_port) = (from.u16()?, from.u16()?);
            let flow = Flow { source, destination, source_port, destination_port };
            let (traffic_class, hop_limit) = (from.u8()?, from.u8()?);
            Some(Path { flow, traffic_class, hop_limit, flow_label: from.u32()? & 0xf_ffff })
        }
    };
    read_responder(from, &mut into.responder)
}

fn attributes(to: &mut Writer<'_>, from: &QpAttributes) {
    for word in [
        from.qp_state,
        from.cur_qp_state,
        from.path_mtu,
        from.path_mig_state,
        from.qkey,
        from.rq_psn,
        from.sq_psn,
        from.dest_qp_num,
        from.access,
        from.rate_limit,
    ] {
        to.u32(word);
    }
    vector(to, &from.address_vector);
    vector(to, &from.alt_address_vector);
    to.u16(from.pkey_index);
    to.u16(from.alt_pkey_index);
    for byte in [
        from.en_sqd_async_notify.into(),
        from.sq_draining.into(),
        from.max_rd_atomic,
        from.max_dest_rd_atomic,
        from.min_rnr_timer,
        from.port_num,
        from.timeout,
        from.retry_cnt,
        from.rnr_retry,
        from.alt_port_num,
        from.alt_timeout,
    ] {
        to.u8(byte);
    }
}

fn read_attributes(from: &mut Reader<'_>, into: &mut QpAttributes) -> Option<()> {
    for word in [
        &mut into.qp_state,
        &mut into.cur_qp_state,
        &mut into.path_mtu,
        &mut into.path_mig_state,
        &mut into.qkey,
        &mut into.rq_psn,
        &mut into.sq_psn,
        &mut into.dest_qp_num,
        &mut into.access,
        &mut into.rate_limit,
    ] {
        *word = from.u32()?;
    }
    into.address_vector = from.vector()?;
    into.alt_address_vector = from.vector()?;
    into.pkey_index = from.u16()?;
    into.alt_pkey_index = from.u16()?;
    into.en_sqd_async_notify = from.u8()? != 0;
    into.sq_draining = from.u8()? != 0;
    for byte in [
        &mut into.max_rd_atomic,
        &mut into.max_dest_rd_atomic,
        &mut into.min_rnr_timer,
        &mut into.port_num,
        &mut into.timeout,
        &mut into.retry_cnt,
        &mut into.rnr_retry,
        &mut into.alt_port_num,
        &mut into.alt_timeout,
    ] {
        *byte = from.u8()?;
    }
    Some(())
}

fn vector(to: &mut Writer<'_>, from: &AddressVector) {
    to.u8(from.is_global.into());
    to.0.extend(from.dgid.0);
    to.u32(from.sgid_index);
    to.u32(from.flow_label);
    to.u16(from.dlid);
    for byte in
        [from.hop_limit, from.traffic_class, from.port_num, from.sl, from.static_rate, from.src_path_bits]
    {
        to.u8(byte);
    }
}

fn responder(to: &mut Writer<'_>, from: &ResponderSnapshot) {
    to.u32(from.expected_psn);
    to.u32(from.msn);
    to.u8(from.nak_outstanding.into());
    to.u8(from.communication_established.into());
    to.u32(from.message_srqn.unwrap_or(u32::MAX));
    match from.message {
        MessageSnapshot::None => to.u8(0),
        MessageSnapshot::Send { offset, .. } => {
            to.u8(1);
            to.u64(offset);
        }
        MessageSnapshot::Write { rkey, address, remaining_bytes, total_bytes } => {
            to.u8(2);
            to.u32(rkey);
            to.u64(address);
            to.u64(remaining_bytes);
            to.u32(total_bytes);
        }
    }
    to.u8(from.replays.len().min(MAX_REPLAYS) as u8);
    for replay in from.replays.iter().take(MAX_REPLAYS) {
        match *replay {
            ReplaySnapshot::Read { first_psn, count, rkey, address, length_bytes } => {
                to.u8(0);
                to.u32(first_psn);
                to.u32(count);
                to.u32(rkey);
                to.u64(address);
                to.u32(length_bytes);
            }
            ReplaySnapshot::Atomic { psn, original } => {
                to.u8(1);
                to.u32(psn);
                to.u64(original);
            }
            ReplaySnapshot::Empty { psn } => {
                to.u8(2);
                to.u32(psn);
            }
        }
    }
}

fn read_responder(from: &mut Reader<'_>, into: &mut ResponderSnapshot) -> Option<()> {
    into.expected_psn = from.psn()?;
    into.msn = from.psn()?;
    into.nak_outstanding = from.u8()? != 0;
    into.communication_established = from.u8()? != 0;
    into.message_srqn = Some(from.u32()?).filter(|&srqn| srqn <= 0xff_ffff);
    into.message = match from.u8()? {
        0 => MessageSnapshot::None,
        // The executor of the record says whether the request is here.
        1 => MessageSnapshot::Send { offset: from.u64().filter(|&offset| offset <= 1 << 31)?, here: false },
        2 => {
            let (rkey, address) = (from.u32()?, from.u64()?);
            let (remaining_bytes, total_bytes) = (from.u64()?, from.u32()?);
            if remaining_bytes > u64::from(total_bytes) {
                return None;
            }
            MessageSnapshot::Write { rkey, address, remaining_bytes, total_bytes }
        }
        _ => return None,
    };
    into.replays.clear();
    for _ in 0..from.u8()? {
        into.replays.push(match from.u8()? {
            0 => ReplaySnapshot::Read {
                first_psn: from.psn()?,
                count: from.u32().filter(|&count| count <= MAX_PSNS)?,
                rkey: from.u32()?,
                address: from.u64()?,
                length_bytes: from.u32()?,
            },
            1 => ReplaySnapshot::Atomic { psn: from.psn()?, original: from.u64()? },
            2 => ReplaySnapshot::Empty { psn: from.psn()? },
            _ => return None,
        });
    }
    Some(())
}

struct Writer<'a>(&'a mut Vec<u8>);

impl Writer<'_> {
    fn u8(&mut self, value: u8) {
        self.0.push(value);
    }
    fn u16(&mut self, value: u16) {
        self.0.extend(value.to_le_bytes());
    }
    fn u32(&mut self, value: u32) {
        self.0.extend(value.to_le_bytes());
    }
    fn u64(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }
    fn address(&mut self, address: IpAddr) {
        let (family, bytes) = address_bytes(address);
        self.u8(family);
        self.0.extend(bytes);
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }
    fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }
    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }
    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }
    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
    fn psn(&mut self) -> Option<u32> {
        self.u32().filter(|&psn| psn <= 0xff_ffff)
    }
    fn address(&mut self) -> Option<IpAddr> {
        let family = self.u8()?;
        address_from(family, &self.take()?)
    }
    fn vector(&mut self) -> Option<AddressVector> {
        let is_global = self.u8()? != 0;
        let dgid = Gid(self.take()?);
        let (sgid_index, flow_label, dlid) = (self.u32()?, self.u32()?, self.u16()?);
        let [hop_limit, traffic_class, port_num, sl, static_rate, src_path_bits] = self.take()?;
        Some(AddressVector {
            is_global,
            dgid,
            sgid_index,
            hop_limit,
            traffic_class,
            flow_label,
            port_num,
            sl,
            static_rate,
            dlid,
            src_path_bits,
        })
    }
}

/// Computes a checksum that finds a write that was cut short, not a forgery. It works word by word, because
/// it is computed for every batch.
pub(crate) fn checksum(sequence: u64, bytes: &[u8]) -> u64 {
    const PRIME: u64 = 0x9e37_79b9_7f4a_7c15;
    let step = |sum: u64, word: u64| (sum ^ word).wrapping_mul(PRIME).rotate_left(29);
    let (words, rest) = bytes.as_chunks::<8>();
    let sum = words.iter().fold(sequence ^ PRIME, |sum, &word| step(sum, u64::from_le_bytes(word)));
    rest.iter().fold(step(sum, bytes.len() as u64), |sum, &byte| step(sum, byte.into()))
}

const _: () = assert!(HEADER_BYTES + 4 + 32 + 16 + EVENTS + 400 + MAX_REPLAYS * 25 <= MAX_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> TargetRecord {
        let vector =
            AddressVector { is_global: true, dgid: Gid([7; 16]), hop_limit: 9, ..Default::default() };
        let attributes = QpAttributes {
            qp_state: 2,
            path_mtu: 3,
            rq_psn: 0xff_fff0,
            dest_qp_num: 0x12_3456,
            access: 15,
            address_vector: vector,
            alt_address_vector: AddressVector { dlid: 77, ..vector },
            pkey_index: 1,
            en_sqd_async_notify: true,
            max_dest_rd_atomic: 128,
            min_rnr_timer: 12,
            port_num: 1,
            alt_timeout: 31,
            ..QpAttributes::default()
        };
        let flow = Flow {
            source: [127, 0, 0, 1].into(),
            destination: [127, 0, 0, 2].into(),
            source_port: 50_000,
            destination_port: 4791,
        };
        let read =
            ReplaySnapshot::Read { first_psn: 4, count: 3, rkey: 5, address: u64::MAX, length_bytes: 9000 };
        TargetRecord {
            sequence: 99,
            qpn: 0x05_0011,
            half: true,
            registered: [1, 2, 3, u64::MAX],
            executor: 0xfeed,
            event_count: 5,
            events: [3; EVENTS],
            snapshot: TargetSnapshot {
                state: QpState::Rtr,
                epoch: 2,
                pkey: 0x8001,
                attributes,
                path: Some(Path { flow, traffic_class: 3, hop_limit: 64, flow_label: 0xf_1234 }),
                responder: ResponderSnapshot {
                    expected_psn: 0xff_ffff,
                    msn: 12,
                    nak_outstanding: true,
                    communication_established: true,
                    message: MessageSnapshot::Send { offset: 4096, here: false },
                    message_srqn: Some(0x07_0001),
                    replays: [
                        read,
                        ReplaySnapshot::Atomic { psn: 8, original: 77 },
                        ReplaySnapshot::Empty { psn: 9 },
                    ]
                    .repeat(85),
                },
            },
        }
    }

    #[test]
    fn a_record_comes_back_as_it_went() {
        let (mut bytes, mut back) = (Vec::new(), TargetRecord::default());
        let write = MessageSnapshot::Write { rkey: 1, address: 2, remaining_bytes: 3, total_bytes: 4 };
        for message in [MessageSnapshot::None, write, MessageSnapshot::Send { offset: 1 << 31, here: false }]
        {
            for path in [None, full().snapshot.path] {
                let mut record = full();
                record.snapshot.responder.message = message;
                record.snapshot.path = path;
                encode(&record, &mut bytes);
                assert!(bytes.len() <= MAX_BYTES, "{}", bytes.len());
                assert!(decode(&bytes, &mut back));
                assert_eq!(back, record);
            }
        }
    }

    #[test]
    fn damage_is_found_and_forgeries_are_harmless() {
        let (mut bytes, mut back) = (Vec::new(), TargetRecord::default());
        encode(&full(), &mut bytes);
        for offset in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[offset] ^= 0x40;
            assert!(!decode(&damaged, &mut back), "byte {offset}");
            assert!(!decode(&bytes[..offset], &mut back), "{offset} bytes");
        }
        // With a correct checksum, so that the contents are read: none of them causes a panic.
        for offset in HEADER_BYTES..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut forged = bytes.clone();
                forged[offset] = value;
                let sum = checksum(99, &forged[HEADER_BYTES..]);
                forged[16..24].copy_from_slice(&sum.to_le_bytes());
                decode(&forged, &mut back);
            }
        }
    }
}
