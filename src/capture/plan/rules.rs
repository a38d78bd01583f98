//! The rules of a plan, as TOML.

use std::io::{self, Write};
use std::net::IpAddr;

/// Which packet.
#[derive(Debug, Clone)]
pub(super) struct Key {
    pub(super) peer: IpAddr,
    pub(super) service: &'static str,
    pub(super) side: &'static str,
    pub(super) qp: u32,
    pub(super) opcode: &'static str,
    /// A number or a range.
    pub(super) message: String,
    /// None: any packet of the message.
    pub(super) packet: Option<(u64, u32)>,
}

/// What happened to it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Deed {
    Drop,
    Corrupt,
    Duplicate { copies: u8 },
    Reorder { packets: u16 },
}

/// The rules so far.
#[derive(Debug, Default)]
pub(super) struct Rules(Vec<Done>);

/// What happened to a packet.
#[derive(Debug)]
struct Done {
    deed: Deed,
    key: Key,
    /// A fault plan did it, and has said so.
    is_planned: bool,
}

impl Rules {
    pub(super) fn add(&mut self, deed: Deed, key: Key, is_planned: bool) {
        self.0.push(Done { deed, key, is_planned });
    }

    /// What was lost without a plan, as lines of a report of the process with this tag.
    pub(super) fn lines(&self, rule: &str, tag: &str) -> Vec<String> {
        let lost = self.0.iter().filter(|done| matches!(done.deed, Deed::Drop) && !done.is_planned);
        let line = |done: &Done| {
            let Key { service, side, qp, opcode, message, packet, .. } = &done.key;
            let (packet, transmission) = (*packet)?;
            let message: u64 = message.parse().ok()?;
            let fields = serde_json::json!({
                "rule": rule, "tag": tag, "service": service, "qp": qp, "connection": 0, "side": side,
                "opcode": opcode, "message": message, "packet": packet, "transmission": transmission,
                "lost": true,
            });
            Some(fields.to_string())
        };
        lost.filter_map(line).collect()
    }

    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        for (number, Done { deed, key, .. }) in self.0.iter().enumerate() {
            let (kind, field) = match deed {
                Deed::Drop => ("drop", None),
                Deed::Corrupt => ("corrupt", None),
                Deed::Duplicate { copies } => ("duplicate", Some(format!("copies = {copies}"))),
                Deed::Reorder { packets } => ("reorder", Some(format!("packets = {packets}"))),
            };
            writeln!(out, "\n[[rule]]\nname = \"{kind}-{}\"\ndo = \"{kind}\"", number + 1)?;
            if let Some(field) = field {
                writeln!(out, "{field}")?;
            }
            let Key { peer, service, side, qp, opcode, message, packet } = key;
            writeln!(out, "peer = \"{peer}\"\nservice = \"{service}\"\nside = \"{side}\"\nqp = {qp}")?;
            writeln!(out, "opcode = \"{opcode}\"\nmessage = \"{message}\"")?;
            if let Some((packet, transmission)) = packet {
                writeln!(out, "packet = {packet}\ntransmission = {transmission}")?;
            }
        }
        Ok(())
    }
}
