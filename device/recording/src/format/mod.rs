//! The file format of a trace: a [`TraceHeader`], then records, each with the time since the one before it.
//! One list ([`Record`]) defines all records; writing ([`Encoder`]) and reading ([`TraceReader`]) are
//! generated from it. A damaged file gives an error, never a panic.
//!
//! The header of a trace, and the actions of fault plan rules as a number in a record.

use std::net::IpAddr;

use serde::Serialize;

use self::field::{RecordField, take_bytes};

/// Makes the enum of the actions and their numbers.
macro_rules! kinds_of_fault {
    ($($(#[$doc:meta])* $number:literal $name:ident,)*) => {
        /// The action of a fault plan rule.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum TracedFaultAction {
            $($(#[$doc])* $name = $number,)*
        }

        impl TracedFaultAction {
            /// Returns the action with this number, or `None` if only a newer version knows it.
            pub const fn of(number: u8) -> Option<TracedFaultAction> {
                match number { $($number => Some(TracedFaultAction::$name),)* _ => None }
            }
        }
    };
}

kinds_of_fault! {
    /// A packet is lost.
    1 Lost,
    /// A packet leaves later.
    2 Delayed,
    /// Later packets leave before a packet.
    3 Reordered,
    /// Copies leave with a packet.
    4 Duplicated,
    /// Bits of a packet are flipped.
    5 Corrupted,
    /// Bits of its payload are flipped, and the ICRC is right.
    6 CorruptedSilently,
    /// A part of a packet is sent.
    7 Truncated,
    /// A packet is marked as congested.
    8 Marked,
    /// A congestion notification is sent to the sender.
    9 Notified,
    /// The request is refused in the peer's name.
    10 Refused,
    /// A request for a connection is rejected in the peer's name, or has no answer.
    11 Rejected,
    /// A partition begins: all packets are lost from here on.
    12 Partition,
    /// An incident happens to the device.
    13 Incident,
    /// A call fails.
    14 CallFailed,
    /// A call takes longer.
    15 CallSlowed,
    /// A request ends with another status.
    16 Status,
    /// A completion comes later.
    17 CompletionLate,
    /// An event of a completion channel comes later.
    18 EventLate,
    /// Events of a completion channel come together.
    19 EventsMerged,
    /// The data of a packet of MRC is cut off, as by a switch in congestion.
    20 Trimmed,
    /// A SACK of MRC arrives with a wrong state of its path.
    21 Reflected,
}

/// The newest version that this program writes and reads.
pub const VERSION: u16 = 1;
/// Magic bytes at the start of a trace.
const MAGIC: [u8; 8] = *b"pumitrc\n";
/// Length of the part of the header before the fields of variable length.
const FIXED_BYTES: usize = 32;
/// Longest header, in bytes.
const MAX_HEADER_BYTES: usize = 1 << 16;
/// Maximum number of addresses in a header.
const MAX_ADDRESSES: usize = 256;
/// Offset of the numbers that change while the trace grows.
pub const CHANGING_AT: u64 = 10;
/// Flag: the device was closed, or the process ended normally.
const ENDED: u16 = 1;

/// The header of a trace, or of a section, which begins where the process opened its device again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(tag = "record", rename = "Header")]
pub struct TraceHeader {
    /// Process id.
    pub process: u32,
    /// The host's CLOCK_MONOTONIC at time 0 of the trace, in ns.
    pub monotonic_base_ns: u64,
    /// Nanoseconds since 1970 at time 0 of the trace.
    pub wall_base_ns: u64,
    /// Maximum size of the file in bytes.
    pub limit_bytes: u64,
    /// Id of the host's boot, which identifies its clock; empty if it is unknown, or in a simulation.
    pub boot: String,
    /// Name of the program.
    pub program: String,
    /// Tag of the process, by which fault plans name it.
    pub tag: String,
    /// Name of the device.
    pub device: String,
    /// Addresses of the device; at most 256.
    pub addresses: Vec<IpAddr>,
    /// Number of records that were left out because the file reached its limit.
    pub omitted_records: u64,
    /// Number of records that were lost because they came faster than they were written.
    pub lost_records: u64,
    /// The device was closed, or the process ended normally.
    pub is_ended: bool,
}

/// The reason why bytes are no valid header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// There are too few bytes.
    #[error("its header is cut off")]
    Short,
    /// The bytes are of another format.
    #[error("it is no trace")]
    Foreign,
    /// The version is newer than this program's.
    #[error("it has version {0}, and this program reads up to version {VERSION}: use a newer pumice")]
    Newer(u16),
    /// The fields are inconsistent.
    #[error("its header is damaged")]
    Damaged,
}

impl TraceHeader {
    /// Returns the header as bytes.
    pub fn emit(&self) -> Vec<u8> {
        let mut fields = Vec::new();
        self.process.emit(&mut fields);
        self.monotonic_base_ns.emit(&mut fields);
        self.wall_base_ns.emit(&mut fields);
        self.limit_bytes.emit(&mut fields);
        for text in [&self.boot, &self.program, &self.tag, &self.device] {
            text.as_str().emit(&mut fields);
        }
        let addresses = self.addresses.get(..MAX_ADDRESSES).unwrap_or(&self.addresses);
        (addresses.len() as u16).emit(&mut fields);
        for address in addresses {
            address.emit(&mut fields);
        }
        let mut out = Vec::with_capacity(FIXED_BYTES + fields.len());
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.changing());
        out.extend_from_slice(&((FIXED_BYTES + fields.len()) as u32).to_le_bytes());
        out.extend_from_slice(&fields);
        out
    }

    /// Returns the numbers that change while the trace grows, for the offset [`CHANGING_AT`].
    pub fn changing(&self) -> [u8; 18] {
        let mut out = [0; 18];
        let flags = if self.is_ended { ENDED } else { 0 };
        let parts: [&[u8]; 3] =
            [&flags.to_le_bytes(), &self.omitted_records.to_le_bytes(), &self.lost_records.to_le_bytes()];
        for (out, byte) in out.iter_mut().zip(parts.into_iter().flatten()) {
            *out = *byte;
        }
        out
    }

    /// Parses the header at the front of some bytes, and returns it with its length. The bytes have to hold
    /// the whole header.
    ///
    /// # Errors
    /// See [`HeaderError`].
    pub fn parse(bytes: &[u8]) -> Result<(TraceHeader, usize), HeaderError> {
        let length = TraceHeader::length(bytes)?;
        let header = bytes.get(..length).ok_or(HeaderError::Short)?;
        TraceHeader::parse_whole(header).map(|parsed| (parsed, length)).ok_or(HeaderError::Damaged)
    }

    /// Returns the length of the header that begins with these bytes, of which at least 32 are needed.
    ///
    /// # Errors
    /// See [`HeaderError`].
    fn length(bytes: &[u8]) -> Result<usize, HeaderError> {
        let known = bytes.len().min(MAGIC.len());
        if bytes.get(..known) != MAGIC.get(..known) || bytes.is_empty() {
            return Err(HeaderError::Foreign);
        }
        let mut rest = bytes.get(known..).ok_or(HeaderError::Short)?;
        let version =
            take_bytes(&mut rest, 2).and_then(|two| two.try_into().ok()).ok_or(HeaderError::Short)?;
        let version = u16::from_le_bytes(version);
        if version > VERSION {
            return Err(HeaderError::Newer(version));
        }
        let mut rest = rest.get(18..).ok_or(HeaderError::Short)?;
        let length =
            take_bytes(&mut rest, 4).and_then(|four| four.try_into().ok()).ok_or(HeaderError::Short)?;
        let length = u32::from_le_bytes(length) as usize;
        if version == 0 || !(FIXED_BYTES..=MAX_HEADER_BYTES).contains(&length) {
            return Err(HeaderError::Damaged);
        }
        Ok(length)
    }

    fn parse_whole(header: &[u8]) -> Option<TraceHeader> {
        let mut rest = header.get(CHANGING_AT as usize..)?;
        let flags = u16::from_le_bytes(take_bytes(&mut rest, 2)?.try_into().ok()?);
        let omitted_records = u64::from_le_bytes(take_bytes(&mut rest, 8)?.try_into().ok()?);
        let lost_records = u64::from_le_bytes(take_bytes(&mut rest, 8)?.try_into().ok()?);
        let mut rest = header.get(FIXED_BYTES..)?;
        let rest = &mut rest;
        let (process, monotonic_base_ns) = (u32::parse(rest)?, u64::parse(rest)?);
        let (wall_base_ns, limit_bytes) = (u64::parse(rest)?, u64::parse(rest)?);
        let mut text = || <&str>::parse(rest).map(str::to_owned);
        let (boot, program, tag, device) = (text()?, text()?, text()?, text()?);
        let count = usize::from(u16::parse(rest)?);
        if count > MAX_ADDRESSES {
            return None;
        }
        let addresses = (0..count).map(|_| IpAddr::parse(rest)).collect::<Option<Vec<_>>>()?;
        Some(TraceHeader {
            process,
            monotonic_base_ns,
            wall_base_ns,
            limit_bytes,
            boot,
            program,
            tag,
            device,
            addresses,
            omitted_records,
            lost_records,
            is_ended: flags & ENDED != 0,
        })
    }

    /// Returns the host's monotonic clock, in ns, at a time of this trace.
    pub const fn monotonic_ns(&self, at_ns: u64) -> u64 {
        self.monotonic_base_ns.wrapping_add(at_ns)
    }
}

mod encode;
mod field;
mod reader;
mod record;

pub use encode::{Encoder, SECTION};
pub use field::{ByteSink, TEXT_BYTES};

pub use reader::{Item, ReadError, TraceReader};
pub use record::Record;

#[cfg(test)]
mod tests;
