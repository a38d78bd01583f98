//! The ways of frames out and in, and which queue pairs get one.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::RawFd;

use pumice_ground::error::ResourceError;
use pumice_transport::wire::{FRAME_HEADER_BYTES, FrameFields, Qpn};

use super::rule::{FlowAction, FlowRule};
use super::spread::Spread;
use crate::{FrameWire, SendFrameError};

/// Longest frame: the loopback interface carries packets of 64 KiB and more, behind a header with a tag.
pub(crate) const MOST_FRAME_BYTES: usize = (1 << 17) + 18;
/// Most rules of a process.
const MOST_RULES: usize = 4096;
/// Frames of this process that wait to be received by it. More are lost, as on a full network.
const MOST_LOOPED: usize = 256;

/// Names a rule.
pub(crate) type FlowId = u32;

/// A port's way to its interface.
pub(crate) struct PortWire {
    port_num: u8,
    wire: Box<dyn FrameWire>,
}

pub(crate) struct Rule {
    id: FlowId,
    qpn: Qpn,
    rule: FlowRule,
}

/// What a process with raw packet queue pairs has.
pub struct Ethernet {
    ways: Vec<PortWire>,
    /// By rank.
    rules: Vec<Rule>,
    last_id: FlowId,
    /// Ports of the raw packet queue pairs; 0 before they have one.
    queue_pairs: BTreeMap<Qpn, u8>,
    /// Queue pairs whose frames others get.
    spreads: BTreeMap<Qpn, Spread>,
    /// Frames of this process that its own rules take, on interfaces that do not return them.
    looped: VecDeque<(u8, Vec<u8>)>,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
}

impl Ethernet {
    /// With a way for each port, by its number.
    pub fn new(wires: Vec<(u8, Box<dyn FrameWire>)>) -> Ethernet {
        Ethernet {
            ways: wires.into_iter().map(|(port_num, wire)| PortWire { port_num, wire }).collect(),
            rules: Vec::new(),
            last_id: 0,
            queue_pairs: BTreeMap::new(),
            spreads: BTreeMap::new(),
            looped: VecDeque::new(),
            outgoing: Vec::new(),
            incoming: vec![0; MOST_FRAME_BYTES],
        }
    }

    /// A queue pair is here, on a port or (0) on none yet.
    pub fn put(&mut self, qpn: Qpn, port_num: u8) {
        self.queue_pairs.insert(qpn, port_num);
    }

    /// A queue pair is gone. True: it was the last.
    pub fn forget(&mut self, qpn: Qpn) -> bool {
        self.queue_pairs.remove(&qpn);
        self.spreads.remove(&qpn);
        self.queue_pairs.is_empty()
    }

    /// The frames of a queue pair go to others from now on.
    pub fn spread(&mut self, qpn: Qpn, spread: Spread) {
        self.spreads.insert(qpn, spread);
    }

    /// Rules that name a queue pair.
    pub fn rules_of(&self, qpn: Qpn) -> usize {
        self.rules.iter().filter(|rule| rule.qpn == qpn).count()
    }

