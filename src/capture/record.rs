//! The printed form of a packet, as text and as JSON.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr};

use pumice_transport::mad::CmMessage;
use pumice_transport::qp::NumberedPart;
use pumice_transport::types::AtomicOperation;
use pumice_transport::wire::{self, Bth, NakCode, Syndrome, credits, rnr_timer_ns};
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::management::CmMessageText;
use super::multipath::Multipath;

/// A packet to the RoCE port.
#[derive(Debug, serde::Serialize)]
#[serde(tag = "kind", rename = "packet")]
pub(crate) struct Record {
    pub(crate) time_ns: u64,
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) source_port: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) congestion: Option<Congestion>,
    /// Differentiated services code point of the IP header.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) dscp: u8,
    /// Index in a batch that was captured before it was segmented.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) batch_index: Option<u16>,
    /// Empty when the packet has no whole BTH.
    pub(crate) opcode: String,
    pub(crate) qpn: u32,
    pub(crate) psn: u32,
    pub(crate) pkey: u16,
    pub(crate) flags: Flags,
    #[serde(flatten)]
    pub(crate) headers: Headers,
    /// The headers of a packet of MRC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mrc: Option<Multipath>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cm: Option<CmMessageText>,
    /// Part of a message, for SRD and DC, whose packets are datagrams.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(crate) part: Option<NumberedPartText>,
    /// Digest of the payload of a datagram.
    #[serde(skip)]
    pub(crate) digest: u64,
    /// The message of connection management, as it was sent.
    #[serde(skip)]
    pub(crate) message: Option<Box<CmMessage>>,
    pub(crate) payload_bytes: usize,
    #[serde(flatten)]
    pub(crate) icrc: Icrc,
    /// Error in the form of the packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) malformed: Option<String>,
    /// Comments of the capture; in captures of this device, what a fault plan did to the packet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) comments: Vec<String>,
}

impl Default for Record {
    fn default() -> Record {
        Record {
            time_ns: 0,
            source: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            destination: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            source_port: 0,
            congestion: None,
            dscp: 0,
            batch_index: None,
            opcode: String::new(),
            qpn: 0,
            psn: 0,
            pkey: DEFAULT_PKEY,
            flags: Flags::default(),
            headers: Headers::default(),
            mrc: None,
            cm: None,
            part: None,
            digest: 0,
            message: None,
            payload_bytes: 0,
            icrc: Icrc::Missing,
            malformed: None,
            comments: Vec::new(),
        }
    }
}

/// Prefix of the comment of a packet to which a fault plan applied.
const PLANNED: &str = "pumice: ";
/// Prefix of the comment of a packet that a fault plan lost.
const LOST: &str = "pumice: lost: ";
const DEFAULT_PKEY: u16 = 0xffff;

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands references")]
fn is_zero(number: &u8) -> bool {
    *number == 0
}

impl Record {
    /// Writes one line; the time is relative to `first_ns`.
    pub(crate) fn write_text(&self, first_ns: u64, out: &mut dyn Write) -> io::Result<()> {
        let sign = if self.time_ns < first_ns { "-" } else { "" };
        let since = self.time_ns.abs_diff(first_ns);
        let seconds = format!("{sign}{}.{:09}", since / 1_000_000_000, since % 1_000_000_000);
        write!(out, "{seconds:>13}  {} > {}", self.source, self.destination)?;
        if !self.opcode.is_empty() {
            write!(out, "  {}  qp {:#08x}  psn {}", self.opcode, self.qpn, self.psn)?;
        }
        if let Some(index) = self.batch_index {
            write!(out, " batch[{index}]")?;
        }
        for name in self.flags.names() {
            write!(out, " {name}")?;
        }
        match self.congestion {
            Some(Congestion::Experienced) => write!(out, " congested")?,
            Some(Congestion::Capable) | None => {}
        }
        if self.dscp != 0 {
            write!(out, "  dscp {}", self.dscp)?;
        }
        if self.pkey != DEFAULT_PKEY {
            write!(out, "  pkey {:#06x}", self.pkey)?;
        }
        self.headers.write_text(out)?;
        if let Some(mrc) = &self.mrc {
            mrc.write_text(out)?;
        }
        if let Some(cm) = &self.cm {
            cm.write_text(out)?;
        }
        if let Some(NumberedPartText(part)) = &self.part {
            numbered_part_text(part, out)?;
        }
        match &self.malformed {
            Some(what) => write!(out, "  MALFORMED: {what}")?,
            None => write!(out, "  {} B", self.payload_bytes)?,
        }
        match self.icrc {
            Icrc::Ok => write!(out, "  icrc ok")?,
            Icrc::Missing => write!(out, "  no icrc")?,
            Icrc::NotCaptured => write!(out, "  icrc not captured")?,
            Icrc::Bad { right_for_ip_id: None } => write!(out, "  icrc BAD")?,
            Icrc::Bad { right_for_ip_id: Some(id) } => write!(out, "  icrc BAD (right for IP ID {id})")?,
        }
        for comment in &self.comments {
            write!(out, "  [{comment}]")?;
        }
        writeln!(out)
    }

