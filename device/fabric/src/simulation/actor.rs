//! A simulated process: it shares the port as the library's engine would, with the real queue pair 1.

use std::cell::RefCell;
use std::net::IpAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::UdpConfig;
use crate::gsi::{self, BindingId, CmChannel, Gsi};
use pumice_model::port::Port;
use pumice_model::port::batch::{GsoBatch, ReceivedBatch};
use pumice_model::port::directory::ServiceEntry;
use pumice_model::port::group::ProcessGroup;
use pumice_platform::clock::Random;
use pumice_transport::cm::{BacklogOverflow, CmConfig, CmEvent, ListenScope, Served};
use pumice_transport::mad::{CmMessage, CommId, GSI_Q_KEY, PrivateData, ServiceId, SidrReq};
use pumice_transport::path::{Flow, Path as NetworkPath};
use pumice_transport::types::Gid;
use pumice_transport::wire::{
    Bth, Deth, Headers, Opcode, Operation, Packet as WirePacket, ProcessIndex, Psn, Qpn, Service,
};

use super::domains::Domains;
use super::kernel::{Pid, SimProcessState};
use super::ledger::{Ledger, Phase};
use super::sockets::PAYLOAD;
use super::{TaskWait, block, observe};
use crate::members::error::SharingError;
use crate::shared_port::{SharedPort, SharedPortConfig};

pub(super) const PORT: u16 = 4791;
/// Offset of the number in a data packet.
const NUMBER_AT: usize = 8;
const DATA_BYTES: usize = 24;
/// Offset of the private data in the packet of a SIDR_REQ.
const REQUEST_NUMBER_AT: usize = 20 + 24 + 16;
/// First of the services that processes may bind. They are none of rdma_cm's, whose requests say more.
const FIRST_SERVICE: u64 = 0xabcd_0000;
const SERVICES: u64 = 4;
/// Number of batches that a process takes at a time.
const BATCHES_AT_ONCE: usize = 16;

pub(super) type SharedLedger = Rc<RefCell<Ledger>>;

/// Plan of a process's life.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) address: IpAddr,
    pub(super) folder: PathBuf,
    /// The process ends by itself.
    pub(super) leaves: bool,
    /// The process uses the shared domain once, beside its other work.
    pub(super) tidies: bool,
}

/// Returns a packet for a queue pair of the process with this index.
pub(super) fn data(index: ProcessIndex, number: u64) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0, 0, 0, index.value(), 0, 2];
    bytes.extend(number.to_le_bytes());
    bytes.extend(PAYLOAD);
    bytes
}

/// Returns a packet that asks queue pair 1 for a service.
pub(super) fn request(service_id: ServiceId, number: u64) -> Vec<u8> {
    let mut said = number.to_le_bytes().to_vec();
    said.extend(PAYLOAD);
    let private_data = PrivateData::new(&said).unwrap();
    let ask = SidrReq { request_id: CommId(number as u32), pkey: 0xffff, service_id, private_data };
    let opcode = Opcode::new(Service::Ud, Operation::SendOnly);
    let mut headers = Headers::new(Bth::new(opcode, Qpn::GSI, Psn::new(0)));
    headers.deth = Some(Deth { qkey: GSI_Q_KEY, source: Qpn::GSI });
    let mut out = vec![0; gsi::PACKET_BYTES];
    headers.emit_packet(&CmMessage::SidrReq(ask).emit(number), &mut out);
    out
}

fn number_at(packet: &[u8], at: usize) -> Option<u64> {
    packet.get(at..)?.first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes))
}

/// Returns the numbers of the packets in a batch, or in a datagram with a batch behind a header.
pub(super) fn numbers(bytes: &[u8]) -> Vec<u64> {
    let marks = bytes.windows(PAYLOAD.len()).enumerate().filter(|(_, part)| *part == PAYLOAD);
    marks.filter_map(|(at, _)| number_at(bytes, at.checked_sub(8)?)).collect()
}

/// Returns the simulated time.
pub(super) fn now_ns() -> u64 {
    observe(|kernel, _| kernel.now_ns).unwrap_or(0)
}

