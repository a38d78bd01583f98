//! One queue pair of a timeline, record by record.

use std::collections::{HashMap, VecDeque};

use pumice_transport::wire::Syndrome;

use super::model::{
    Congestion, CongestionKind, Measure, Message, Moment, Packet, QueuePair, Receive, RequestEnd, Setback,
    SetbackKind,
};
use super::room::Room;
use super::words::about_queue_pair;
use crate::format::Record;

/// Receive requests whose completion is waited for, at most.
const MAX_WAITING: usize = 1 << 16;
/// Setbacks that a message keeps.
const MAX_SETBACKS: usize = 64;
/// Messages that one setback is told to, at most.
const MAX_TOLD: usize = 1 << 12;

/// A queue pair that is being put together.
#[derive(Debug, Default)]
pub(super) struct QpBuilder {
    qp: QueuePair,
    connection: u32,
    /// Messages before this index have ended.
    ended: usize,
    /// Messages before this index are acknowledged.
    acknowledged: usize,
    /// Receive requests that are posted: when, and which.
    posted: VecDeque<(u64, u64)>,
    way_out: Option<u32>,
    way_in: Option<u32>,
    ways: HashMap<(std::net::IpAddr, std::net::IpAddr), u32>,
    /// The last packet of the requester.
    sent_ns: u64,
    /// An ACK of this message is lost when it is sent.
    lost_answer: Option<u64>,
    /// Receive requests that were posted before the recording, and have not completed.
    unseen_receives: u32,
}

impl QpBuilder {
    pub(super) fn new(ordinal: u32) -> QpBuilder {
        QpBuilder { qp: QueuePair { ordinal, ..QueuePair::default() }, ..QpBuilder::default() }
    }

    pub(super) fn finish(self) -> QueuePair {
        self.qp
    }

    pub(super) const fn qpn(&self) -> u32 {
        self.qp.qpn
    }

