//! Builds one queue pair of a timeline, record by record.

use std::collections::{HashMap, VecDeque};

use pumice_transport::mrc::wire::MrcOpcode;
use pumice_transport::types::MrcLossProof;
use pumice_transport::wire::{Opcode, Operation, Syndrome};

use super::evidence::TimelineBudget;
use super::words::about_queue_pair;
use super::{
    Congestion, CongestionKind, Measure, Message, Receive, RequestEnd, Setback, SetbackKind, TimelineEvent,
    TracedPacket, TracedQueuePair,
};
use crate::format::Record;
use crate::steps::count_steps;

/// Maximum number of posted receive requests that are remembered until they complete.
const MAX_WAITING: usize = 1 << 16;
/// Length of an ACK, from the BTH to the ICRC, in bytes.
const ACK_BYTES: u32 = 20;
/// Maximum number of setbacks that a message stores.
const MAX_SETBACKS: usize = 64;
/// Maximum number of messages to which one setback is added.
const MAX_MEASURES: usize = 1 << 12;

/// A queue pair that is being built.
#[derive(Debug, Default)]
pub(super) struct QpBuilder {
    qp: TracedQueuePair,
    connection: u32,
    /// Messages before this index have ended.
    ended: usize,
    /// Messages before this index are acknowledged.
    acknowledged: usize,
    /// Receive requests that are posted: time and `wr_id`.
    posted: VecDeque<(u64, u64)>,
    outgoing_path: Option<u32>,
    incoming_path: Option<u32>,
    paths: HashMap<(std::net::IpAddr, std::net::IpAddr), u32>,
    /// Time of the requester's last packet, in ns.
    sent_ns: u64,
    /// Number of receive requests that were posted before the recording and have not completed.
    unseen_receives: u32,
    /// Ordinals of messages begin again when RC goes on for MRC: this is added to those of records.
    first_number: u64,
}

impl QpBuilder {
    pub(super) fn new(ordinal: u32) -> QpBuilder {
        QpBuilder { qp: TracedQueuePair { ordinal, ..TracedQueuePair::default() }, ..QpBuilder::default() }
    }

    pub(super) fn finish(self) -> TracedQueuePair {
        self.qp
    }

    pub(super) const fn qpn(&self) -> u32 {
        self.qp.qpn
    }

