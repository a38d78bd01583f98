//! All rings of a process, by the process at the other end.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use pumice_ground::outside::event_fd::EventFd;
use pumice_ports::{GsoBatch, PacketCost, PeerMedium, PortLimits, Received};
use pumice_transport::path::Path;
use pumice_transport::wire::ProcessIndex;

use super::inbound::{BatchBuffer, Inbound};
use super::message::{Message, Refusal};
use super::outbound::{Closed, OpenRing, Outbound, Put, Room};
use crate::member_index::{BANKS, MemberIndex, NUMBERS_OF_BANK};
use crate::ring::{Consumer, Geometry, MAX_BATCH_BYTES, Producer};
use crate::system::{RingFile, RingPages};

/// Rings that other processes may send through: one for each process, and old ones that are being emptied.
const MAX_INBOUND: usize = 512;
/// Rings to other processes. Batches to more of them go by UDP.
const MAX_OUTBOUND: usize = 512;
/// Bytes of a batch. Small enough to stay in the first-level cache between two copies.
const BATCH_BYTES: usize = 16 << 10;
/// What batches in a ring take of it: their bytes, and a share of the slots.
const RING_COST: PacketCost = PacketCost { least_bytes: 256, factor: 1, overhead_bytes: 64 };
/// Slots and bytes of data of a ring, for the first rings, for some more, and for all others: a process may
/// have 253 neighbours with its address, and others.
const SIZES: [(usize, Option<Geometry>); 3] = [
    (8, Geometry::new(4096, 1 << 20)),
    (32, Geometry::new(1024, 1 << 18)),
    (usize::MAX, Geometry::new(256, 1 << 16)),
];

/// What this process says to another one.
#[derive(Debug)]
pub(crate) struct Says {
    pub(crate) to: MemberIndex,
    text: Vec<u8>,
    descriptor: Option<OwnedFd>,
}

impl Says {
    fn new(to: MemberIndex, message: &Message, descriptor: Option<OwnedFd>) -> Says {
        Says { to, text: message.encode().to_vec(), descriptor }
    }

    /// The bytes.
    pub(crate) fn text(&self) -> &[u8] {
        &self.text
    }

    /// What goes with them.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.descriptor.as_ref().map(AsFd::as_fd)
    }
}

/// Why a process has no rings at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoRings {
    /// Its user says so.
    UdpOnly,
    /// It could not open the table in which processes find each other.
    NoTable,
    /// The operating system gave it no descriptor for a bell.
    NoDescriptor,
}

impl NoRings {
    /// The reason that is known before a process looks for a descriptor; none: it may have rings.
    pub(crate) const fn among(udp_only: bool, has_table: bool) -> Option<NoRings> {
        match (udp_only, has_table) {
            (true, _) => Some(NoRings::UdpOnly),
            (false, false) => Some(NoRings::NoTable),
            (false, true) => None,
        }
    }

    fn why(self) -> &'static str {
        match self {
            NoRings::UdpOnly => "this process uses UDP only",
            NoRings::NoTable => {
                "this process cannot open the file in which processes find each other's rings"
            }
            NoRings::NoDescriptor => "this process had no free descriptor for rings; `ulimit -n` allows more",
        }
    }

    fn refusal(self) -> Refusal {
        match self {
            NoRings::UdpOnly => Refusal::UdpOnly,
            NoRings::NoTable | NoRings::NoDescriptor => Refusal::Unable,
        }
    }
}

/// What a look at the rings brought.
#[derive(Debug)]
pub(crate) enum Took {
    /// All are empty.
    Nothing,
    /// A batch, which the handler has seen, or which was not for this process.
    Batch { is_accepted: bool },
    /// A ring is used no more: its producer is to be told.
    Broken(Says),
}

/// Where batches to the members of a bank go.
type WaysOfBank = [Option<Outbound>; NUMBERS_OF_BANK];

/// The rings of a process.
#[derive(Debug)]
pub(crate) struct SameHost {
    member: MemberIndex,
    /// What stands in the table for this process.
    incarnation: u64,
    /// What other processes ring; without it there are no rings.
    bell: Result<EventFd, NoRings>,
    /// By bank, those that were needed, and by process index.
    outbound: [Option<Box<WaysOfBank>>; BANKS],
    inbound: Vec<Inbound>,
    /// The ring that is looked at first.
    turn: usize,
    /// Number of the next ring.
    next_number: u64,
    buffer: Box<BatchBuffer>,
}

