//! The rules of a plan, as TOML.

use std::io::{self, Write};
use std::net::IpAddr;

use pumice_device::faults::OrdinalField;
use pumice_transport::wire::rnr_timer_ns;
use serde_json::Value;

/// A packet that others overtook waits for them no longer than this.
const OVERTAKEN_WITHIN_NS: u64 = 10_000_000;

/// Which packet.
#[derive(Debug, Clone)]
pub(super) struct Key {
    pub(super) peer: IpAddr,
    pub(super) service: &'static str,
    pub(super) side: &'static str,
    pub(super) qp: u32,
    pub(super) opcode: &'static str,
    pub(super) message: u64,
    pub(super) packet: u64,
    pub(super) transmission: u32,
    /// Of a datagram or a message of connection management.
    pub(super) of_peer: Option<OfPeer>,
}

/// What names a packet besides where one queue pair has several peers.
#[derive(Debug, Clone, Copy)]
pub(super) struct OfPeer {
    /// The ordinal of the connection.
    pub(super) connection: u32,
    /// The ordinal of the destination queue pair among those of the peer's address.
    pub(super) destination: u32,
}

/// What happened to it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Deed {
    Drop,
    Corrupt,
    Duplicate {
        copies: u8,
    },
    Reorder {
        packets: u16,
    },
    Delay {
        ns: u64,
    },
    /// The peer answered it with an RNR NAK, whose timer has this code.
    NotReady {
        timer_code: u8,
    },
}

impl Deed {
    /// The kind of rule, and its own fields.
    fn in_a_plan(self) -> (&'static str, String) {
        match self {
            Deed::Drop => ("drop", String::new()),
            Deed::Corrupt => ("corrupt", String::new()),
            Deed::Duplicate { copies } => ("duplicate", format!("copies = {copies}\n")),
            Deed::Reorder { packets } => ("reorder", format!("packets = {packets}\n")),
            Deed::Delay { ns } => ("delay", format!("time = \"{ns}ns\"\n")),
            Deed::NotReady { timer_code } => {
                ("answer", format!("with = \"rnr\"\ntimer = \"{}ns\"\n", rnr_timer_ns(timer_code)))
            }
        }
    }

    /// Its fields in a line of a report. `None`: the capture does not say enough of it.
    fn in_a_report(self) -> Option<Vec<(&'static str, Value)>> {
        Some(match self {
            Deed::Drop => vec![("lost", true.into())],
            Deed::Duplicate { copies } => vec![("copies", copies.into())],
            Deed::Delay { ns } => vec![("delay_ns", ns.into())],
            Deed::NotReady { timer_code } => {
                vec![("lost", true.into()), ("answered", "rnr".into()), ("timer_code", timer_code.into())]
            }
            Deed::Reorder { packets } => {
                vec![("behind_packets", packets.into()), ("behind_ns", OVERTAKEN_WITHIN_NS.into())]
            }
            Deed::Corrupt => return None,
        })
    }
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

    /// What happened without a plan, as lines of a report of the process with this tag; `device`: the one
    /// that sent, if the process has several.
    pub(super) fn lines(&self, rule: &str, tag: &str, device: Option<&str>) -> Vec<String> {
        let line = |done: &Done| {
            let Key { service, side, qp, opcode, message, packet, transmission, .. } = &done.key;
            let mut fields = serde_json::json!({
                "rule": rule, "tag": tag, "service": service, "qp": OrdinalField(*qp), "connection": 0,
                "side": side, "opcode": opcode, "message": message, "packet": packet,
                "transmission": transmission,
            });
            if let (Some(OfPeer { connection, destination }), Some(fields)) =
                (done.key.of_peer, fields.as_object_mut())
            {
                fields.insert("connection".to_owned(), serde_json::json!(OrdinalField(connection)));
                fields.insert("peer".to_owned(), done.key.peer.to_string().into());
                if destination > 0 {
                    fields.insert("destination".to_owned(), destination.into());
                }
            }
            if let (Some(device), Some(fields)) = (device, fields.as_object_mut()) {
                fields.insert("device".to_owned(), device.into());
            }
            let own = done.deed.in_a_report()?.into_iter().map(|(name, value)| (name.to_owned(), value));
            fields.as_object_mut()?.extend(own);
            Some(fields.to_string())
        };
        self.0.iter().filter(|done| !done.is_planned).filter_map(line).collect()
    }

    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        for (number, Done { deed, key, .. }) in self.0.iter().enumerate() {
            let (kind, fields) = deed.in_a_plan();
            writeln!(out, "\n[[rule]]\nname = \"{kind}-{}\"\ndo = \"{kind}\"", number + 1)?;
            write!(out, "{fields}")?;
            let Key { peer, service, side, qp, opcode, message, packet, transmission, .. } = key;
            writeln!(out, "peer = \"{peer}\"\nservice = \"{service}\"\nside = \"{side}\"\nqp = {qp}")?;
            writeln!(out, "opcode = \"{opcode}\"\nmessage = \"{message}\"")?;
            writeln!(out, "packet = {packet}\ntransmission = {transmission}")?;
        }
        Ok(())
    }
}
