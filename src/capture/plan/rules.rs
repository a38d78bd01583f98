//! The rules of a plan, as TOML.

use std::io::{self, Write};
use std::net::IpAddr;

use pumice_device::faults::OrdinalField;
use pumice_transport::wire::rnr_timer_ns;
use serde_json::Value;

/// Longest time for which a packet that others overtook waits for them, in ns.
const OVERTAKEN_WITHIN_NS: u64 = 10_000_000;

/// The key of a rule: the packet that it applies to.
#[derive(Debug, Clone)]
pub(super) struct RuleKey {
    pub(super) peer: IpAddr,
    pub(super) service: &'static str,
    pub(super) side: &'static str,
    pub(super) qp: u32,
    pub(super) opcode: &'static str,
    pub(super) message: u64,
    pub(super) packet: u64,
    pub(super) transmission: u32,
    /// Peer, for a datagram or a message of connection management.
    pub(super) peer_key: Option<PeerKey>,
}

/// The additional key of a packet whose queue pair has several peers.
#[derive(Debug, Clone, Copy)]
pub(super) struct PeerKey {
    /// Ordinal of the connection.
    pub(super) connection: u32,
    /// Ordinal of the destination queue pair among those of the peer's address.
    pub(super) destination: u32,
}

/// The fault that happened to a packet.
#[derive(Debug, Clone, Copy)]
pub(super) enum PacketFault {
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
    /// The peer answered the packet with an RNR NAK that has this timer code.
    NotReady {
        timer_code: u8,
    },
}

impl PacketFault {
    /// Returns the kind of rule and its own fields, for a plan.
    fn plan_fields(self) -> (&'static str, String) {
        match self {
            PacketFault::Drop => ("drop", String::new()),
            PacketFault::Corrupt => ("corrupt", String::new()),
            PacketFault::Duplicate { copies } => ("duplicate", format!("copies = {copies}\n")),
            PacketFault::Reorder { packets } => ("reorder", format!("packets = {packets}\n")),
            PacketFault::Delay { ns } => ("delay", format!("time = \"{ns}ns\"\n")),
            PacketFault::NotReady { timer_code } => {
                ("answer", format!("with = \"rnr\"\ntimer = \"{}ns\"\n", rnr_timer_ns(timer_code)))
            }
        }
    }

    /// Returns its fields in a line of a report; `None` if the capture does not have enough detail.
    fn report_fields(self) -> Option<Vec<(&'static str, Value)>> {
        Some(match self {
            PacketFault::Drop => vec![("lost", true.into())],
            PacketFault::Duplicate { copies } => vec![("copies", copies.into())],
            PacketFault::Delay { ns } => vec![("delay_ns", ns.into())],
            PacketFault::NotReady { timer_code } => {
                vec![("lost", true.into()), ("answered", "rnr".into()), ("timer_code", timer_code.into())]
            }
            PacketFault::Reorder { packets } => {
                vec![("behind_packets", packets.into()), ("behind_ns", OVERTAKEN_WITHIN_NS.into())]
            }
            PacketFault::Corrupt => return None,
        })
    }
}

/// An effect of the network on a packet.
#[derive(Debug)]
pub(crate) struct TransitFault {
    /// Line of a report.
    pub(crate) line: String,
    /// The packet may have arrived as well: all that is known is that its sender sent it again.
    pub(crate) is_presumed: bool,
}

/// The rules that have been collected.
#[derive(Debug, Default)]
pub(super) struct FaultRules(Vec<FaultRecord>);

/// A fault that happened to a packet.
#[derive(Debug)]
struct FaultRecord {
    fault: PacketFault,
    key: RuleKey,
    /// A fault plan did it, and has reported it.
    is_planned: bool,
    /// The packet may have arrived as well: all that is known is that its sender sent it again.
    is_presumed: bool,
}

impl FaultRules {
    pub(super) fn add(&mut self, fault: PacketFault, key: RuleKey, is_planned: bool) {
        self.0.push(FaultRecord { fault, key, is_planned, is_presumed: false });
    }

    /// Adds the loss of a packet that its sender sent again, and that may have arrived as well.
    pub(super) fn presume_lost(&mut self, key: RuleKey, is_planned: bool) {
        self.0.push(FaultRecord { fault: PacketFault::Drop, key, is_planned, is_presumed: true });
    }

    /// Returns the faults that no plan made, as lines of a report of the process with this tag. `device` is
    /// the device that sent the packets, if the process has several.
    pub(super) fn lines(&self, rule: &str, tag: &str, device: Option<&str>) -> Vec<TransitFault> {
        let line = |record: &FaultRecord| {
            let RuleKey { service, side, qp, opcode, message, packet, transmission, .. } = &record.key;
            let mut fields = serde_json::json!({
                "rule": rule, "tag": tag, "service": service, "qp": OrdinalField(*qp), "connection": 0,
                "side": side, "opcode": opcode, "message": message, "packet": packet,
                "transmission": transmission,
            });
            if let (Some(PeerKey { connection, destination }), Some(fields)) =
                (record.key.peer_key, fields.as_object_mut())
            {
                fields.insert("connection".to_owned(), serde_json::json!(OrdinalField(connection)));
                fields.insert("peer".to_owned(), record.key.peer.to_string().into());
                if destination > 0 {
                    fields.insert("destination".to_owned(), destination.into());
                }
            }
            if let (Some(device), Some(fields)) = (device, fields.as_object_mut()) {
                fields.insert("device".to_owned(), device.into());
            }
            let own = record.fault.report_fields()?.into_iter().map(|(name, value)| (name.to_owned(), value));
            fields.as_object_mut()?.extend(own);
            Some(TransitFault { line: fields.to_string(), is_presumed: record.is_presumed })
        };
        self.0.iter().filter(|record| !record.is_planned).filter_map(line).collect()
    }

    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        for (number, FaultRecord { fault, key, .. }) in self.0.iter().enumerate() {
            let (kind, fields) = fault.plan_fields();
            writeln!(out, "\n[[rule]]\nname = \"{kind}-{}\"\ndo = \"{kind}\"", number + 1)?;
            write!(out, "{fields}")?;
            let RuleKey { peer, service, side, qp, opcode, message, packet, transmission, .. } = key;
            writeln!(out, "peer = \"{peer}\"\nservice = \"{service}\"\nside = \"{side}\"\nqp = {qp}")?;
            writeln!(out, "opcode = \"{opcode}\"\nmessage = \"{message}\"")?;
            writeln!(out, "packet = {packet}\ntransmission = {transmission}")?;
        }
        Ok(())
    }
}
