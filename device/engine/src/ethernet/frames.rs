//! The sending and receiving of frames, and the choice of the queue pairs that get one.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::RawFd;

use pumice_platform::error::ResourceError;
use pumice_transport::wire::{FRAME_HEADER_BYTES, FrameFields, Qpn};

use super::rule::{FlowAction, FlowRule};
use super::spread::RssTable;
use pumice_platform::packet_socket::{FrameWire, SendFrameError};

/// Length of the longest frame: the loopback interface carries packets of 64 KiB and more, behind a header
/// with a tag.
pub(crate) const MAX_FRAME_BYTES: usize = (1 << 17) + 18;
/// Largest number of rules of a process.
const MAX_FLOW_RULES: usize = 4096;
/// Number of frames of this process that may wait to be received by it. More are lost, as on a full network.
const MAX_LOOPED: usize = 256;

/// The name of a rule.
pub(crate) type FlowId = u32;

/// A port's wire to its interface.
pub(crate) struct PortWire {
    port_num: u8,
    wire: Box<dyn FrameWire>,
}

pub(crate) struct InstalledFlowRule {
    id: FlowId,
    qpn: Qpn,
    rule: FlowRule,
}

/// The raw packet queue pairs of a process, with their rules and wires.
pub struct Ethernet {
    port_wires: Vec<PortWire>,
    /// Rules by rank.
    rules: Vec<InstalledFlowRule>,
    last_id: FlowId,
    /// Ports of the raw packet queue pairs; 0 before they have one.
    queue_pairs: BTreeMap<Qpn, u8>,
    /// Queue pairs whose frames are spread over others.
    spreads: BTreeMap<Qpn, RssTable>,
    /// Frames of this process that its own rules take, on interfaces that do not return them.
    looped: VecDeque<(u8, Vec<u8>)>,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
}

impl Ethernet {
    /// Creates the state with a wire for each port, by its number.
    pub fn new(wires: Vec<(u8, Box<dyn FrameWire>)>) -> Ethernet {
        Ethernet {
            port_wires: wires.into_iter().map(|(port_num, wire)| PortWire { port_num, wire }).collect(),
            rules: Vec::new(),
            last_id: 0,
            queue_pairs: BTreeMap::new(),
            spreads: BTreeMap::new(),
            looped: VecDeque::new(),
            outgoing: Vec::new(),
            incoming: vec![0; MAX_FRAME_BYTES],
        }
    }

    /// Adds a queue pair, on a port or (0) on none yet.
    pub fn put(&mut self, qpn: Qpn, port_num: u8) {
        self.queue_pairs.insert(qpn, port_num);
    }

    /// Removes a queue pair. Returns true if it was the last.
    pub fn forget(&mut self, qpn: Qpn) -> bool {
        self.queue_pairs.remove(&qpn);
        self.spreads.remove(&qpn);
        self.queue_pairs.is_empty()
    }

    /// Spreads the frames of a queue pair over others from now on.
    pub fn spread(&mut self, qpn: Qpn, spread: RssTable) {
        self.spreads.insert(qpn, spread);
    }

    /// Returns the number of rules that name a queue pair.
    pub fn rules_of(&self, qpn: Qpn) -> usize {
        self.rules.iter().filter(|rule| rule.qpn == qpn).count()
    }

    /// Adds a rule of a queue pair.
    ///
    /// # Errors
    /// Fails with `NoMemory` if the limit is reached.
    pub fn add(&mut self, qpn: Qpn, rule: FlowRule) -> Result<FlowId, ResourceError> {
        if self.rules.len() >= MAX_FLOW_RULES {
            return Err(ResourceError::no_memory(format!("the process has {MAX_FLOW_RULES} flow rules")));
        }
        let id = self.free_id();
        let index = self.rules.partition_point(|other| other.rule.rank() <= rule.rank());
        self.rules.insert(index, InstalledFlowRule { id, qpn, rule });
        self.update_listening();
        Ok(id)
    }

    fn free_id(&mut self) -> FlowId {
        loop {
            self.last_id = self.last_id.wrapping_add(1);
            if !self.rules.iter().any(|rule| rule.id == self.last_id) {
                return self.last_id;
            }
        }
    }