    /// Adds a record; for a completion, returns the index of the request that it completes.
    pub(super) fn take(
        &mut self,
        at_ns: u64,
        record: &Record<'_>,
        budget: &mut TimelineBudget,
    ) -> Option<usize> {
        match *record {
            Record::QpCreated { qpn, service, .. } => {
                self.qp.qpn = qpn;
                self.qp.service = service.to_owned();
            }
            Record::QpFound { qpn, service, connection, peer, peer_qpn, sends, receives, .. } => {
                (self.qp.qpn, self.qp.service) = (qpn, service.to_owned());
                (self.connection, self.qp.peer) = (connection, peer.map(|peer| (peer, peer_qpn)));
                (self.qp.unseen, self.unseen_receives) = (sends, receives);
                if let Record::QpFound { requests, reads, .. } = *record {
                    self.qp.limits = Some((requests, reads));
                }
            }
            Record::SendPosted { .. } | Record::PostedInline { .. } => {
                self.send_posted(at_ns, record, budget)
            }
            Record::RecvPosted { wr_id, .. } if self.posted.len() < MAX_WAITING => {
                self.posted.push_back((at_ns, wr_id));
            }
            Record::PacketSent { .. } => self.packet_sent(at_ns, record, budget),
            Record::PacketReceived { psn, opcode, length, source, .. } => {
                let received = packet(at_ns, false, psn, opcode, length, source.unwrap_or(0));
                self.push_packet(TracedPacket { path: self.incoming_path, ..received }, budget);
            }
            Record::SendsTo { from, to, .. } => self.outgoing_path = self.path((from, to), budget),
            Record::ReceivesFrom { from, to, .. } => self.incoming_path = self.path((from, to), budget),
            Record::Acknowledged { before, .. } => self.acknowledge(at_ns, before),
            Record::Measured { .. } => self.measured(at_ns, record, budget),
            Record::NakSent { syndrome, .. } | Record::NakReceived { syndrome, .. } => {
                let is_rnr = matches!(Syndrome::from_byte(syndrome), Syndrome::RnrNak { .. });
                if is_rnr && budget.take() {
                    self.qp.rnr_naks_ns.push(at_ns);
                }
            }
            Record::SendLimits { requests, reads, .. } => self.qp.limits = Some((requests, reads)),
            Record::CongestionMarked { .. } => self.congested(at_ns, CongestionKind::Marked, budget),
            Record::CnpReceived { .. } => self.congested(at_ns, CongestionKind::Notified, budget),
            Record::RateChanged { rate, .. } => self.congested(at_ns, CongestionKind::Rate(rate), budget),
            Record::DuplicateRequest { psn, .. } if budget.take() => self.qp.duplicates.push((at_ns, psn)),
            Record::Completed { wr_id, opcode, .. } if opcode & 0x80 != 0 => {
                return self.received(at_ns, wr_id, record, budget);
            }
            Record::Completed { .. } => return self.completed(at_ns, record),
            Record::FaultApplied { lost: true, side, message, .. } => self.lost(at_ns, side, message, budget),
            Record::Dropped { .. } => {
                if let Some(last) = self.qp.packets.last_mut().filter(|last| !last.is_sent) {
                    last.is_dropped = true;
                }
            }
            _ => self.note_paths(at_ns, record),
        }
        self.setback(at_ns, record);
        self.state_changed(record);
        if let Some((kind, text)) = about_queue_pair(record)
            && budget.take()
        {
            self.qp.moments.push(TimelineEvent { at_ns, kind, text });
        }
        None
    }

    /// Follows the connection and the peer, if the record is of a change of state.
    fn state_changed(&mut self, record: &Record<'_>) {
        let Record::StateChanged { connection, peer, peer_qpn, .. } = *record else { return };
        if std::mem::replace(&mut self.connection, connection) != connection {
            // A reset drops the requests that were posted.
            (self.qp.unseen, self.unseen_receives) = (0, 0);
        }
        self.qp.peer = peer.map(|peer| (peer, peer_qpn)).or(self.qp.peer);
    }

    /// Adds a record about paths to those of an MRC queue pair.
    fn note_paths(&mut self, at_ns: u64, record: &Record<'_>) {
        if matches!(record, Record::PathsMade { .. }) {
            self.qp.multipath.get_or_insert_default();
        }
        let Some(paths) = &mut self.qp.multipath else { return };
        paths.take(at_ns, record);
        // Records of states, which name the peer, are of other queue pairs.
        if let Record::PacketSent { destination, .. } = *record {
            let way = self.outgoing_path.and_then(|index| self.qp.paths.get(index as usize));
            self.qp.peer = self.qp.peer.or(way.map(|(_, to)| (*to, destination)));
        }
    }

    fn congested(&mut self, at_ns: u64, kind: CongestionKind, budget: &mut TimelineBudget) {
        if budget.take() {
            self.qp.congestion.push(Congestion { at_ns, kind });
        }
    }

    fn measured(&mut self, at_ns: u64, record: &Record<'_>, budget: &mut TimelineBudget) {
        let Record::Measured { rtt_ns, window_packets, in_flight_packets, .. } = *record else { return };
        let rtt_ns = (rtt_ns != 0).then_some(rtt_ns);
        if budget.take() {
            self.qp.measures.push(Measure { at_ns, rtt_ns, window_packets, in_flight_packets });
        }
    }