/// Runs a process from its beginning to its end.
pub(super) fn live(pid: Pid, plan: &Plan, ledger: &SharedLedger) {
    let udp = UdpConfig { port: PORT, ..UdpConfig::new(plan.address) };
    let config = SharedPortConfig { folder: Some(plan.folder.clone()), ..SharedPortConfig::new(udp) };
    let begun_ns = now_ns();
    let port = match SharedPort::open(&config) {
        Ok(port) => port,
        Err(error) => return refused(pid, &error, begun_ns, ledger),
    };
    let index = port.process();
    ledger.borrow_mut().opened(pid, index, plan.address, port.counters());
    let gsi = Gsi::new(CmConfig::new(7), index, u64::from(pid), Arc::default());
    let channel = Arc::new(CmChannel::new().unwrap());
    let random = Random::new(plan.seed);
    let domains = Domains::new(pid, Rc::clone(ledger));
    let ledger = Rc::clone(ledger);
    let mut process =
        ActorProcess { pid, plan, port, gsi, channel, random, bound: Vec::new(), domains, ledger };
    if plan.tidies {
        process.domains.open(&process.port);
    }
    process.work();
    process.close();
}

/// Checks that opening was refused only for a true reason.
fn refused(pid: Pid, error: &SharingError, begun_ns: u64, ledger: &SharedLedger) {
    ledger.borrow_mut().tally.refused += 1;
    let is_holder_stopped =
        observe(|kernel, _| kernel.registry_is_held_by_a_stopped_process()).unwrap_or(false);
    let waited_ns = now_ns() - begun_ns;
    let is_true = match error {
        SharingError::Locked { stopped: Some(pid), .. } => {
            observe(|kernel, _| kernel.state(*pid) == SimProcessState::Stopped).unwrap_or(false)
        }
        // The child of a fork holds the lock, which counts as alive.
        SharingError::Locked { stopped: None, .. } => true,
        _ => false,
    };
    if !(is_true && is_holder_stopped) {
        ledger.borrow_mut().violate(format!("process {pid} was refused after {waited_ns} ns: {error}"));
    }
}

struct ActorProcess<'a> {
    pid: Pid,
    plan: &'a Plan,
    // In the order of closing.
    domains: Domains,
    port: SharedPort,
    gsi: Gsi,
    channel: Arc<CmChannel>,
    random: Random,
    bound: Vec<(BindingId, ServiceId)>,
    ledger: SharedLedger,
}

