//! All rings of a process, by the process at the other end.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use pumice_model::port::batch::{
    CopyMode, CopyReason, CopyReport, GsoBatch, PacketCost, PeerMedium, PortLimits, ReceivedBatch,
    ShortReceive,
};
use pumice_platform::outside::event_fd::EventFd;
use pumice_platform::outside::world;
use pumice_transport::path::Path;
use pumice_transport::wire::ProcessIndex;

use super::inbound::{BatchBuffer, InboundRing};
use super::message::{RingMessage, RingRefusal};
use super::outbound::{Closed, OpenRing, OutboundRing, PutOutcome, RingRoom};
use crate::members::member_index::{BANKS, MemberIndex, NUMBERS_OF_BANK};
use crate::ring::{Consumer, Geometry, MAX_BATCH_BYTES, NotShort, Producer};
use crate::system::{self, RingFile, RingPages};
use pumice_model::port::copy_choice::CopyChoice;

/// Number of rings that other processes may send through: one for each process, and old ones that are being
/// emptied.
const MAX_INBOUND: usize = 512;
/// Number of rings to other processes. Batches to further processes go by UDP.
const MAX_OUTBOUND: usize = 512;
/// Length of a batch, in bytes: four packets of 4096 bytes with their headers, which stay in the first-level
/// cache between two copies.
const BATCH_BYTES: usize = 4 * (4096 + 64);
/// Cost of a batch in a ring: its bytes, and a share of the slots.
const RING_COST: PacketCost = PacketCost { least_bytes: 256, factor: 1, overhead_bytes: 64 };
/// Slots and data bytes of a ring, for the first rings, for some more, and for all others: a process may have
/// 253 neighbours with its address, and others.
const SIZES: [(usize, Option<Geometry>); 3] = [
    (8, Geometry::new(2048, 1 << 20)),
    (32, Geometry::new(512, 1 << 18)),
    (usize::MAX, Geometry::new(128, 1 << 16)),
];

/// A message from this process to another one about a ring.
#[derive(Debug)]
pub(crate) struct OutgoingMessage {
    pub(crate) to: MemberIndex,
    text: Vec<u8>,
    descriptor: Option<OwnedFd>,
}

impl OutgoingMessage {
    fn new(to: MemberIndex, message: &RingMessage, descriptor: Option<OwnedFd>) -> OutgoingMessage {
        OutgoingMessage { to, text: message.encode().to_vec(), descriptor }
    }

    /// Returns the bytes of the message.
    pub(crate) fn text(&self) -> &[u8] {
        &self.text
    }

    /// Returns the descriptor that goes with the message.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.descriptor.as_ref().map(AsFd::as_fd)
    }
}

/// The reason why a process has no rings at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoRings {
    /// The user of the process chose UDP only.
    UdpOnly,
    /// The process could not open the table in which processes find each other.
    NoTable,
    /// The operating system gave the process no descriptor for a bell.
    NoDescriptor,
}

impl NoRings {
    /// Returns the reason that is known before a descriptor is made; `None` if the process may have rings.
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

    fn refusal(self) -> RingRefusal {
        match self {
            NoRings::UdpOnly => RingRefusal::UdpOnly,
            NoRings::NoTable | NoRings::NoDescriptor => RingRefusal::Unable,
        }
    }
}

/// Returns the reason why ways of copying are not compared; `None` if they are.
fn only_way() -> Option<CopyReason> {
    match (system::can_stream(), world::is_in_world()) {
        (false, _) => Some(CopyReason::OnlyWay),
        (true, true) => Some(CopyReason::World),
        (true, false) => None,
    }
}

/// Result of polling the rings.
#[derive(Debug)]
pub(crate) enum RingReceive {
    /// All rings are empty.
    Nothing,
    /// A batch was taken; either the handler has seen it, or it was not for this process.
    Batch { is_accepted: bool },
    /// A ring is not used any more, and its producer has to be notified.
    Broken(OutgoingMessage),
}

/// The ways to the members of a bank.
type BankLinks = [Option<OutboundRing>; NUMBERS_OF_BANK];

/// The rings of a process.
#[derive(Debug)]
pub(crate) struct SameHost {
    member: MemberIndex,
    /// Incarnation number of this process in the backlog table.
    incarnation: u64,
    /// Bell that other processes ring; without it there are no rings.
    doorbell: Result<EventFd, NoRings>,
    /// Way in which long batches are copied into the rings to other processes.
    copy: CopyMode,
    /// Ways to other processes, by bank (only banks that were needed) and by process index.
    outbound: [Option<Box<BankLinks>>; BANKS],
    inbound: Vec<InboundRing>,
    /// Index of the ring that is polled first.
    turn: usize,
    /// Number of the next ring.
    next_number: u64,
    buffer: Box<BatchBuffer>,
}

