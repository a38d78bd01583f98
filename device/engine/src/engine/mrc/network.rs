//! The network as an MRC queue pair sees it: packets of each entropy value leave on a path of its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use pumice_model::port::batch::PortLimits;
use pumice_transport::event::{OutgoingPacket, PacketIdentity, PacketSide, QpEvent, Topic};
use pumice_transport::host::{Host, QpContext, Transmit as _};
use pumice_transport::mrc::congestion::{CongestionControl, LossSample, SackSample};
use pumice_transport::mrc::entropy::{DscpTable, MrcNetwork, MrcOutgoingPacket, MrcSent, TrafficClass};
use pumice_transport::mrc::wire::MrcOpcode;
use pumice_transport::path::{Flow, Path};
use pumice_transport::types::QpType;
use pumice_transport::wire::{Opcode, Operation, Qpn, Service};

use crate::engine::batch::BatchSink;

/// Largest number of paths that are remembered. A peer chooses those of answers, so they are bounded.
const MOST_WAYS: usize = 2048;
/// The opcodes by which fault plans know data, and every other packet.
const DATA: Opcode = Opcode::new(Service::Uc, Operation::WriteOnly);
const CONTROL: Opcode = Opcode::new(Service::Rc, Operation::Acknowledge);
/// ECN bits of packets that switches may mark.
const ECN_CAPABLE: u8 = 2;

/// The paths of a queue pair, by UDP source port and traffic class.
#[derive(Debug)]
pub(crate) struct MrcWays {
    base: Path,
    classes: DscpTable,
    known: BTreeMap<(u16, u8), Arc<Path>>,
}

impl MrcWays {
    /// Returns the paths of a queue pair whose address vector leads to `base`.
    pub(crate) const fn new(base: Path, classes: DscpTable) -> MrcWays {
        MrcWays { base, classes, known: BTreeMap::new() }
    }

    /// Returns the path of the address vector.
    pub(crate) const fn base(&self) -> &Path {
        &self.base
    }

    /// Returns the IP traffic class of a class of packets. Data that is not to be trimmed has the one that
    /// the program gave.
    const fn traffic_class(&self, class: TrafficClass) -> u8 {
        match class {
            TrafficClass::NoTrim => self.base.traffic_class & !3 | ECN_CAPABLE,
            TrafficClass::Control => self.classes.dscp(class) << 2,
            _ => self.classes.dscp(class) << 2 | ECN_CAPABLE,
        }
    }

    fn path(&mut self, departure: &MrcOutgoingPacket) -> &Arc<Path> {
        let key = (departure.entropy.source_port(), self.traffic_class(departure.class));
        if self.known.len() >= MOST_WAYS && !self.known.contains_key(&key) {
            self.known.clear();
        }
        let base = &self.base;
        self.known.entry(key).or_insert_with(|| {
            let (source_port, traffic_class) = key;
            Arc::new(Path { flow: Flow { source_port, ..base.flow }, traffic_class, ..base.clone() })
        })
    }
}

/// The network of one turn of a queue pair.
pub(crate) struct MrcOutlet<'a, 'b> {
    pub(crate) sink: &'a mut BatchSink<'b>,
    pub(crate) ways: &'a mut MrcWays,
    pub(crate) peer: Qpn,
    /// The path of the packet that was begun last.
    pub(crate) path: Option<Arc<Path>>,
    /// Number of control packets that were sent before, for fault plans.
    pub(crate) controls: &'a mut u64,
}

impl MrcNetwork for MrcOutlet<'_, '_> {
    fn begin(&mut self, departure: &MrcOutgoingPacket, length_bytes: usize) -> Option<&mut [u8]> {
        let path = self.ways.path(departure);
        if self.path.as_ref().is_none_or(|known| !Arc::ptr_eq(known, path)) {
            self.path = Some(Arc::clone(path));
        }
        self.sink.begin(path, self.peer, length_bytes)
    }

    fn seal(&mut self) {
        self.sink.seal();
    }

    fn abandon(&mut self) {
        self.sink.abandon();
    }

    fn sent<H: Host>(&mut self, context: &QpContext, sent: &MrcSent, host: &mut H) {
        let Some(path) = &self.path else { return };
        let is_data = sent.opcode.is_write();
        if host.listens(Topic::Packets) {
            host.emit_uncounted(
                context,
                &QpEvent::PacketSent {
                    identity: PacketIdentity {
                        side: side_of(sent.opcode),
                        transmission: sent.transmission,
                        ..identity_of(sent, 0)
                    },
                    opcode: Opcode::from_byte(sent.opcode.byte()),
                    psn: sent.psn,
                    length_bytes: sent.length_bytes as u32,
                    destination: self.peer,
                    path,
                },
            );
        }
        if !host.decides() {
            return;
        }
        let before = *self.controls;
        *self.controls += u64::from(!is_data);
        let departure = OutgoingPacket {
            identity: identity_of(sent, before),
            connection: 0,
            qp_type: QpType::Uc,
            opcode: if is_data { DATA } else { CONTROL },
            syndrome: None,
            psn_count: 1,
            length_bytes: sent.length_bytes as u32,
            payload_bytes: sent.payload_bytes as u32,
            path,
            destination: self.peer,
        };
        let fate = host.fate(context, &departure).of_packet();
        if !fate.is_ordinary() {
            self.sink.apply_fate(fate);
        }
    }
}

/// Returns the side that sends packets of an opcode.
const fn side_of(opcode: MrcOpcode) -> PacketSide {
    match opcode {
        MrcOpcode::ProbeRequest => PacketSide::Notification,
        _ if opcode.is_write() => PacketSide::Requester,
        _ => PacketSide::Responder,
    }
}

/// Returns the identity of a packet for fault plans. Each transmission of data is a packet of its own,
/// because lost ones are sent again one by one; `controls` counts the other packets.
fn identity_of(sent: &MrcSent, controls: u64) -> PacketIdentity {
    let is_data = sent.opcode.is_write();
    let number = if is_data { sent.order } else { controls };
    PacketIdentity {
        side: if is_data { PacketSide::Requester } else { PacketSide::Notification },
        message: sent.message,
        relative_psn: (number & 0xff_ffff) as u32,
        transmission: 1,
    }
}

/// A window that the peer's receive buffer has room for, beside that of an algorithm: a host has less room
/// than an adapter, and what overflows there is lost.
#[derive(Debug)]
pub(crate) struct BufferWindow {
    room_bytes: u64,
    algorithm: Box<dyn CongestionControl>,
}

impl BufferWindow {
    /// Returns the window for packets of `packet_bytes` bytes, within the limits of a port.
    pub(crate) fn new(
        limits: &PortLimits,
        packet_bytes: usize,
        algorithm: Box<dyn CongestionControl>,
    ) -> BufferWindow {
        let packets = limits.receive_buffer_bytes as u64 / 2 / limits.packet_cost.of(packet_bytes).max(1);
        BufferWindow { room_bytes: packets.max(4) * packet_bytes as u64, algorithm }
    }
}

impl CongestionControl for BufferWindow {
    fn window_bytes(&self) -> u64 {
        self.algorithm.window_bytes().min(self.room_bytes)
    }

    fn handle_sack(&mut self, sample: &SackSample) {
        self.algorithm.handle_sack(sample);
    }

    fn handle_trim(&mut self, sample: &LossSample) {
        self.algorithm.handle_trim(sample);
    }

    fn handle_loss(&mut self, sample: &LossSample) {
        self.algorithm.handle_loss(sample);
    }
}