impl ActorProcess<'_> {
    fn work(&mut self) {
        loop {
            let phase = self.ledger.borrow().phase;
            match phase {
                Phase::Close => return,
                Phase::Settle => self.wait(),
                Phase::Work => match self.random.below(20) {
                    0..=2 => self.send(),
                    3 => self.bind(),
                    4 => self.unbind(),
                    5..=8 => self.domains.act(&mut self.random, &mut self.port),
                    9 if self.plan.leaves && self.random.below(8) == 0 => return,
                    10..=11 => self.ask(),
                    12 => block(TaskWait::For(Duration::from_micros(self.random.below(3_000)))),
                    _ => self.wait(),
                },
            }
            self.look();
        }
    }

    fn close(mut self) {
        self.ledger.borrow_mut().leaving(self.pid);
        self.domains.close();
        self.gsi.unbind_all(now_ns(), &mut self.port);
        drop(self.port);
        self.ledger.borrow_mut().process_ended(self.pid);
    }

    /// Sleeps until something comes, as the background thread does.
    fn wait(&mut self) {
        let pause = Duration::from_micros(1_000 + self.random.below(9_000));
        block(TaskWait::Readable(self.port.descriptors(), pause));
        self.port.woken();
    }

    /// Takes everything that has come.
    fn look(&mut self) {
        for _ in 0..BATCHES_AT_ONCE {
            let (pid, ledger, gsi) = (self.pid, &self.ledger, &mut self.gsi);
            let taken = self.port.receive(now_ns(), &mut |received| accept(pid, ledger, gsi, received));
            if !taken {
                break;
            }
        }
        let now_ns = now_ns();
        self.gsi.read_mads(now_ns, &mut self.port);
        self.gsi.forward_detained(now_ns, &mut self.port);
        self.gsi.expire(now_ns, &mut self.port);
        while let Some(event) = self.gsi.take_event(&self.channel) {
            if let CmEvent::SidrRequest { id, request, .. } = event {
                let number = number_at(&request.private_data.0, 0).unwrap_or(0);
                self.ledger.borrow_mut().request_arrived(self.pid, number);
                let _ = self.gsi.call(now_ns, |cm| cm.destroy(id, now_ns));
            }
        }
        while self.gsi.cm.poll_transmit().is_some() {}
    }

    fn send(&mut self) {
        let indices = self.ledger.borrow().indices();
        let (index, destination) = match indices.get(self.random.below(indices.len() as u64 + 1) as usize) {
            Some(known) => *known,
            None => (ProcessIndex::new(1 + self.random.below(12) as u8), self.plan.address),
        };
        let count = 1 + self.random.below(3);
        let numbers = self.ledger.borrow_mut().sends(Some(self.pid), index, count);
        let bytes: Vec<u8> = numbers.clone().flat_map(|number| data(index, number)).collect();
        if !self.transmit(destination, &bytes, DATA_BYTES) {
            self.ledger.borrow_mut().lost(&bytes);
        }
        self.ledger.borrow_mut().has_sent(numbers);
    }

    /// Asks a service of this host, as a client that connects to a server beside it.
    fn ask(&mut self) {
        let services = self.ledger.borrow().services();
        let chosen = services.get(self.random.below(services.len() as u64) as usize).copied();
        let Some((service, destination, listener)) = chosen.filter(|(.., listener)| *listener != self.pid)
        else {
            return;
        };
        let number = self.ledger.borrow_mut().asks(service, listener, now_ns(), Some(self.pid));
        let bytes = request(service, number);
        if !self.transmit(destination, &bytes, bytes.len()) {
            self.ledger.borrow_mut().lost(&bytes);
        }
        self.ledger.borrow_mut().record_request(number);
    }

    fn transmit(&mut self, destination: IpAddr, bytes: &[u8], segment_bytes: usize) -> bool {
        let flow = Flow { source: self.plan.address, destination, source_port: PORT, destination_port: PORT };
        let path = NetworkPath { flow, traffic_class: 0, hop_limit: 64, flow_label: 0 };
        self.port.transmit(now_ns(), &GsoBatch::new(&path, segment_bytes, bytes)).is_ok()
    }

    fn bind(&mut self) {
        let service_id = ServiceId(FIRST_SERVICE + self.random.below(SERVICES));
        let scope = if self.random.below(2) == 0 {
            ListenScope::Everywhere
        } else {
            ListenScope::At(Gid::from(self.plan.address))
        };
        let entry = ServiceEntry { service_id, mask: u64::MAX, scope };
        let Ok(id) = self.gsi.bind(&entry, &mut self.port) else { return };
        let (channel, port) = (&self.channel, &mut self.port);
        if self.gsi.listen(id, Served::Datagrams, 64, BacklogOverflow::Reject, channel, port).is_ok() {
            self.ledger.borrow_mut().bound(self.pid, service_id);
            self.bound.push((id, service_id));
        }
    }

    fn unbind(&mut self) {
        if self.bound.is_empty() || self.random.below(4) != 0 {
            return;
        }
        let (id, service_id) = self.bound.remove(0);
        self.ledger.borrow_mut().unbinds(self.pid, service_id);
        let _ = self.gsi.unbind(id, now_ns(), &mut self.port);
    }
}

/// Handles a batch as the engine does: data packets are for queue pairs, the others for queue pair 1.
fn accept(pid: Pid, ledger: &SharedLedger, gsi: &mut Gsi, received: &ReceivedBatch<'_>) {
    for packet in received.bytes.chunks(received.segment_bytes) {
        if packet.len() == DATA_BYTES {
            let number = number_at(packet, NUMBER_AT).unwrap_or(0);
            ledger.borrow_mut().delivered(pid, number);
        } else if let Ok(parsed) = WirePacket::parse(packet)
            && let Ok(inbound) = gsi::inbound(&ReceivedBatch { bytes: packet, ..*received }, &parsed)
        {
            let number = number_at(packet, REQUEST_NUMBER_AT).unwrap_or(0);
            ledger.borrow_mut().request_seen(pid, number);
            gsi.accept(inbound);
        }
    }
}
