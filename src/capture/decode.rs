//! Decodes a frame into what is printed of it.

use std::hash::{DefaultHasher, Hasher};

use pumice_transport::mrc::constants::{DEFAULT_DSCPS, OTHER_PORT};
use pumice_transport::mrc::wire::MrcOpcode;
use pumice_transport::path::{Flow, ROCE_PORT};
use pumice_transport::qp::NumberedPart;
use pumice_transport::wire::{self, Bth, Datagram, IcrcVerdict, LinkType, Packet, decapsulate, icrc};

use super::file::Frame;
use super::management::{CmMessageText, message_of};
use super::multipath::Multipath;
use super::record::{Congestion, Flags, Icrc, NumberedPartText, Record};

/// The result of decoding a frame.
pub(crate) enum Decoded {
    /// A datagram to the RoCE port, well-formed or not: one packet, or those of a batch.
    Roce(Vec<Record>),
    /// The capture kept less of the frame than the base transport header.
    Cut,
    /// The frame is not of RoCE.
    Other,
}

/// Length of the longest frame, in bytes: an IP packet and the link header before it.
const MAX_FRAME_BYTES: usize = (1 << 16) + 128;
/// Length of the shortest RoCE packet, in bytes: BTH and ICRC.
const MIN_BYTES: usize = 16;
/// Upper bound of the length of a packet, in bytes: 4096 bytes of payload and the largest headers, rounded
/// up.
const MAX_BYTES: usize = 4096 + 128;

/// Decodes a frame.
pub(crate) fn decode(frame: &Frame<'_>) -> Decoded {
    let Some(link) = LinkType::from_pcap(frame.link_type) else { return Decoded::Other };
    let datagram = match decapsulate(link, frame.bytes) {
        Ok(datagram) => datagram,
        Err(_) if frame.is_cut() => return decode_cut(link, frame),
        Err(_) => return Decoded::Other,
    };
    if !is_for_roce(&datagram.flow, datagram.payload) {
        return Decoded::Other;
    }
    let time_ns = time_ns(frame);
    let verdict = check_icrc(&datagram);
    let comments = comments(frame);
    if verdict != Icrc::Ok
        && let Some(segment_bytes) = batch_segment_bytes(&datagram)
    {
        let segments = datagram.payload.chunks(segment_bytes).zip(0..=u16::MAX);
        return Decoded::Roce(
            segments
                .map(|(payload, index)| Record {
                    batch_index: Some(index),
                    comments: comments.clone(),
                    ..record(time_ns, &datagram, payload, check_segment(&datagram, payload, index))
                })
                .collect(),
        );
    }
    Decoded::Roce(vec![Record { comments, ..record(time_ns, &datagram, datagram.payload, verdict) }])
}

/// Reports whether a datagram is one of RoCE, or one of MRC at the other port that its texts name.
fn is_for_roce(flow: &Flow, payload: &[u8]) -> bool {
    let is_mrc = || payload.first().is_some_and(|byte| MrcOpcode::from_byte(*byte).is_some());
    flow.destination_port == ROCE_PORT || (flow.destination_port == OTHER_PORT && is_mrc())
}

/// Decodes a frame of which the capture kept only the beginning. Zeros are appended in place of the rest, so
/// that all headers are found and say how long the packet was.
fn decode_cut(link: LinkType, frame: &Frame<'_>) -> Decoded {
    let mut padded_frame = frame.bytes.to_vec();
    padded_frame.resize(frame.original_bytes.min(MAX_FRAME_BYTES), 0);
    let Ok(datagram) = decapsulate(link, &padded_frame) else { return Decoded::Cut };
    // Offset of the payload in the frame.
    let begin = (datagram.payload.as_ptr() as usize).wrapping_sub(padded_frame.as_ptr() as usize);
    let captured = frame.bytes.len().saturating_sub(begin).min(datagram.payload.len());
    if !is_for_roce(&datagram.flow, datagram.payload) {
        return if frame.bytes.len() < begin { Decoded::Cut } else { Decoded::Other };
    }
    if captured < Bth::LEN.min(datagram.payload.len()) {
        return Decoded::Cut;
    }
    let is_whole = captured == datagram.payload.len();
    let icrc = if is_whole { check_icrc(&datagram) } else { Icrc::NotCaptured };
    let mut record = record(time_ns(frame), &datagram, datagram.payload, icrc);
    record.comments = comments(frame);
    if !is_whole {
        record.fill_from_payload(datagram.payload.get(..captured).unwrap_or_default());
    }
    Decoded::Roce(vec![record])
}

fn time_ns(frame: &Frame<'_>) -> u64 {
    u64::try_from(frame.time.as_nanos()).unwrap_or(u64::MAX)
}