    /// Reports whether a fault plan lost the packet, so that it was not on the network.
    pub(crate) fn is_lost(&self) -> bool {
        self.comments.iter().any(|comment| comment.starts_with(LOST))
    }

    /// Reports whether a fault plan applied to the packet.
    pub(crate) fn is_planned(&self) -> bool {
        self.comments.iter().any(|comment| comment.starts_with(PLANNED))
    }
}

/// The ECN bits of the IP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Congestion {
    /// The sender supports ECN marks.
    Capable,
    /// A switch on the way marked the packet.
    Experienced,
}

impl Congestion {
    pub(crate) fn of(traffic_class: u8) -> Option<Congestion> {
        match traffic_class & 3 {
            0 => None,
            3 => Some(Congestion::Experienced),
            _ => Some(Congestion::Capable),
        }
    }
}

/// The flag bits of the BTH.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Flags {
    solicited: bool,
    migrated: bool,
    fecn: bool,
    becn: bool,
    ack_request: bool,
}

impl Flags {
    pub(crate) fn of(bth: &Bth) -> Flags {
        Flags {
            solicited: bth.solicited,
            migrated: bth.migrated,
            fecn: bth.fecn,
            becn: bth.becn,
            ack_request: bth.ack_request,
        }
    }

    fn names(self) -> impl Iterator<Item = &'static str> {
        [
            (self.solicited, "solicited"),
            (self.migrated, "migrated"),
            (self.fecn, "fecn"),
            (self.becn, "becn"),
            (self.ack_request, "ack-request"),
        ]
        .into_iter()
        .filter_map(|(set, name)| set.then_some(name))
    }
}

impl Serialize for Flags {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.names())
    }
}

/// The result of checking the ICRC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Icrc {
    Ok,
    /// The packet is too short to have an ICRC.
    Missing,
    /// The capture cut the packet before its ICRC.
    NotCaptured,
    Bad {
        /// IPv4 identification for which the ICRC is right, if that is all that is wrong.
        right_for_ip_id: Option<u16>,
    },
}

impl Serialize for Icrc {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let verdict = match self {
            Icrc::Ok => "ok",
            Icrc::Missing => "missing",
            Icrc::NotCaptured => "not captured",
            Icrc::Bad { .. } => "bad",
        };
        map.serialize_entry("icrc", verdict)?;
        if let Icrc::Bad { right_for_ip_id: Some(id) } = self {
            map.serialize_entry("icrc_right_for_ip_id", id)?;
        }
        map.end()
    }
}

/// A part of a message of SRD or DC, or an answer to one.
#[derive(Debug)]
pub(crate) struct NumberedPartText(pub(crate) NumberedPart);

/// Writes text such as ` DC SEND, message 3, part 1 of 4, stream 0`, with parts counted from 1.
fn numbered_part_text(part: &NumberedPart, out: &mut dyn Write) -> io::Result<()> {
    let NumberedPart { service, kind, message, part, parts, stream, .. } = *part;
    write!(out, "  {service} {kind}, message {message}, part {} of {parts}", u64::from(part) + 1)?;
    match stream {
        Some(stream) => write!(out, ", stream {stream}"),
        None => Ok(()),
    }
}