    /// Adds a rule of a queue pair.
    ///
    /// # Errors
    /// `NoMemory`: there are as many as there may be.
    pub fn add(&mut self, qpn: Qpn, rule: FlowRule) -> Result<FlowId, ResourceError> {
        if self.rules.len() >= MOST_RULES {
            return Err(ResourceError::no_memory(format!("the process has {MOST_RULES} flow rules")));
        }
        let id = self.free_id();
        let index = self.rules.partition_point(|other| other.rule.rank() <= rule.rank());
        self.rules.insert(index, Rule { id, qpn, rule });
        self.attend();
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

    /// Takes a rule away.
    ///
    /// # Errors
    /// `Invalid`: there is none of that name.
    pub fn remove(&mut self, id: FlowId) -> Result<(), ResourceError> {
        let index = self.rules.iter().position(|rule| rule.id == id);
        let index = index.ok_or_else(|| ResourceError::invalid(format!("there is no flow rule {id}")))?;
        self.rules.remove(index);
        self.attend();
        Ok(())
    }

    /// Interfaces take what is not for their own address while a rule asks for frames.
    fn attend(&mut self) {
        let Ethernet { ways, rules, .. } = self;
        for way in ways {
            let wanted = rules.iter().any(|rule| rule.rule.port_num == way.port_num);
            way.wire.listen(wanted);
        }
    }

    /// Room for a frame that is to be sent. `None`: it is no length of a frame.
    pub fn begin(&mut self, length_bytes: usize) -> Option<&mut [u8]> {
        if !(FRAME_HEADER_BYTES..=MOST_FRAME_BYTES).contains(&length_bytes) {
            return None;
        }
        self.outgoing.resize(length_bytes, 0);
        Some(&mut self.outgoing)
    }

    /// Sends what was put into the room that was begun last. False: it is longer than the interface carries.
    pub fn send(&mut self, qpn: Qpn) -> bool {
        let port_num = self.queue_pairs.get(&qpn).copied().unwrap_or_default();
        let Some(way) = self.ways.iter_mut().find(|way| way.port_num == port_num) else { return true };
        let sent = way.wire.send(&self.outgoing);
        let comes_back = way.wire.returns_own_frames();
        if sent == Err(SendFrameError::TooLong) {
            return false;
        }
        // An adapter gives its own queue pairs what they send to each other.
        if !comes_back
            && self.looped.len() < MOST_LOOPED
            && FrameFields::of(&self.outgoing)
                .is_some_and(|fields| !self.takers(port_num, &fields).is_empty())
        {
            self.looped.push_back((port_num, self.outgoing.clone()));
        }
        true
    }

    /// The next frame that arrived, with the queue pairs that get it. `None`: there is no more now.
    pub fn receive(&mut self) -> Option<(Vec<Qpn>, &[u8])> {
        if let Some((port_num, frame)) = self.looped.pop_front() {
            let length_bytes = frame.len();
            self.incoming.get_mut(..length_bytes)?.copy_from_slice(&frame);
            return self.with_takers(port_num, length_bytes);
        }
        let Ethernet { ways, incoming, .. } = self;
        let (port_num, length_bytes) =
            ways.iter_mut().find_map(|way| Some((way.port_num, way.wire.receive(incoming)?)))?;
        self.with_takers(port_num, length_bytes)
    }

    fn with_takers(&self, port_num: u8, length_bytes: usize) -> Option<(Vec<Qpn>, &[u8])> {
        let frame = self.incoming.get(..length_bytes)?;
        let takers = FrameFields::of(frame).map(|fields| self.takers(port_num, &fields));
        Some((takers.unwrap_or_default(), frame))
    }

    /// The queue pairs that get a frame of a port, each once.
    fn takers(&self, port_num: u8, fields: &FrameFields) -> Vec<Qpn> {
        let mut takers = Vec::new();
        let mut last_rank = None;
        let fitting = self.rules.iter().filter(|rule| rule.rule.port_num == port_num);
        for Rule { qpn, rule, .. } in fitting.filter(|rule| rule.rule.fits(fields)) {
            if last_rank.is_some_and(|last| last != rule.rank()) {
                break;
            }
            if rule.action == FlowAction::Drop {
                break;
            }
            let taker = self.spreads.get(qpn).map_or(Some(*qpn), |spread| spread.taker_of(fields));
            if let Some(taker) = taker.filter(|taker| !takers.contains(taker)) {
                takers.push(taker);
            }
            if !rule.goes_on() {
                last_rank = Some(rule.rank());
            }
        }
        takers
    }

    /// What to poll(2) for readability.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        self.ways.iter().filter_map(|way| way.wire.descriptor())
    }

    /// Whether a frame waits that only [`Ethernet::receive`] finds.
    pub fn has_looped(&self) -> bool {
        !self.looped.is_empty()
    }
}