    /// Notes that the program polled the completion of the request at this index.
    pub(super) fn polled(&mut self, at_ns: u64, is_receive: bool, index: usize) {
        if is_receive {
            if let Some(receive) = self.qp.receives.get_mut(index) {
                receive.polled_ns = Some(at_ns);
            }
        } else if let Some(message) = self.qp.messages.get_mut(index) {
            message.polled_ns = Some(at_ns);
        }
    }

    /// Notes that the payload of the request that was posted last was copied.
    fn posted_inline(&mut self, record: &Record<'_>) {
        let Record::PostedInline { message, .. } = *record else { return };
        if let Some(last) = self.qp.messages.last_mut().filter(|last| last.number == message) {
            last.inline = true;
        }
    }

    fn send_posted(&mut self, at_ns: u64, record: &Record<'_>, budget: &mut TimelineBudget) {
        let Record::SendPosted { message, wr_id, opcode, length, psn, packets, signaled, .. } = *record
        else {
            return self.posted_inline(record);
        };
        let message = self.number_of_post(message);
        if budget.take() {
            self.qp.messages.push(Message {
                connection: self.connection,
                number: message,
                wr_id,
                opcode,
                bytes: length,
                psn,
                packets,
                signaled,
                is_behind_unseen: self.qp.unseen > 0,
                posted_ns: at_ns,
                ..Message::default()
            });
        }
    }

    /// Returns the ordinal of a message that is posted now.
    fn number_of_post(&mut self, message: u64) -> u64 {
        let last = self.qp.messages.last().filter(|last| last.connection == self.connection);
        match last {
            None => self.first_number = 0,
            Some(last) if last.number >= message.saturating_add(self.first_number) => {
                self.first_number = last.number + 1;
            }
            Some(_) => {}
        }
        message.saturating_add(self.first_number)
    }

    fn packet_sent(&mut self, at_ns: u64, record: &Record<'_>, budget: &mut TimelineBudget) {
        let Record::PacketSent { side, message, psn, transmission, opcode, length, destination, .. } =
            *record
        else {
            return;
        };
        let message = if side == 0 { message.saturating_add(self.first_number) } else { message };
        let packet = TracedPacket {
            side,
            message,
            transmission,
            path: self.outgoing_path,
            ..packet(at_ns, true, psn, opcode, length, destination)
        };
        self.push_packet(packet, budget);
        self.note_paths(at_ns, record);
        if side != 0 {
            return;
        }
        self.sent_ns = at_ns;
        let connection = self.connection;
        if let Some(message) = self.message_mut(connection, message) {
            message.first_packet_ns.get_or_insert(at_ns);
            message.last_packet_ns = Some(at_ns);
            message.packets_sent = message.packets_sent.saturating_add(1);
            message.transmissions = message.transmissions.max(transmission);
        }
    }

    fn message_mut(&mut self, connection: u32, number: u64) -> Option<&mut Message> {
        let messages = &mut self.qp.messages;
        let found = messages.binary_search_by_key(&(connection, number), |one| (one.connection, one.number));
        messages.get_mut(found.ok()?)
    }

    fn push_packet(&mut self, packet: TracedPacket, budget: &mut TimelineBudget) {
        if budget.take() {
            self.qp.packets.push(packet);
        }
    }

    fn path(
        &mut self,
        path: (std::net::IpAddr, std::net::IpAddr),
        budget: &mut TimelineBudget,
    ) -> Option<u32> {
        if let Some(known) = self.paths.get(&path) {
            return Some(*known);
        }
        if !budget.take() {
            return None;
        }
        let index = self.qp.paths.len() as u32;
        self.qp.paths.push(path);
        self.paths.insert(path, index);
        Some(index)
    }

    /// Notes that all packets before a PSN are acknowledged.
    fn acknowledge(&mut self, at_ns: u64, before: u32) {
        while let Some(message) = self.qp.messages.get_mut(self.acknowledged) {
            if message.connection == self.connection && is_before(before, end_of(message)) {
                return;
            }
            if message.packets > 0 && message.connection == self.connection {
                message.acknowledged_ns.get_or_insert(at_ns);
            }
            self.acknowledged += 1;
        }
    }