impl Serialize for NumberedPartText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let NumberedPart { service, kind, message, part, parts, length_bytes, stream } = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("service", service)?;
        map.serialize_entry("part_kind", kind)?;
        map.serialize_entry("message", &message)?;
        map.serialize_entry("part", &part)?;
        map.serialize_entry("parts", &parts)?;
        map.serialize_entry("message_bytes", &length_bytes)?;
        if let Some(stream) = stream {
            map.serialize_entry("stream", &stream)?;
        }
        map.end()
    }
}

/// The extension headers of a packet.
#[derive(Debug, Default)]
pub(crate) struct Headers(Option<wire::Headers>);

impl Headers {
    /// Returns the headers, if they could be parsed.
    pub(crate) const fn wire(&self) -> Option<&wire::Headers> {
        self.0.as_ref()
    }
}

impl From<wire::Headers> for Headers {
    fn from(headers: wire::Headers) -> Headers {
        Headers(Some(headers))
    }
}

impl Headers {
    /// Writes each header as ` name{…}`, in the order of the wire.
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let Some(h) = &self.0 else { return Ok(()) };
        if let Some(xrc) = h.xrceth {
            write!(out, "  srq {:#08x}", xrc.srqn)?;
        }
        if let Some(deth) = h.deth {
            write!(out, "  from qp {} qkey {:#010x}", deth.source, deth.qkey)?;
        }
        if let Some(flush) = h.feth {
            write!(out, "  flush placement {} selectivity {}", flush.placement, flush.selectivity)?;
        }
        if let Some(reth) = h.reth {
            write!(out, "  va {:#x} rkey {:#x} length {}", reth.address, reth.rkey, reth.length)?;
        }
        if let Some(atomic) = h.atomic_eth {
            write!(out, "  va {:#x} rkey {:#x}", atomic.address, atomic.rkey)?;
            let operation = h.bth.opcode.info().and_then(|info| {
                AtomicOperation::from_operands(info.operation, atomic.swap_or_add, atomic.compare)
            });
            if let Some(operation) = operation {
                write!(out, " {operation}")?;
            }
        }
        if let Some(aeth) = h.aeth {
            write!(out, "  {}  msn {}", meaning(aeth.syndrome), aeth.msn)?;
        }
        if let Some(ack) = h.atomic_ack_eth {
            write!(out, "  original {:#x}", ack.original)?;
        }
        if let Some(imm) = h.imm {
            write!(out, "  imm {:#010x}", u32::from_be_bytes(imm.0))?;
        }
        if let Some(ieth) = h.ieth {
            write!(out, "  invalidate {:#x}", ieth.rkey)?;
        }
        Ok(())
    }
}

impl Serialize for Headers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if let Some(h) = &self.0 {
            if let Some(xrc) = h.xrceth {
                map.serialize_entry("srqn", &xrc.srqn)?;
            }
            if let Some(deth) = h.deth {
                map.serialize_entry("source_qpn", &deth.source.value())?;
                map.serialize_entry("qkey", &deth.qkey)?;
            }
            if let Some(flush) = h.feth {
                map.serialize_entry("flush_placement", &flush.placement)?;
                map.serialize_entry("flush_selectivity", &flush.selectivity)?;
            }
            if let Some(reth) = h.reth {
                map.serialize_entry("address", &hex(reth.address))?;
                map.serialize_entry("rkey", &reth.rkey)?;
                map.serialize_entry("length", &reth.length)?;
            }
            if let Some(atomic) = h.atomic_eth {
                map.serialize_entry("address", &hex(atomic.address))?;
                map.serialize_entry("rkey", &atomic.rkey)?;
                map.serialize_entry("swap_or_add", &hex(atomic.swap_or_add))?;
                map.serialize_entry("compare", &hex(atomic.compare))?;
            }
            if let Some(aeth) = h.aeth {
                map.serialize_entry("syndrome", &aeth.syndrome)?;
                map.serialize_entry("meaning", &meaning(aeth.syndrome))?;
                map.serialize_entry("msn", &aeth.msn)?;
            }
            if let Some(ack) = h.atomic_ack_eth {
                map.serialize_entry("original", &hex(ack.original))?;
            }
            if let Some(imm) = h.imm {
                map.serialize_entry("imm", &u32::from_be_bytes(imm.0))?;
            }
            if let Some(ieth) = h.ieth {
                map.serialize_entry("invalidate_rkey", &ieth.rkey)?;
            }
        }
        map.end()
    }
}