fn comments(frame: &Frame<'_>) -> Vec<String> {
    // A comment is printed, perhaps on a terminal.
    let plain = |text: &str| text.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    frame.comments.iter().map(|text| plain(text)).collect()
}

impl Record {
    /// Removes the values that were read behind the bytes that the capture kept.
    fn fill_from_payload(&mut self, captured: &[u8]) {
        let Some(headers) = self.headers.wire().copied() else { return };
        if headers.len() > captured.len() {
            self.headers = wire::Headers::new(headers.bth).into();
        }
        if self.payload_bytes + headers.len() > captured.len() {
            (self.cm, self.message) = (None, None);
            self.digest = digest(captured.get(headers.len()..).unwrap_or_default());
        }
    }
}

fn record(time_ns: u64, datagram: &Datagram<'_>, payload: &[u8], icrc: Icrc) -> Record {
    let mut record = Record {
        time_ns,
        source: datagram.flow.source,
        destination: datagram.flow.destination,
        source_port: datagram.flow.source_port,
        congestion: Congestion::of(datagram.traffic_class),
        dscp: datagram.traffic_class >> 2,
        icrc,
        ..Record::default()
    };
    if let Some(bth) = Bth::parse(payload) {
        record.opcode = bth.opcode.to_string();
        record.qpn = bth.destination.value();
        record.psn = bth.psn.value();
        record.pkey = bth.pkey;
        record.flags = Flags::of(&bth);
    }
    match Packet::parse(payload) {
        Ok(packet) => {
            record.headers = packet.headers().into();
            record.cm = CmMessageText::of(&packet);
            record.message = record.cm.is_some().then(|| message_of(&packet)).flatten();
            if packet.headers().deth.is_some() {
                record.digest = digest(packet.payload());
                record.part = NumberedPart::of(packet.payload()).map(NumberedPartText);
            }
            record.payload_bytes = packet.payload().len();
        }
        Err(error) => match Multipath::of(payload, DEFAULT_DSCPS.trim(record.dscp).is_some()) {
            Some(mrc) => {
                (record.opcode, record.payload_bytes) = (mrc.name.to_owned(), mrc.payload_bytes);
                // The flags of RoCE's BTH have other meanings.
                record.flags = Flags::default();
                record.mrc = Some(mrc);
            }
            None => record.malformed = Some(error.to_string()),
        },
    }
    record
}

/// Returns a digest that identifies a datagram by its payload.
fn digest(payload: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(payload);
    hasher.finish()
}

/// Checks the ICRC, exactly, because the capture has the whole IP header. If it is wrong, an identification
/// for which it would be right shows that the sender computed it for that one, rather than damage.
fn check_icrc(datagram: &Datagram<'_>) -> Icrc {
    if datagram.payload.len() < MIN_BYTES {
        return Icrc::Missing;
    }
    if icrc::verify_with_header(datagram.ip_header, datagram.udp_header, datagram.payload) {
        return Icrc::Ok;
    }
    match icrc::verify(&datagram.flow, 0, datagram.payload) {
        IcrcVerdict::Recovered { ip_id } => Icrc::Bad { right_for_ip_id: Some(ip_id) },
        IcrcVerdict::Exact => Icrc::Bad { right_for_ip_id: Some(0) },
        IcrcVerdict::Bad => Icrc::Bad { right_for_ip_id: None },
    }
}

/// Segmentation offload: a capture on the sending host, or on loopback, shows a batch as one datagram that
/// the kernel or the NIC has not cut yet. Its segments have equal lengths and the ICRCs of packets with the
/// identifications 0, 1, 2, …; the length is the one at which the first ICRC is right.
fn batch_segment_bytes(datagram: &Datagram<'_>) -> Option<usize> {
    let payload = datagram.payload;
    (MIN_BYTES..MAX_BYTES.min(payload.len())).step_by(4).find(|&length| {
        let segment = payload.get(..length).unwrap_or_default();
        icrc::verify(&datagram.flow, 0, segment) == IcrcVerdict::Exact
    })
}

fn check_segment(datagram: &Datagram<'_>, segment: &[u8], index: u16) -> Icrc {
    if segment.len() < MIN_BYTES {
        return Icrc::Missing;
    }
    match icrc::verify(&datagram.flow, index, segment) {
        IcrcVerdict::Exact => Icrc::Ok,
        IcrcVerdict::Recovered { ip_id } if ip_id == index => Icrc::Ok,
        IcrcVerdict::Recovered { ip_id } => Icrc::Bad { right_for_ip_id: Some(ip_id) },
        IcrcVerdict::Bad => Icrc::Bad { right_for_ip_id: None },
    }
}