    /// Removes a rule.
    ///
    /// # Errors
    /// Fails with `Invalid` if there is none of that name.
    pub fn remove(&mut self, id: FlowId) -> Result<(), ResourceError> {
        let index = self.rules.iter().position(|rule| rule.id == id);
        let index = index.ok_or_else(|| ResourceError::invalid(format!("there is no flow rule {id}")))?;
        self.rules.remove(index);
        self.update_listening();
        Ok(())
    }

    /// Makes the interfaces accept frames that are not for their own address while a rule asks for frames.
    fn update_listening(&mut self) {
        let Ethernet { port_wires, rules, .. } = self;
        for port_wire in port_wires {
            let wanted = rules.iter().any(|rule| rule.rule.port_num == port_wire.port_num);
            port_wire.wire.listen(wanted);
        }
    }

    /// Returns room for a frame that is to be sent; `None` if no frame has this length.
    pub fn begin(&mut self, length_bytes: usize) -> Option<&mut [u8]> {
        if !(FRAME_HEADER_BYTES..=MAX_FRAME_BYTES).contains(&length_bytes) {
            return None;
        }
        self.outgoing.resize(length_bytes, 0);
        Some(&mut self.outgoing)
    }

    /// Sends the frame in the room that was begun last. Returns false if it is longer than the interface
    /// carries.
    pub fn send(&mut self, qpn: Qpn) -> bool {
        let port_num = self.queue_pairs.get(&qpn).copied().unwrap_or_default();
        let Some(port_wire) = self.port_wires.iter_mut().find(|port_wire| port_wire.port_num == port_num)
        else {
            return true;
        };
        let sent = port_wire.wire.send(&self.outgoing);
        let comes_back = port_wire.wire.returns_own_frames();
        if sent == Err(SendFrameError::TooLong) {
            return false;
        }
        // An adapter delivers what its own queue pairs send to each other.
        if !comes_back
            && self.looped.len() < MAX_LOOPED
            && FrameFields::of(&self.outgoing)
                .is_some_and(|fields| !self.receivers(port_num, &fields).is_empty())
        {
            self.looped.push_back((port_num, self.outgoing.clone()));
        }
        true
    }

    /// Returns the next frame that arrived, with the queue pairs that get it; `None` if there is no more now.
    pub fn receive(&mut self) -> Option<(Vec<Qpn>, &[u8])> {
        if let Some((port_num, frame)) = self.looped.pop_front() {
            let length_bytes = frame.len();
            self.incoming.get_mut(..length_bytes)?.copy_from_slice(&frame);
            return self.for_receivers(port_num, length_bytes);
        }
        let Ethernet { port_wires, incoming, .. } = self;
        let (port_num, length_bytes) = port_wires
            .iter_mut()
            .find_map(|port_wire| Some((port_wire.port_num, port_wire.wire.receive(incoming)?)))?;
        self.for_receivers(port_num, length_bytes)
    }

    fn for_receivers(&self, port_num: u8, length_bytes: usize) -> Option<(Vec<Qpn>, &[u8])> {
        let frame = self.incoming.get(..length_bytes)?;
        let receivers = FrameFields::of(frame).map(|fields| self.receivers(port_num, &fields));
        Some((receivers.unwrap_or_default(), frame))
    }

    /// Returns the queue pairs that get a frame of a port, each once.
    fn receivers(&self, port_num: u8, fields: &FrameFields) -> Vec<Qpn> {
        let mut receivers = Vec::new();
        let mut last_rank = None;
        let fitting = self.rules.iter().filter(|rule| rule.rule.port_num == port_num);
        for InstalledFlowRule { qpn, rule, .. } in fitting.filter(|rule| rule.rule.fits(fields)) {
            if last_rank.is_some_and(|last| last != rule.rank()) {
                break;
            }
            if rule.action == FlowAction::Drop {
                break;
            }
            let taker = self.spreads.get(qpn).map_or(Some(*qpn), |spread| spread.rss_queue_pair(fields));
            if let Some(taker) = taker.filter(|taker| !receivers.contains(taker)) {
                receivers.push(taker);
            }
            if !rule.goes_on() {
                last_rank = Some(rule.rank());
            }
        }
        receivers
    }

    /// Returns the descriptors to poll(2) for readability.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        self.port_wires.iter().filter_map(|port_wire| port_wire.wire.descriptor())
    }

    /// Reports whether a frame waits that only [`Ethernet::receive`] finds.
    pub fn has_looped(&self) -> bool {
        !self.looped.is_empty()
    }
}