    /// Ends a send request that completed, and the unsignaled ones before it.
    fn completed(&mut self, at_ns: u64, record: &Record<'_>) -> Option<usize> {
        let Record::Completed { cq, status, released, .. } = *record else { return None };
        let unseen = u64::from(released.max(1)).min(self.qp.unseen);
        if unseen > 0 {
            (self.qp.unseen, self.qp.unseen_until_ns) = (self.qp.unseen - unseen, Some(at_ns));
        }
        let released = (u64::from(released.max(1)) - unseen) as usize;
        if released == 0 {
            return None;
        }
        let connection = self.connection;
        let over = self.qp.messages.iter().skip(self.ended).take_while(|one| one.connection != connection);
        self.ended += over.count();
        let last = released.min(self.qp.messages.len().saturating_sub(self.ended));
        let indices = self.ended..self.ended + last;
        self.ended += last;
        let index = indices.end.checked_sub(1).filter(|_| last > 0)?;
        for (number, message) in indices.clone().zip(self.qp.messages.get_mut(indices)?) {
            let is_own = number == index;
            let status = if is_own { status } else { 0 };
            message.end = Some(RequestEnd { at_ns, status, cq, has_completion: is_own });
        }
        Some(index)
    }

    /// Adds a receive request that completed.
    fn received(
        &mut self,
        at_ns: u64,
        wr_id: u64,
        record: &Record<'_>,
        budget: &mut TimelineBudget,
    ) -> Option<usize> {
        let Record::Completed { cq, status, bytes, .. } = *record else { return None };
        // A request that was posted to a shared receive queue is not among this queue's.
        let is_unseen = self.unseen_receives > 0;
        self.unseen_receives -= u32::from(is_unseen);
        let front = self.posted.front().filter(|_| !is_unseen);
        let posted = front.filter(|(_, posted)| *posted == wr_id).map(|(at_ns, _)| *at_ns);
        if posted.is_some() {
            self.posted.pop_front();
        }
        let end = RequestEnd { at_ns, status, cq, has_completion: true };
        budget.take().then(|| {
            self.qp.receives.push(Receive { wr_id, posted_ns: posted, end, bytes, polled_ns: None });
            self.qp.receives.len() - 1
        })
    }

    /// Returns the last time before now at which the requester sent the packet with this PSN; of RC, at which
    /// it sent anything.
    fn silent_since(&self, psn: u32) -> u64 {
        let paths = self.qp.multipath.as_ref();
        paths.and_then(|paths| paths.sent_ns(psn)).unwrap_or(self.sent_ns)
    }

    /// Marks the packet that a fault plan lost: the last one sent, or the ACK of a message that has arrived,
    /// which has no record of its own. A packet that acknowledges the message later is another one.
    fn lost(&mut self, at_ns: u64, side: u8, message: u64, budget: &mut TimelineBudget) {
        match self.qp.packets.last_mut() {
            Some(last) if last.is_sent && last.side == side && last.message == message => last.is_lost = true,
            // Fault plans know all packets of MRC without data as notifications.
            Some(last) if last.is_sent && side == 2 && is_mrc_control(last.opcode) => last.is_lost = true,
            Some(&mut TracedPacket { is_sent: false, psn, opcode, .. }) if side == 1 => {
                let other_qpn = self.qp.peer.map_or(0, |(_, qpn)| qpn);
                let service = Opcode::from_byte(opcode).service();
                let acknowledge = Opcode::new(service, Operation::Acknowledge).byte();
                let lost = TracedPacket {
                    side,
                    message,
                    is_lost: true,
                    path: self.outgoing_path,
                    ..packet(at_ns, true, psn, acknowledge, ACK_BYTES, other_qpn)
                };
                self.push_packet(lost, budget);
            }
            _ => {}
        }
    }