impl SameHost {
    /// Creates an empty table. With a reason against rings it stays empty.
    pub(crate) fn new(
        member: MemberIndex,
        incarnation: u64,
        none: Option<NoRings>,
        copy: CopyMode,
    ) -> SameHost {
        world::receives_as(u64::from(member.number()));
        let doorbell = match none {
            Some(reason) => Err(reason),
            None => EventFd::new().map_err(|_| NoRings::NoDescriptor),
        };
        SameHost {
            member,
            incarnation,
            doorbell,
            copy,
            outbound: Default::default(),
            inbound: Vec::new(),
            turn: 0,
            next_number: 1,
            buffer: Box::new([0; MAX_BATCH_BYTES as usize]),
        }
    }

    /// Reports whether this process uses rings.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.doorbell.is_ok()
    }

    /// Returns the reason why this process uses no rings; `None` if it does.
    pub(crate) fn disabled_reason(&self) -> Option<&'static str> {
        self.doorbell.as_ref().err().map(|reason| reason.why())
    }

    /// Reports whether other processes send through rings.
    #[inline]
    pub(crate) fn has_inbound(&self) -> bool {
        !self.inbound.is_empty()
    }

    /// Returns the state of the way to a member.
    #[inline]
    fn peer_link(&self, member: MemberIndex) -> Option<&Option<OutboundRing>> {
        let bank = self.outbound.get(usize::from(member.bank()))?.as_ref()?;
        bank.get(usize::from(member.process()))
    }

    /// Returns all ways that have a state.
    fn peer_links(&self) -> impl Iterator<Item = (MemberIndex, &OutboundRing)> {
        let banks = (0..BANKS as u8).zip(&self.outbound);
        let peer_links = banks.flat_map(|(bank, peer_links)| {
            let peer_links = peer_links.iter().flat_map(|peer_links| peer_links.iter());
            (0_u8..=u8::MAX).zip(peer_links).map(move |(process, peer_link)| (bank, process, peer_link))
        });
        peer_links.filter_map(|(bank, process, peer_link)| {
            Some((MemberIndex::new(bank, ProcessIndex::new(process))?, peer_link.as_ref()?))
        })
    }

    #[inline]
    fn peer_link_mut(&mut self, member: MemberIndex) -> Option<&mut Option<OutboundRing>> {
        let bank = self.outbound.get_mut(usize::from(member.bank()))?;
        let bank = bank.get_or_insert_with(|| Box::new([const { None }; NUMBERS_OF_BANK]));
        bank.get_mut(usize::from(member.process()))
    }

    #[inline]
    fn open(&mut self, member: MemberIndex) -> Option<&mut OpenRing> {
        match self.peer_link_mut(member) {
            Some(Some(OutboundRing::Open(ring))) => Some(ring),
            _ => None,
        }
    }

    /// Reports whether batches to a process go through a ring.
    #[inline]
    pub(crate) fn is_open(&self, member: MemberIndex) -> bool {
        matches!(self.peer_link(member), Some(Some(OutboundRing::Open(_))))
    }

    fn close(&mut self, now_ns: u64, member: MemberIndex, closed: Closed) {
        if let Some(peer_link) = self.peer_link_mut(member) {
            *peer_link = Some(OutboundRing::closed(closed, now_ns));
        }
    }

    /// Removes the ring to a process whose index another process has now; the new process is invited as if
    /// there had been no ring.
    #[cold]
    fn forget(&mut self, member: MemberIndex) {
        if let Some(peer_link) = self.peer_link_mut(member) {
            *peer_link = None;
        }
    }

    /// Removes the rings to those members with a process index whose incarnation number in the table has
    /// changed.
    pub(crate) fn forget_ended(&mut self, process: ProcessIndex, incarnation: impl Fn(MemberIndex) -> u64) {
        for member in MemberIndex::all_of(process) {
            if let Some(Some(OutboundRing::Open(ring))) = self.peer_link(member)
                && ring.incarnation != incarnation(member)
            {
                self.forget(member);
            }
        }
    }

    /// Returns the limits of a batch to a process, if it goes through a ring.
    #[inline]
    pub(crate) fn limits(&self, member: MemberIndex) -> Option<PortLimits> {
        let Some(Some(OutboundRing::Open(ring))) = self.peer_link(member) else { return None };
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

    /// Returns what carries batches to a process.
    pub(crate) fn medium_to(&self, member: MemberIndex) -> PeerMedium {
        let why = match self.peer_link(member).and_then(Option::as_ref) {
            Some(OutboundRing::Open(_)) => return PeerMedium::Ring,
            None => "nothing was sent to it yet",
            Some(OutboundRing::Invited { .. }) => "it has not answered yet whether it takes a ring",
            Some(OutboundRing::Closed { closed, .. }) => closed.why(),
        };
        PeerMedium::Udp(why)
    }

    /// Returns what is known about the copies of long batches to a process, if they go through a ring.
    pub(crate) fn copies_to(&self, member: MemberIndex) -> Option<CopyReport> {
        match self.peer_link(member)? {
            Some(OutboundRing::Open(ring)) => Some(ring.copies()),
            _ => None,
        }
    }

    /// Reports whether a process should be invited now.
    #[inline]
    pub(crate) fn invites(&self, now_ns: u64, member: MemberIndex) -> bool {
        self.peer_link(member).and_then(Option::as_ref).is_none_or(|peer_link| peer_link.is_due(now_ns))
    }

    /// Makes a ring to a process, and returns the invitation. Returns `None` if there is no memory, or if the
    /// process did not answer the last invitation.
    pub(crate) fn invite(&mut self, now_ns: u64, to: MemberIndex) -> Option<OutgoingMessage> {
        if matches!(self.peer_link(to), Some(Some(OutboundRing::Invited { .. }))) {
            self.close(now_ns, to, Closed::NoAnswer);
            return None;
        }
        let rings = self
            .peer_links()
            .filter(|(_, peer_link)| !matches!(peer_link, OutboundRing::Closed { .. }))
            .count();
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
        if let Some(peer_link) = self.peer_link_mut(to) {
            *peer_link = Some(OutboundRing::Invited { number, invited_ns: now_ns, producer });
        }
        if to == self.member {
            self.accept_own(number, geometry, file);
            return None;
        }
        let message = RingMessage::Invite { from: self.member, number, geometry };
        Some(OutgoingMessage::new(to, &message, Some(file.into_descriptor())))
    }

    /// Notes that the last invitation could not be sent.
    pub(crate) fn not_invited(&mut self, now_ns: u64, to: MemberIndex) {
        self.close(now_ns, to, Closed::Impossible);
    }

    /// Handles the message of another process about a ring, and returns the answer. Returns `None` also for
    /// an invalid message.
    pub(crate) fn handle_message(
        &mut self,
        now_ns: u64,
        text: &[u8],
        descriptor: Option<OwnedFd>,
    ) -> Option<OutgoingMessage> {
        match RingMessage::decode(text)? {
            RingMessage::Invite { from, number, geometry } => {
                let answer = self.accept(from, number, geometry, descriptor);
                let (message, descriptor) = match answer {
                    Ok(doorbell) => {
                        let incarnation = self.incarnation;
                        (RingMessage::Accept { from: self.member, number, incarnation }, Some(doorbell))
                    }
                    Err(refusal) => (RingMessage::Refuse { from: self.member, number, refusal }, None),
                };
                Some(OutgoingMessage::new(from, &message, descriptor))
            }
            RingMessage::Accept { from, number, incarnation } => {
                self.accepted(from, number, incarnation, descriptor);
                None
            }
            RingMessage::Refuse { from, number, refusal } => {
                self.refused(now_ns, from, number, refusal);
                None
            }
        }
    }

    /// Accepts a ring, and returns the bell for its producer.
    fn accept(
        &mut self,
        from: MemberIndex,
        number: u64,
        geometry: Geometry,
        descriptor: Option<OwnedFd>,
    ) -> Result<OwnedFd, RingRefusal> {
        let doorbell = self.doorbell.as_ref().map_err(|reason| reason.refusal())?;
        self.inbound.retain(|ring| !ring.is_superseded || ring.has_more());
        if self.inbound.len() >= MAX_INBOUND {
            return Err(RingRefusal::TooMany);
        }
        let file = RingFile::new(descriptor.ok_or(RingRefusal::Memory)?);
        let pages = RingPages::open(&file, geometry).map_err(|_| RingRefusal::Memory)?;
        let doorbell = doorbell.as_fd().try_clone_to_owned().map_err(|_| RingRefusal::Memory)?;
        for ring in self.inbound.iter_mut().filter(|ring| ring.from == from) {
            ring.is_superseded = true;
        }
        self.inbound.push(InboundRing::new(from, number, Consumer::new(pages, geometry)));
        Ok(doorbell)
    }

    /// Accepts the ring from this process to itself.
    fn accept_own(&mut self, number: u64, geometry: Geometry, file: RingFile) {
        let doorbell = self.accept(self.member, number, geometry, Some(file.into_descriptor()));
        self.accepted(self.member, number, self.incarnation, doorbell.ok());
    }

    /// Notes that a process has accepted the ring.
    fn accepted(&mut self, from: MemberIndex, number: u64, incarnation: u64, doorbell: Option<OwnedFd>) {
        let copies = CopyChoice::new(self.copy, only_way());
        let Some(peer_link) = self.peer_link_mut(from) else { return };
        let is_answer =
            matches!(peer_link, Some(OutboundRing::Invited { number: asked, .. }) if *asked == number);
        let Some(doorbell) = doorbell.and_then(|doorbell| EventFd::of(doorbell).ok()).filter(|_| is_answer)
        else {
            return;
        };
        if let Some(OutboundRing::Invited { producer, .. }) = peer_link.take() {
            let ring = OpenRing::new(number, *producer, doorbell, incarnation, copies);
            *peer_link = Some(OutboundRing::Open(Box::new(ring)));
        }
    }

    fn refused(&mut self, now_ns: u64, from: MemberIndex, number: u64, refusal: RingRefusal) {
        let is_known = match self.peer_link(from) {
            Some(Some(OutboundRing::Invited { number: asked, .. })) => *asked == number,
            Some(Some(OutboundRing::Open(ring))) => ring.number() == number,
            _ => false,
        };
        if is_known {
            self.close(now_ns, from, Closed::Refused(refusal));
        }
    }

    /// Reports whether a batch may be put into the ring to a process now. `incarnation` is the current number
    /// of that process in the table. Returns `None` if there is no ring.
    #[inline]
    pub(crate) fn room(&mut self, now_ns: u64, member: MemberIndex, incarnation: u64) -> Option<RingRoom> {
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

    /// Writes invalid bytes into the ring to a process.
    #[cfg(test)]
    pub(crate) fn scribble(&mut self, member: MemberIndex) {
        self.open(member).unwrap().scribble();
    }

    /// Notes that the process at the other end of a ring has gone.
    pub(crate) fn is_gone(&mut self, now_ns: u64, member: MemberIndex) {
        self.close(now_ns, member, Closed::ProcessEnded);
    }

    /// Reports whether the ring to a process knows a path, so that the path needs no further check.
    #[inline]
    pub(crate) fn knows(&mut self, member: MemberIndex, path: &Path) -> bool {
        self.open(member).is_some_and(|ring| ring.knows(path))
    }

    /// Reports whether there is room in the ring with a number, which goes to the owner of a member's index
    /// that has this incarnation. After false, [`SameHost::room`] finds out the details.
    #[inline]
    pub(crate) fn has_room_again(&mut self, member: MemberIndex, incarnation: u64, number: u64) -> bool {
        let ring = self.open(member);
        let ring = ring.filter(|ring| ring.incarnation == incarnation && ring.number() == number);
        ring.is_some_and(|ring| ring.has_room(BATCH_BYTES as u32))
    }

    /// Puts a batch whose path the ring knows into it, as [`SameHost::put`] does, and returns the ring's
    /// number. All batches of a path but the first are such. Returns `None` if nothing was done; `put` then
    /// finds out why.
    #[inline]
    pub(crate) fn put_on_known_path(
        &mut self,
        now_ns: u64,
        member: MemberIndex,
        incarnation: u64,
        batch: &GsoBatch<'_>,
    ) -> Option<(PutOutcome, u64)> {
        let ring = self.open(member).filter(|ring| ring.incarnation == incarnation)?;
        let fits = batch.bytes.len() <= ring.geometry().data_bytes() as usize;
        let put = if fits { ring.put_on_known_path(now_ns, batch) } else { None };
        Some((put?, ring.number()))
    }

    /// Puts a short batch without ICRC of the series of the last batch into a ring of this number. Returns
    /// false if it has to be put there by [`SameHost::put`].
    #[inline]
    pub(crate) fn put_short(
        &mut self,
        member: MemberIndex,
        number: u64,
        series: u64,
        (segment_bytes, bytes): (usize, &[u8]),
    ) -> bool {
        let ring = self.open(member).filter(|ring| ring.number() == number);
        ring.is_some_and(|ring| ring.put_short(series, segment_bytes, bytes))
    }

    /// Puts a batch into the ring to a process. `incarnation` is the current number of that process in the
    /// table. Returns `None` if the batch does not go through a ring.
    #[inline]
    pub(crate) fn put(
        &mut self,
        now_ns: u64,
        member: MemberIndex,
        incarnation: u64,
        batch: &GsoBatch<'_>,
    ) -> Option<PutOutcome> {
        let ring = self.open(member)?;
        if ring.incarnation != incarnation {
            self.forget(member);
            return None;
        }
        if batch.bytes.len() > ring.geometry().data_bytes() as usize {
            return None;
        }
        match ring.put(now_ns, batch) {
            Ok(put) => return Some(put),
            Err(_) => self.close(now_ns, member, Closed::Broken),
        }
        None
    }

    /// Reports whether a new ring has something: batches that came by UDP have to be taken first.
    #[inline]
    pub(crate) fn has_fresh(&self) -> bool {
        self.inbound.iter().any(|ring| ring.is_fresh && ring.has_more())
    }

    /// Reports whether there are rings to this process, and all are empty.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.has_inbound() && !self.inbound.iter().any(InboundRing::has_more)
    }

    /// Notes that the batches which came by UDP before have been taken.
    pub(crate) fn settle_fresh(&mut self) {
        for ring in &mut self.inbound {
            ring.is_fresh &= !ring.has_more();
        }
    }

    /// Takes a batch from one of the rings in turn, and passes it to `handler` if `accepts` says that it is
    /// for this process. `accepts` gets the path with its notes.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        accepts: impl Fn(&ReceivedBatch<'_>, &mut bool) -> bool,
        handler: &mut dyn FnMut(&ReceivedBatch<'_>),
    ) -> RingReceive {
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
                Ok(Some((received, peer_link))) => {
                    // The same ring stays first for as long as its data is in the cache.
                    self.turn = index;
                    let is_accepted = accepts(&received, &mut peer_link.reaches_this_process);
                    if is_accepted {
                        handler(&received);
                    }
                    return RingReceive::Batch { is_accepted };
                }
                Err(_) => {
                    let ring = self.inbound.swap_remove(index);
                    let refusal = RingRefusal::Broken;
                    let message = RingMessage::Refuse { from: self.member, number: ring.number, refusal };
                    return RingReceive::Broken(OutgoingMessage::new(ring.from, &message, None));
                }
            }
        }
        self.turn = 0;
        RingReceive::Nothing
    }

    /// Takes the next batch, if it is a short one that `accepts` accepts.
    #[inline]
    pub(crate) fn receive_short(&mut self, accepts: impl Fn(&ReceivedBatch<'_>) -> bool) -> ShortReceive<'_> {
        let count = self.inbound.len();
        let mut next = if self.turn < count { self.turn } else { 0 };
        for _ in 0..count {
            let index = next;
            next = if index + 1 < count { index + 1 } else { 0 };
            let Some(ring) = self.inbound.get_mut(index) else { break };
            if ring.is_fresh {
                if ring.has_more() {
                    return ShortReceive::NotHere;
                }
                continue;
            }
            if !ring.has_more() {
                continue;
            }
            self.turn = index;
            return match ring.take_short(&mut self.buffer, accepts) {
                Ok(Some(received)) => ShortReceive::Batch(received),
                Ok(None) | Err(NotShort) => ShortReceive::NotHere,
            };
        }
        ShortReceive::Nothing
    }

    /// Moves on to the next ring.
    pub(crate) fn next_turn(&mut self) {
        self.turn = self.turn.wrapping_add(1);
    }

    /// Prepares for a thread of this process to sleep: producers ring the bell from now on. Returns the
    /// descriptor to wait on, which is readable already if there is something to take.
    pub(crate) fn prepare_sleep(&self) -> Option<RawFd> {
        let doorbell = self.doorbell.as_ref().ok().filter(|_| self.has_inbound())?;
        doorbell.clear();
        let mut may_sleep = true;
        for ring in &self.inbound {
            may_sleep &= ring.prepare_sleep();
        }
        if !may_sleep {
            doorbell.set();
        }
        Some(doorbell.as_fd().as_raw_fd())
    }

    /// Removes the rings of processes that have gone; those from them only when they are empty. `lives`
    /// returns whether another process does.
    pub(crate) fn sweep(&mut self, now_ns: u64, lives: impl Fn(MemberIndex) -> bool) {
        let own = self.member;
        let open = self.peer_links().filter(|(_, peer_link)| matches!(peer_link, OutboundRing::Open(_)));
        let gone = open.map(|(member, _)| member).filter(|member| *member != own && !lives(*member));
        for member in gone.collect::<Vec<_>>() {
            self.close(now_ns, member, Closed::ProcessEnded);
        }
        self.inbound
            .retain(|ring| ring.has_more() || !ring.is_superseded && (ring.from == own || lives(ring.from)));
    }
}
