//! Events as text, for logs and reports.

use core::fmt;

use super::QpEvent;
use crate::types::{WcStatus, WorkCompletion};

impl fmt::Display for QpEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QpEvent::StateChanged { from, to, .. } => write!(f, "state {} to {}", from.name(), to.name()),
            QpEvent::SourcePortReplaced { computed, given } => {
                write!(f, "send from UDP port {given}: {computed} is not to be had")
            }
            QpEvent::SendPosted { wr_id, opcode, length_bytes, psn, packet_count, .. } => write!(
                f,
                "post {}  wr_id {wr_id:#x}  psn {}  {packet_count} packets  {length_bytes} B",
                opcode.name(),
                psn.value()
            ),
            QpEvent::RecvPosted { request } => {
                let bytes: u64 = request.sges.iter().map(|sge| u64::from(sge.length)).sum();
                write!(f, "post RECV  wr_id {:#x}  {bytes} B", request.wr_id)
            }
            QpEvent::PacketSent { identity, opcode, psn, length_bytes, .. } => {
                write!(f, "send {opcode}  psn {}  {length_bytes} B  {identity}", psn.value())
            }
            QpEvent::PacketReceived { opcode, psn, length_bytes, .. } => {
                write!(f, "receive {opcode}  psn {}  {length_bytes} B", psn.value())
            }
            QpEvent::Acknowledged { before } => write!(f, "acknowledged before psn {}", before.value()),
            QpEvent::Measured { rtt_ns, window_packets, in_flight_packets } => {
                write!(f, "{in_flight_packets} packets in flight  window {window_packets}")?;
                match rtt_ns {
                    Some(ns) => write!(f, "  round trip {ns} ns"),
                    None => Ok(()),
                }
            }
            QpEvent::RateChanged { rate, target, .. } => {
                write!(f, "rate {rate} bit/s  target {target} bit/s")
            }
            QpEvent::Dropped { reason, opcode, psn } => {
                write!(f, "drop {opcode}  psn {}  {reason:?}", psn.value())
            }
            QpEvent::OutOfSequence { psn, expected } => {
                write!(f, "out of sequence  psn {}  expected {}", psn.value(), expected.value())
            }
            QpEvent::DuplicateRequest { opcode, psn } => write!(f, "repeated {opcode}  psn {}", psn.value()),
            QpEvent::NakSent { syndrome, psn } => write!(f, "send {syndrome:?}  psn {}", psn.value()),
            QpEvent::NakReceived { syndrome, psn } => write!(f, "receive {syndrome:?}  psn {}", psn.value()),
            QpEvent::ImpliedNak { psn } => write!(f, "answer missing  psn {}", psn.value()),
            QpEvent::CongestionMarked { psn } => write!(f, "congestion marked  psn {}", psn.value()),
            QpEvent::SentAgain { psn, packet_count, .. } => {
                write!(f, "send again  psn {}  {packet_count} packets", psn.value())
            }
            QpEvent::TimedOut { psn, retries_left, .. } => {
                write!(f, "timer expired  psn {}  {retries_left} retries left", psn.value())
            }
            QpEvent::FellSilent { psn } => write!(f, "peer silent  psn {}", psn.value()),
            QpEvent::PeerStarved { psn } => write!(f, "peer without a processor  psn {}", psn.value()),
            QpEvent::ReceiverNotReady { psn, retries_left, .. } => {
                write!(f, "receiver not ready  psn {}  {retries_left} retries left", psn.value())
            }
            QpEvent::Completed { completion, cq, .. } => {
                let WorkCompletion { wr_id, status, opcode, byte_len, .. } = completion;
                let direction = if opcode.is_recv() { "RECV" } else { "SEND" };
                write!(f, "complete {direction}  wr_id {wr_id:#x}  {}  cq {cq}", status.name())?;
                if *status == WcStatus::Success { write!(f, "  {byte_len} B") } else { Ok(()) }
            }
            QpEvent::RemoteAccess { class, range, .. } => {
                write!(f, "peer {class:?}  {} B at {:#x}", range.length_bytes, range.address)
            }
            QpEvent::RemoteWriteEnded { .. } => f.write_str("peer Write ends"),
            QpEvent::Logged(cause) => write!(f, "{cause}"),
            QpEvent::CnpSent => f.write_str("send CNP"),
            QpEvent::CnpReceived => f.write_str("receive CNP"),
            QpEvent::PathsMade { plane, paths, .. } => write!(f, "{paths} paths in plane {plane}"),
            QpEvent::PathChanged { source_port, plane, state } => {
                write!(f, "path {source_port} of plane {plane}  state {state}")
            }
            QpEvent::PacketLost { psn, source_port, proof, .. } => {
                write!(f, "lost  psn {}  path {source_port}  {proof:?}", psn.value())
            }
            QpEvent::RuleBroken(breach) => write!(f, "queue pair {breach}"),
        }
    }
}