    /// Adds a setback to the messages under way.
    fn setback(&mut self, at_ns: u64, record: &Record<'_>) {
        let (kind, psn) = match *record {
            Record::TimedOut { psn, retries_left, timeout, .. } => {
                (SetbackKind::TimedOut { timeout, retries_left }, psn)
            }
            Record::FellSilent { psn, .. } => (SetbackKind::Silence, psn),
            Record::PeerStarved { psn, .. } => (SetbackKind::PeerStarved, psn),
            Record::ReceiverNotReady { psn, retries_left, wait_ns, .. } => {
                (SetbackKind::ReceiverNotReady { wait_ns, retries_left }, psn)
            }
            Record::SentAgain { psn, why: 2, .. } => (SetbackKind::SequenceNak, psn),
            Record::SentAgain { psn, why: 3, .. } => (SetbackKind::MissingAnswer, psn),
            Record::PacketLost { psn, proof, .. } => match MrcLossProof::from_number(proof) {
                // A record of its own says that the timer expired.
                None | Some(MrcLossProof::Timeout) => return,
                Some(proof) => (SetbackKind::Lost { psn, proof }, psn),
            },
            _ => return,
        };
        let (connection, silent_since_ns) = (self.connection, self.silent_since(psn));
        let is_mrc = self.qp.multipath.is_some();
        let first = self.acknowledged.max(self.ended);
        for message in self.qp.messages.iter_mut().skip(first).take(MAX_MEASURES) {
            count_steps(1);
            // MRC completes in order: a lost packet holds up its message and those after it.
            if is_mrc && !is_before(psn, end_of(message)) {
                continue;
            }
            let under_way = message.connection == connection && message.first_packet_ns.is_some();
            if under_way && message.setbacks.len() >= MAX_SETBACKS {
                message.setbacks.last_mut().into_iter().for_each(|last| prolong(last, at_ns, kind));
            } else if under_way {
                let is_own = !is_before(psn, message.psn) && is_before(psn, end_of(message));
                message.setbacks.push(Setback { at_ns, kind, is_own, silent_since_ns });
            }
        }
    }
}

/// Extends the last setback of a message that can store no more, if it is of the same kind.
fn prolong(last: &mut Setback, now_ns: u64, kind: SetbackKind) {
    match (&mut last.kind, kind) {
        (
            SetbackKind::ReceiverNotReady { wait_ns, retries_left },
            SetbackKind::ReceiverNotReady { wait_ns: more_ns, retries_left: now_left },
        ) => {
            *wait_ns = now_ns.saturating_add(more_ns).saturating_sub(last.at_ns);
            *retries_left = now_left;
        }
        (SetbackKind::TimedOut { .. }, SetbackKind::TimedOut { .. })
        | (SetbackKind::Silence, SetbackKind::Silence)
        | (SetbackKind::PeerStarved, SetbackKind::PeerStarved) => last.at_ns = now_ns,
        _ => {}
    }
}

const fn packet(
    at_ns: u64,
    is_sent: bool,
    psn: u32,
    opcode: u8,
    length: u32,
    other_qpn: u32,
) -> TracedPacket {
    TracedPacket {
        at_ns,
        is_sent,
        is_lost: false,
        is_dropped: false,
        side: 0,
        opcode,
        psn,
        length,
        transmission: 1,
        message: 0,
        other_qpn,
        path: None,
    }
}

/// Reports whether an opcode is of a packet of MRC without data.
fn is_mrc_control(opcode: u8) -> bool {
    MrcOpcode::from_byte(opcode).is_some_and(|opcode| !opcode.is_write())
}

/// Returns the PSN behind the last one of a message.
const fn end_of(message: &Message) -> u32 {
    message.psn.wrapping_add(message.packets) & 0x00ff_ffff
}

/// Reports whether a PSN comes before another; they are less than half of the PSN space apart.
const fn is_before(psn: u32, other: u32) -> bool {
    let ahead = other.wrapping_sub(psn) & 0x00ff_ffff;
    ahead != 0 && ahead < 0x0080_0000
}