/// Formats a 64-bit value as a string for JSON, because many readers keep only 53 bits of a number.
fn hex(value: u64) -> String {
    format!("{value:#x}")
}

/// Describes a syndrome in words.
fn meaning(syndrome: u8) -> String {
    match Syndrome::from_byte(syndrome) {
        Syndrome::Ack { credit_code } => match credits(credit_code) {
            Some(count) => format!("ACK, credits {count}"),
            None => "ACK".to_owned(),
        },
        Syndrome::RnrNak { timer_code } => {
            let us = rnr_timer_ns(timer_code) / 1000;
            format!("RNR NAK, wait {}.{:02} ms", us / 1000, us % 1000 / 10)
        }
        Syndrome::Nak(code) => {
            let reason = match code {
                NakCode::Sequence => "sequence error",
                NakCode::InvalidRequest => "invalid request",
                NakCode::RemoteAccess => "remote access error",
                NakCode::RemoteOperation => "remote operational error",
                NakCode::InvalidReadRequest => "invalid RD request",
            };
            format!("NAK, {reason}")
        }
        Syndrome::Reserved(byte) => format!("reserved syndrome {byte:#04x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(record: &Record) -> String {
        let mut out = Vec::new();
        record.write_text(1_000, &mut out).expect("a Vec takes everything");
        String::from_utf8(out).expect("a line is text")
    }

    #[test]
    fn a_line_says_everything_about_a_packet() {
        let record = Record {
            time_ns: 1_500,
            opcode: "RC_SEND_ONLY".to_owned(),
            qpn: 0x11,
            psn: 5,
            flags: Flags { solicited: true, ack_request: true, ..Flags::default() },
            congestion: Some(Congestion::Experienced),
            payload_bytes: 3,
            icrc: Icrc::Bad { right_for_ip_id: Some(7) },
            ..Record::default()
        };
        assert_eq!(
            text(&record),
            "  0.000000500  0.0.0.0 > 0.0.0.0  RC_SEND_ONLY  qp 0x000011  psn 5 solicited ack-request \
            congested  \
             3 B  icrc BAD (right for IP ID 7)\n"
        );
        let json = serde_json::to_value(&record).expect("a record is JSON");
        assert_eq!(json["kind"], "packet");
        assert_eq!(json["flags"], serde_json::json!(["solicited", "ack-request"]));
        assert_eq!(json["icrc"], "bad");
        assert_eq!(json["icrc_right_for_ip_id"], 7);
    }

    #[test]
    fn all_comments_are_shown_and_any_says_that_it_was_lost() {
        let comments = ["pumice: call 3", "pumice: lost: a rule"].map(str::to_owned).to_vec();
        let record = Record { comments, ..Record::default() };
        assert!(text(&record).ends_with("  [pumice: call 3]  [pumice: lost: a rule]\n"), "{}", text(&record));
        assert!(record.is_lost() && !Record::default().is_lost());
        let json = serde_json::to_value(&record).expect("a record is JSON");
        assert_eq!(json["comments"], serde_json::json!(["pumice: call 3", "pumice: lost: a rule"]));
        assert!(serde_json::to_value(Record::default()).expect("JSON").get("comments").is_none());
    }

    #[test]
    fn a_packet_before_the_first_has_a_negative_time() {
        assert!(text(&Record::default()).starts_with(" -0.000001000  "), "{}", text(&Record::default()));
    }

    #[test]
    fn syndromes_are_put_into_words() {
        assert_eq!(meaning(0x1f), "ACK");
        assert_eq!(meaning(0x60), "NAK, sequence error");
        assert_eq!(meaning(0x62), "NAK, remote access error");
        assert!(meaning(0x21).starts_with("RNR NAK, wait 0.01 ms"), "{}", meaning(0x21));
        assert!(meaning(0x40).starts_with("reserved"));
    }
}