    /// What a record tells; of a completion, the index of what it completes.
    pub(super) fn take(&mut self, at_ns: u64, record: &Record<'_>, room: &mut Room) -> Option<usize> {
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
            Record::SendPosted { .. } => self.send_posted(at_ns, record, room),
            Record::RecvPosted { wr_id, .. } if self.posted.len() < MAX_WAITING => {
                self.posted.push_back((at_ns, wr_id));
            }
            Record::PacketSent { .. } => self.packet_sent(at_ns, record, room),
            Record::PacketReceived { psn, opcode, length, source, .. } => {
                let other_qpn = source.unwrap_or(0);
                let packet =
                    Packet { way: self.way_in, ..packet(at_ns, false, psn, opcode, length, other_qpn) };
                self.keep(packet, room);
            }
            Record::SendsTo { from, to, .. } => self.way_out = self.way((from, to), room),
            Record::ReceivesFrom { from, to, .. } => self.way_in = self.way((from, to), room),
            Record::Acknowledged { before, .. } => self.acknowledge(at_ns, before),
            Record::Measured { .. } => self.measured(at_ns, record, room),
            Record::NakSent { syndrome, .. } | Record::NakReceived { syndrome, .. } => {
                let is_rnr = matches!(Syndrome::from_byte(syndrome), Syndrome::RnrNak { .. });
                if is_rnr && room.take() {
                    self.qp.rnr_naks_ns.push(at_ns);
                }
            }
            Record::SendLimits { requests, reads, .. } => self.qp.limits = Some((requests, reads)),
            Record::CongestionMarked { .. } => self.congested(at_ns, CongestionKind::Marked, room),
            Record::CnpReceived { .. } => self.congested(at_ns, CongestionKind::Notified, room),
            Record::RateChanged { rate, .. } => self.congested(at_ns, CongestionKind::Rate(rate), room),
            Record::DuplicateRequest { psn, .. } if room.take() => self.qp.duplicates.push((at_ns, psn)),
            Record::Completed { wr_id, opcode, .. } if opcode & 0x80 != 0 => {
                return self.received(at_ns, wr_id, record, room);
            }
            Record::Completed { .. } => return self.completed(at_ns, record),
            Record::FaultApplied { lost: true, side, message, .. } => self.lost(side, message),
            Record::Dropped { .. } => {
                if let Some(last) = self.qp.packets.last_mut().filter(|last| !last.is_sent) {
                    last.is_dropped = true;
                }
            }
            _ => {}
        }
        self.setback(at_ns, record);
        if let Record::StateChanged { connection, peer, peer_qpn, .. } = *record {
            if std::mem::replace(&mut self.connection, connection) != connection {
                // A reset drops what was posted.
                (self.qp.unseen, self.unseen_receives) = (0, 0);
            }
            self.qp.peer = peer.map(|peer| (peer, peer_qpn)).or(self.qp.peer);
        }
        if let Some((kind, text)) = about_queue_pair(record)
            && room.take()
        {
            self.qp.moments.push(Moment { at_ns, kind, text });
        }
        None
    }

    fn congested(&mut self, at_ns: u64, kind: CongestionKind, room: &mut Room) {
        if room.take() {
            self.qp.congestion.push(Congestion { at_ns, kind });
        }
    }

    fn measured(&mut self, at_ns: u64, record: &Record<'_>, room: &mut Room) {
        let Record::Measured { rtt_ns, window_packets, in_flight_packets, .. } = *record else { return };
        let rtt_ns = (rtt_ns != 0).then_some(rtt_ns);
        if room.take() {
            self.qp.measures.push(Measure { at_ns, rtt_ns, window_packets, in_flight_packets });
        }
    }

    /// The program polled the completion of the request at this index.
    pub(super) fn polled(&mut self, at_ns: u64, is_receive: bool, index: usize) {
        if is_receive {
            if let Some(receive) = self.qp.receives.get_mut(index) {
                receive.polled_ns = Some(at_ns);
            }
        } else if let Some(message) = self.qp.messages.get_mut(index) {
            message.polled_ns = Some(at_ns);
        }
    }

    fn send_posted(&mut self, at_ns: u64, record: &Record<'_>, room: &mut Room) {
        let Record::SendPosted { message, wr_id, opcode, length, psn, packets, signaled, .. } = *record
        else {
            return;
        };
        if room.take() {
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

    fn packet_sent(&mut self, at_ns: u64, record: &Record<'_>, room: &mut Room) {
        let Record::PacketSent { side, message, psn, transmission, opcode, length, destination, .. } =
            *record
        else {
            return;
        };
        let is_lost = side == 1 && self.lost_answer == Some(message);
        if is_lost {
            self.lost_answer = None;
        }
        let packet = Packet {
            side,
            message,
            transmission,
            is_lost,
            way: self.way_out,
            ..packet(at_ns, true, psn, opcode, length, destination)
        };
        self.keep(packet, room);
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

    fn keep(&mut self, packet: Packet, room: &mut Room) {
        if room.take() {
            self.qp.packets.push(packet);
        }
    }

    fn way(&mut self, way: (std::net::IpAddr, std::net::IpAddr), room: &mut Room) -> Option<u32> {
        if let Some(known) = self.ways.get(&way) {
            return Some(*known);
        }
        if !room.take() {
            return None;
        }
        let index = self.qp.ways.len() as u32;
        self.qp.ways.push(way);
        self.ways.insert(way, index);
        Some(index)
    }

    /// Everything before a PSN is acknowledged.
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

    /// A send request completed, and the unsignaled ones before it.
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

    /// A receive request completed.
    fn received(&mut self, at_ns: u64, wr_id: u64, record: &Record<'_>, room: &mut Room) -> Option<usize> {
        let Record::Completed { cq, status, bytes, .. } = *record else { return None };
        // A request that was posted to a shared queue is none of this queue's.
        let is_unseen = self.unseen_receives > 0;
        self.unseen_receives -= u32::from(is_unseen);
        let front = self.posted.front().filter(|_| !is_unseen);
        let posted = front.filter(|(_, posted)| *posted == wr_id).map(|(at_ns, _)| *at_ns);
        if posted.is_some() {
            self.posted.pop_front();
        }
        let end = RequestEnd { at_ns, status, cq, has_completion: true };
        room.take().then(|| {
            self.qp.receives.push(Receive { wr_id, posted_ns: posted, end, bytes, polled_ns: None });
            self.qp.receives.len() - 1
        })
    }

    /// A fault plan loses a packet: the one that was sent last, or an answer that will be sent.
    fn lost(&mut self, side: u8, message: u64) {
        match self.qp.packets.last_mut() {
            Some(last) if last.is_sent && last.side == side && last.message == message => last.is_lost = true,
            _ if side == 1 => self.lost_answer = Some(message),
            _ => {}
        }
    }

    /// Tells messages under way what keeps them from going on.
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
            _ => return,
        };
        let (connection, silent_since_ns) = (self.connection, self.sent_ns);
        let first = self.acknowledged.max(self.ended);
        for message in self.qp.messages.iter_mut().skip(first).take(MAX_TOLD) {
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

/// A message that keeps no more setbacks has the last one of a kind for longer.
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

const fn packet(at_ns: u64, is_sent: bool, psn: u32, opcode: u8, length: u32, other_qpn: u32) -> Packet {
    Packet {
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
        way: None,
    }
}

/// The PSN behind a message.
const fn end_of(message: &Message) -> u32 {
    message.psn.wrapping_add(message.packets) & 0x00ff_ffff
}

/// Whether a PSN comes before another; they are less than half of all PSNs apart.
const fn is_before(psn: u32, other: u32) -> bool {
    let ahead = other.wrapping_sub(psn) & 0x00ff_ffff;
    ahead != 0 && ahead < 0x0080_0000
}