impl SameHost {
    /// No rings yet; with a reason against them there never are.
    pub(crate) fn new(member: MemberIndex, incarnation: u64, none: Option<NoRings>) -> SameHost {
        let bell = match none {
            Some(reason) => Err(reason),
            None => EventFd::new().map_err(|_| NoRings::NoDescriptor),
        };
        SameHost {
            member,
            incarnation,
            bell,
            outbound: Default::default(),
            inbound: Vec::new(),
            turn: 0,
            next_number: 1,
            buffer: Box::new([0; MAX_BATCH_BYTES as usize]),
        }
    }

    /// Whether this process uses rings.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.bell.is_ok()
    }

    /// Why this process uses no rings; `None`: it does.
    pub(crate) fn why_off(&self) -> Option<&'static str> {
        self.bell.as_ref().err().map(|reason| reason.why())
    }

    /// Whether other processes send through rings.
    #[inline]
    pub(crate) fn has_inbound(&self) -> bool {
        !self.inbound.is_empty()
    }

    /// What is known of the way to a member.
    #[inline]
    fn way(&self, member: MemberIndex) -> Option<&Option<Outbound>> {
        let bank = self.outbound.get(usize::from(member.bank()))?.as_ref()?;
        bank.get(usize::from(member.process()))
    }

    /// All of which something is known.
    fn ways(&self) -> impl Iterator<Item = (MemberIndex, &Outbound)> {
        let banks = (0..BANKS as u8).zip(&self.outbound);
        let ways = banks.flat_map(|(bank, ways)| {
            let ways = ways.iter().flat_map(|ways| ways.iter());
            (0_u8..=u8::MAX).zip(ways).map(move |(process, way)| (bank, process, way))
        });
        ways.filter_map(|(bank, process, way)| {
            Some((MemberIndex::new(bank, ProcessIndex::new(process))?, way.as_ref()?))
        })
    }

    #[inline]
    fn way_mut(&mut self, member: MemberIndex) -> Option<&mut Option<Outbound>> {
        let bank = self.outbound.get_mut(usize::from(member.bank()))?;
        let bank = bank.get_or_insert_with(|| Box::new([const { None }; NUMBERS_OF_BANK]));
        bank.get_mut(usize::from(member.process()))
    }

    #[inline]
    fn open(&mut self, member: MemberIndex) -> Option<&mut OpenRing> {
        match self.way_mut(member) {
            Some(Some(Outbound::Open(ring))) => Some(ring),
            _ => None,
        }
    }

    /// Whether batches to a process go through a ring.
    #[inline]
    pub(crate) fn is_open(&self, member: MemberIndex) -> bool {
        matches!(self.way(member), Some(Some(Outbound::Open(_))))
    }

    fn close(&mut self, now_ns: u64, member: MemberIndex, closed: Closed) {
        if let Some(way) = self.way_mut(member) {
            *way = Some(Outbound::closed(closed, now_ns));
        }
    }

    /// Another process has the index now: the ring to the old one goes, and the new one is invited as if
    /// there had been none.
    #[cold]
    fn forget(&mut self, member: MemberIndex) {
        if let Some(way) = self.way_mut(member) {
            *way = None;
        }
    }

    /// Forgets the rings to members with a process index whose number in the table is another one now.
    pub(crate) fn forget_gone(&mut self, process: ProcessIndex, incarnation: impl Fn(MemberIndex) -> u64) {
        for member in MemberIndex::all_of(process) {
            if let Some(Some(Outbound::Open(ring))) = self.way(member)
                && ring.incarnation != incarnation(member)
            {
                self.forget(member);
            }
        }
    }

    /// What a batch to a process may be, if it goes through a ring.
    #[inline]
    pub(crate) fn limits(&self, member: MemberIndex) -> Option<PortLimits> {
        let Some(Some(Outbound::Open(ring))) = self.way(member) else { return None };
        let data_bytes = ring.geometry().data_bytes() as usize;
        Some(PortLimits {
            max_segments: BATCH_BYTES,
            max_batch_bytes: BATCH_BYTES.min(data_bytes / 4),
            receive_buffer_bytes: data_bytes,
            packet_cost: RING_COST,
            needs_icrc: false,
            waits_for_room: true,
        })
    }

    /// What carries batches to a process.
    pub(crate) fn medium_to(&self, member: MemberIndex) -> PeerMedium {
        let why = match self.way(member).and_then(Option::as_ref) {
            Some(Outbound::Open(_)) => return PeerMedium::Ring,
            None => "nothing was sent to it yet",
            Some(Outbound::Invited { .. }) => "it has not answered yet whether it takes a ring",
            Some(Outbound::Closed { closed, .. }) => closed.why(),
        };
        PeerMedium::Udp(why)
    }

    /// Whether a process should be invited now.
    #[inline]
    pub(crate) fn invites(&self, now_ns: u64, member: MemberIndex) -> bool {
        self.way(member).and_then(Option::as_ref).is_none_or(|way| way.is_due(now_ns))
    }

    /// Makes a ring to a process, and says so to it. Nothing: there is no memory, or the process has not
    /// answered the last time.
    pub(crate) fn invite(&mut self, now_ns: u64, to: MemberIndex) -> Option<Says> {
        if matches!(self.way(to), Some(Some(Outbound::Invited { .. }))) {
            self.close(now_ns, to, Closed::NoAnswer);
            return None;
        }
        let rings = self.ways().filter(|(_, way)| !matches!(way, Outbound::Closed { .. })).count();
        if rings >= MAX_OUTBOUND {
            self.close(now_ns, to, Closed::TooMany);
            return None;
        }
        let (_, geometry) = SIZES.into_iter().find(|(up_to, _)| rings < *up_to)?;
        let geometry = geometry?;
        let Ok((pages, file)) = RingPages::create(geometry) else {
            self.close(now_ns, to, Closed::Impossible);
            return None;
        };
        let number = self.next_number;
        self.next_number += 1;
        let producer = Box::new(Producer::new(pages, geometry));
        if let Some(way) = self.way_mut(to) {
            *way = Some(Outbound::Invited { number, asked_ns: now_ns, producer });
        }
        if to == self.member {
            self.accept_own(number, geometry, file);
            return None;
        }
        let message = Message::Invite { from: self.member, number, geometry };
        Some(Says::new(to, &message, Some(file.into_descriptor())))
    }

    /// The last invitation could not be sent.
    pub(crate) fn not_invited(&mut self, now_ns: u64, to: MemberIndex) {
        self.close(now_ns, to, Closed::Impossible);
    }

    /// Hears what another process says about a ring; the result is the answer. `None` also for nonsense.
    pub(crate) fn hear(&mut self, now_ns: u64, text: &[u8], descriptor: Option<OwnedFd>) -> Option<Says> {
        match Message::decode(text)? {
            Message::Invite { from, number, geometry } => {
                let answer = self.accept(from, number, geometry, descriptor);
                let (message, descriptor) = match answer {
                    Ok(bell) => {
                        let incarnation = self.incarnation;
                        (Message::Accept { from: self.member, number, incarnation }, Some(bell))
                    }
                    Err(refusal) => (Message::Refuse { from: self.member, number, refusal }, None),
                };
                Some(Says::new(from, &message, descriptor))
            }
            Message::Accept { from, number, incarnation } => {
                self.accepted(from, number, incarnation, descriptor);
                None
            }
            Message::Refuse { from, number, refusal } => {
                self.refused(now_ns, from, number, refusal);
                None
            }
        }
    }

    /// Takes a ring; the result is the bell for its producer.
    fn accept(
        &mut self,
        from: MemberIndex,
        number: u64,
        geometry: Geometry,
        descriptor: Option<OwnedFd>,
    ) -> Result<OwnedFd, Refusal> {
        let bell = self.bell.as_ref().map_err(|reason| reason.refusal())?;
        self.inbound.retain(|ring| !ring.is_superseded || ring.has_more());
        if self.inbound.len() >= MAX_INBOUND {
            return Err(Refusal::TooMany);
        }
        let file = RingFile::new(descriptor.ok_or(Refusal::Memory)?);
        let pages = RingPages::open(&file, geometry).map_err(|_| Refusal::Memory)?;
        let bell = bell.as_fd().try_clone_to_owned().map_err(|_| Refusal::Memory)?;
        for ring in self.inbound.iter_mut().filter(|ring| ring.from == from) {
            ring.is_superseded = true;
        }
        self.inbound.push(Inbound::new(from, number, Consumer::new(pages, geometry)));
        Ok(bell)
    }

    /// Takes the ring from this process to itself.
    fn accept_own(&mut self, number: u64, geometry: Geometry, file: RingFile) {
        let bell = self.accept(self.member, number, geometry, Some(file.into_descriptor()));
        self.accepted(self.member, number, self.incarnation, bell.ok());
    }

    /// A process has the ring now.
    fn accepted(&mut self, from: MemberIndex, number: u64, incarnation: u64, bell: Option<OwnedFd>) {
        let Some(way) = self.way_mut(from) else { return };
        let is_answer = matches!(way, Some(Outbound::Invited { number: asked, .. }) if *asked == number);
        let Some(bell) = bell.and_then(|bell| EventFd::of(bell).ok()).filter(|_| is_answer) else { return };
        if let Some(Outbound::Invited { producer, .. }) = way.take() {
            *way = Some(Outbound::Open(Box::new(OpenRing::new(number, *producer, bell, incarnation))));
        }
    }

    fn refused(&mut self, now_ns: u64, from: MemberIndex, number: u64, refusal: Refusal) {
        let is_known = match self.way(from) {
            Some(Some(Outbound::Invited { number: asked, .. })) => *asked == number,
            Some(Some(Outbound::Open(ring))) => ring.number() == number,
            _ => false,
        };
        if is_known {
            self.close(now_ns, from, Closed::Refused(refusal));
        }
    }

    /// Whether a batch may be put into the ring to a process now. `incarnation` is what stands in the table
    /// for it now. `None`: there is no ring.
    #[inline]
    pub(crate) fn room(&mut self, now_ns: u64, member: MemberIndex, incarnation: u64) -> Option<Room> {
        let ring = self.open(member)?;
        if ring.incarnation != incarnation {
            self.forget(member);
            return None;
        }
        match ring.room(now_ns, BATCH_BYTES as u32) {
            Ok(room) => return Some(room),
            Err(_) => self.close(now_ns, member, Closed::Broken),
        }
        None
    }

    /// Writes nonsense into the ring to a process.
    #[cfg(test)]
    pub(crate) fn scribble(&mut self, member: MemberIndex) {
        self.open(member).unwrap().scribble();
    }

    /// The process at the other end of a ring has gone.
    pub(crate) fn is_gone(&mut self, now_ns: u64, member: MemberIndex) {
        self.close(now_ns, member, Closed::Gone);
    }

    /// Whether the ring to a process knows a path, so that it needs no check any more.
    #[inline]
    pub(crate) fn knows(&mut self, member: MemberIndex, path: &Path) -> bool {
        self.open(member).is_some_and(|ring| ring.knows(path))
    }

    /// Whether there is room in the ring with a number, which goes to the owner of a member's index that has
    /// this incarnation. False: [`SameHost::room`] has more to say.
    #[inline]
    pub(crate) fn has_room_again(&mut self, member: MemberIndex, incarnation: u64, number: u64) -> bool {
        let ring = self.open(member);
        let ring = ring.filter(|ring| ring.incarnation == incarnation && ring.number() == number);
        ring.is_some_and(|ring| ring.has_room(BATCH_BYTES as u32))
    }

    /// As [`SameHost::put`], of a batch whose path the ring knows, as it does for all batches of a path but
    /// the first; and the ring's number. `None`: nothing was done, and `put` finds out why.
    #[inline]
    pub(crate) fn put_on_known_path(
        &mut self,
        member: MemberIndex,
        incarnation: u64,
        batch: &GsoBatch<'_>,
    ) -> Option<(Put, u64)> {
        let ring = self.open(member).filter(|ring| ring.incarnation == incarnation)?;
        let fits = batch.bytes.len() <= ring.geometry().data_bytes() as usize;
        let put = if fits { ring.put_on_known_path(batch) } else { None };
        Some((put?, ring.number()))
    }

    /// Puts a batch into the ring to a process. `incarnation` is what stands in the table for it now.
    /// `None`: it does not go through a ring.
    #[inline]
    pub(crate) fn put(
        &mut self,
        now_ns: u64,
        member: MemberIndex,
        incarnation: u64,
        batch: &GsoBatch<'_>,
    ) -> Option<Put> {
        let ring = self.open(member)?;
        if ring.incarnation != incarnation {
            self.forget(member);
            return None;
        }
        if batch.bytes.len() > ring.geometry().data_bytes() as usize {
            return None;
        }
        match ring.put(batch) {
            Ok(put) => return Some(put),
            Err(_) => self.close(now_ns, member, Closed::Broken),
        }
        None
    }

    /// Whether a ring that is new has something: what came by UDP is to be taken first.
    #[inline]
    pub(crate) fn has_fresh(&self) -> bool {
        self.inbound.iter().any(|ring| ring.is_fresh && ring.has_more())
    }

    /// Whether there are rings to this process, and all are empty.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.has_inbound() && !self.inbound.iter().any(Inbound::has_more)
    }

    /// What came by UDP before has been taken.
    pub(crate) fn settle_fresh(&mut self) {
        for ring in &mut self.inbound {
            ring.is_fresh &= !ring.has_more();
        }
    }

    /// Takes a batch from one of the rings in turn, and gives it to `handler` if `accepts` says that it is
    /// for this process; that gets what it noted of the path.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        accepts: impl Fn(&Received<'_>, &mut bool) -> bool,
        handler: &mut dyn FnMut(&Received<'_>),
    ) -> Took {
        let count = self.inbound.len();
        let mut next = if self.turn < count { self.turn } else { 0 };
        for _ in 0..count {
            let index = next;
            next = if index + 1 < count { index + 1 } else { 0 };
            let Some(ring) = self.inbound.get_mut(index) else { break };
            if ring.is_fresh {
                continue;
            }
            match ring.take(&mut self.buffer) {
                Ok(None) => {}
                Ok(Some((received, way))) => {
                    // The same one goes on, for as long as its data is in the cache.
                    self.turn = index;
                    let is_accepted = accepts(&received, &mut way.leads_here);
                    if is_accepted {
                        handler(&received);
                    }
                    return Took::Batch { is_accepted };
                }
                Err(_) => {
                    let ring = self.inbound.swap_remove(index);
                    let refusal = Refusal::Broken;
                    let message = Message::Refuse { from: self.member, number: ring.number, refusal };
                    return Took::Broken(Says::new(ring.from, &message, None));
                }
            }
        }
        self.turn = 0;
        Took::Nothing
    }

    /// Gives the next ring its turn.
    pub(crate) fn next_turn(&mut self) {
        self.turn = self.turn.wrapping_add(1);
    }

    /// A thread of this process is about to sleep: producers ring the bell from now on. The result is what
    /// to wait on; it is readable already if there is something to take.
    pub(crate) fn prepare_sleep(&self) -> Option<RawFd> {
        let bell = self.bell.as_ref().ok().filter(|_| self.has_inbound())?;
        bell.clear();
        let mut may_sleep = true;
        for ring in &self.inbound {
            may_sleep &= ring.prepare_sleep();
        }
        if !may_sleep {
            bell.set();
        }
        Some(bell.as_fd().as_raw_fd())
    }

    /// Forgets the rings of processes that have gone, those from them when they are empty. `lives`: whether
    /// another process does.
    pub(crate) fn sweep(&mut self, now_ns: u64, lives: impl Fn(MemberIndex) -> bool) {
        let own = self.member;
        let open = self.ways().filter(|(_, way)| matches!(way, Outbound::Open(_)));
        let gone = open.map(|(member, _)| member).filter(|member| *member != own && !lives(*member));
        for member in gone.collect::<Vec<_>>() {
            self.close(now_ns, member, Closed::Gone);
        }
        self.inbound
            .retain(|ring| ring.has_more() || !ring.is_superseded && (ring.from == own || lives(ring.from)));
    }
}
