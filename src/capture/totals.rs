//! The totals of a capture.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;

use super::decode::Decoded;
use super::record::{Icrc, Record};
use crate::outcome::CommandError;

/// Counts over a capture.
#[derive(Debug, Default, Serialize)]
#[serde(tag = "kind", rename = "summary")]
pub(crate) struct CaptureTotals {
    /// Number of frames in the file.
    pub(crate) frames: u64,
    /// Number of packets to the RoCE port; a batch captured before segmentation is one frame of several
    /// packets.
    pub(crate) packets: u64,
    /// Number of these packets that are no well-formed RoCE packet.
    pub(crate) malformed: u64,
    /// Number of malformed packets with a wrong ICRC. Unknown opcodes of another sender are no damage.
    #[serde(skip)]
    damaged: u64,
    /// Number of frames of which the capture did not keep the base transport header.
    pub(crate) cut: u64,
    /// Number of other frames.
    pub(crate) others: u64,
    pub(crate) payload_bytes: u64,
    pub(crate) icrc_ok: u64,
    pub(crate) icrc_bad: u64,
    /// Number of packets that the capture cut before the ICRC.
    pub(crate) icrc_not_captured: u64,
    /// Number of bad ICRCs that are right for another IP identification than the captured one.
    pub(crate) icrc_right_for_other_ip_id: u64,
    /// Number of packets that a fault plan lost: they are in the capture, but were not on the network.
    pub(crate) lost: u64,
    /// Time between the first and the latest frame, in ns.
    pub(crate) duration_ns: u64,
    /// Number of packets by opcode name.
    pub(crate) opcodes: BTreeMap<String, u64>,
    /// Number of packets by flow, "source > destination".
    pub(crate) flows: BTreeMap<String, u64>,
    #[serde(skip)]
    first_ns: Option<u64>,
}

/// Maximum number of flows that are counted separately; packets of further ones are counted together. A
/// capture may name any number.
const MAX_FLOWS: usize = 1000;

impl CaptureTotals {
    /// Notes the time of a frame; returns the time of the first one.
    pub(crate) fn start(&mut self, time: Duration) -> u64 {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let first = *self.first_ns.get_or_insert(ns);
        self.duration_ns = self.duration_ns.max(ns.saturating_sub(first));
        first
    }

    pub(crate) fn add(&mut self, decoded: &Decoded) {
        self.frames += 1;
        match decoded {
            Decoded::Cut => self.cut += 1,
            Decoded::Other => self.others += 1,
            Decoded::Roce(records) => records.iter().for_each(|record| self.add_packet(record)),
        }
    }

    fn add_packet(&mut self, record: &Record) {
        self.packets += 1;
        self.lost += u64::from(record.is_lost());
        self.malformed += u64::from(record.malformed.is_some());
        self.damaged += u64::from(record.malformed.is_some() && record.icrc != Icrc::Ok);
        self.payload_bytes += record.payload_bytes as u64;
        match record.icrc {
            Icrc::Ok => self.icrc_ok += 1,
            Icrc::Missing => {}
            Icrc::NotCaptured => self.icrc_not_captured += 1,
            Icrc::Bad { right_for_ip_id } => {
                self.icrc_bad += 1;
                self.icrc_right_for_other_ip_id += u64::from(right_for_ip_id.is_some());
            }
        }
        if !record.opcode.is_empty() {
            *self.opcodes.entry(record.opcode.clone()).or_default() += 1;
        }
        let mut flow = format!("{} > {}", record.source, record.destination);
        if self.flows.len() >= MAX_FLOWS && !self.flows.contains_key(&flow) {
            flow = "others".to_owned();
        }
        *self.flows.entry(flow).or_default() += 1;
    }

    /// Returns the number of well-formed packets.
    pub(crate) const fn well_formed(&self) -> u64 {
        self.packets - self.malformed
    }

    /// Reports whether a packet is damaged.
    pub(crate) const fn has_damage(&self) -> bool {
        self.icrc_bad + self.damaged > 0
    }

    pub(crate) fn write_json(&self, out: &mut dyn Write) -> Result<(), CommandError> {
        serde_json::to_writer(&mut *out, self)?;
        writeln!(out)?;
        Ok(())
    }

    /// Writes the last line of a listing; with `tables`, the tables of opcodes and flows before it.
    pub(crate) fn write_text(&self, out: &mut dyn Write, tables: bool) -> io::Result<()> {
        if tables {
            for (title, table) in [("flow", &self.flows), ("opcode", &self.opcodes)] {
                writeln!(out, "{:>10}  {title}", "packets")?;
                for (name, count) in table {
                    writeln!(out, "{count:>10}  {name}")?;
                }
                writeln!(out)?;
            }
        }
        write!(
            out,
            "{} RoCE packets with {} bytes of payload in {}.{:06} s; ICRC: {} ok, {} bad",
            self.packets,
            self.payload_bytes,
            self.duration_ns / 1_000_000_000,
            self.duration_ns % 1_000_000_000 / 1000,
            self.icrc_ok,
            self.icrc_bad
        )?;
        if self.icrc_right_for_other_ip_id > 0 {
            write!(out, " ({} right for another IP ID)", self.icrc_right_for_other_ip_id)?;
        }
        if self.icrc_not_captured > 0 {
            write!(out, ", {} not captured", self.icrc_not_captured)?;
        }
        for (count, what) in [
            (self.lost, "lost by a fault plan"),
            (self.malformed, "malformed"),
            (self.cut, "frames cut by the capture"),
            (self.others, "other frames skipped"),
        ] {
            if count > 0 {
                write!(out, "; {count} {what}")?;
            }
        }
        writeln!(out)
    }
}
