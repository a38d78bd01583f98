//! What was lost, as far as the traces tell: a packet, its answer, or neither.

use std::collections::HashMap;

use crate::timeline::{Message, Packet, PacketIndex, QueuePair, Timeline};

/// Where a message is: the indices of its process, of its queue pair, and of the message there.
pub(super) type MessageIndex = (usize, usize, usize);

/// What became of a message's packets, and of the answers to them, before something was noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case", tag = "what")]
pub enum Fate {
    /// A packet of it was lost by a fault plan.
    PacketLostByPlan {
        /// Its PSN.
        psn: u32,
    },
    /// A packet of it was sent, and did not arrive at the peer.
    PacketLost {
        /// Its PSN.
        psn: u32,
    },
    /// A packet of it arrived at the peer, and was dropped there.
    PacketDropped {
        /// Its PSN.
        psn: u32,
    },
    /// All packets arrived; an answer of the peer was lost by a fault plan.
    AnswerLostByPlan {
        /// It was a response of a READ or an atomic, and no acknowledgement.
        is_response: bool,
        /// Its PSN.
        psn: u32,
    },
    /// All packets arrived; an answer of the peer did not.
    AnswerLost {
        /// It was a response of a READ or an atomic, and no acknowledgement.
        is_response: bool,
        /// Its PSN.
        psn: u32,
    },
    /// A packet of it arrived later than that.
    OnTheWay {
        /// Its PSN.
        psn: u32,
    },
    /// All packets arrived, and the peer had not answered.
    NoAnswer,
    /// The peer's trace would tell.
    Unknown,
}

impl Fate {
    /// Whether a fault plan is known to have made it.
    pub(super) const fn is_by_plan(self) -> bool {
        matches!(self, Fate::PacketLostByPlan { .. } | Fate::AnswerLostByPlan { .. })
    }
}

/// The arrows of a timeline, by where they begin.
#[derive(Debug)]
pub(super) struct Arrows(HashMap<(usize, usize, usize), PacketIndex>);

impl Arrows {
    pub(super) fn of(timeline: &Timeline) -> Arrows {
        let key = |index: PacketIndex| (index.process, index.queue_pair, index.packet);
        Arrows(timeline.arrows.iter().map(|arrow| (key(arrow.from), arrow.to)).collect())
    }

    fn end(&self, process: usize, queue_pair: usize, packet: usize) -> Option<PacketIndex> {
        self.0.get(&(process, queue_pair, packet)).copied()
    }
}

/// A queue pair in a timeline.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner<'a> {
    pub(super) timeline: &'a Timeline,
    pub(super) arrows: &'a Arrows,
    pub(super) process: usize,
    pub(super) queue_pair: usize,
}

impl<'a> Owner<'a> {
    pub(super) fn qp(&self) -> Option<&'a QueuePair> {
        self.timeline.processes.get(self.process)?.queue_pairs.get(self.queue_pair)
    }

    /// The peer in the timeline, if its trace is among these.
    pub(super) fn peer(&self) -> Option<Owner<'a>> {
        let (address, qpn) = self.qp()?.peer?;
        self.timeline.processes.iter().enumerate().find_map(|(process, one)| {
            let queue_pair = one.queue_pairs.iter().position(|qp| qp.qpn == qpn)?;
            one.header.addresses.contains(&address).then_some(Owner { process, queue_pair, ..*self })
        })
    }

    /// What became of the packets of a message that were sent before a time.
    pub(super) fn fate(&self, message: &Message, before_ns: u64) -> Option<Fate> {
        let qp = self.qp()?;
        let of_message = |packet: &Packet| {
            // What is noticed has packets sent again at the same time.
            let in_time = (message.posted_ns..before_ns).contains(&packet.at_ns);
            packet.is_sent && packet.side == 0 && packet.message == message.number && in_time
        };
        // The last transmission of each PSN counts.
        let mut last: HashMap<u32, (usize, &Packet)> = HashMap::new();
        for (number, packet) in qp.packets.iter().enumerate().filter(|(_, packet)| of_message(packet)) {
            last.insert(packet.psn, (number, packet));
        }
        let mut packets: Vec<(usize, &Packet)> = last.into_values().collect();
        packets.sort_by_key(|(number, _)| *number);
        if let Some((_, lost)) = packets.iter().find(|(_, packet)| packet.is_lost) {
            return Some(Fate::PacketLostByPlan { psn: lost.psn });
        }
        let Some(peer) = self.peer() else { return Some(Fate::Unknown) };
        let covers = |from_ns: u64| {
            let process = self.timeline.processes.get(peer.process);
            process.is_some_and(|process| process.covers(from_ns, before_ns))
        };
        for (number, packet) in &packets {
            let psn = packet.psn;
            let Some(arrival) = self.arrows.end(self.process, self.queue_pair, *number) else {
                if !covers(packet.at_ns) {
                    return Some(Fate::Unknown);
                }
                return Some(Fate::PacketLost { psn });
            };
            let arrived = self.timeline.processes.get(arrival.process);
            let arrived = arrived.and_then(|process| process.queue_pairs.get(arrival.queue_pair));
            let arrived = arrived.and_then(|qp| qp.packets.get(arrival.packet));
            match arrived {
                Some(arrived) if arrived.at_ns > before_ns => return Some(Fate::OnTheWay { psn }),
                Some(arrived) if arrived.is_dropped => return Some(Fate::PacketDropped { psn }),
                _ => {}
            }
        }
        if !covers(message.first_packet_ns.unwrap_or(message.posted_ns)) {
            return Some(Fate::Unknown);
        }
        peer.answer_to(message, before_ns)
    }

    /// What became of the answers of this queue pair to a message of its peer's.
    fn answer_to(&self, message: &Message, before_ns: u64) -> Option<Fate> {
        let mut fate = Fate::NoAnswer;
        for (number, packet) in self.answers(message, before_ns)? {
            let (psn, is_response) = (packet.psn, !is_acknowledgement(packet.opcode));
            if packet.is_lost {
                fate = Fate::AnswerLostByPlan { is_response, psn };
            } else if self.arrows.end(self.process, self.queue_pair, number).is_none() {
                fate = Fate::AnswerLost { is_response, psn };
            }
        }
        Some(fate)
    }

    /// The answers of this queue pair to a message of its peer's before a time, and their indices.
    pub(super) fn answers(
        &self,
        message: &Message,
        before_ns: u64,
    ) -> Option<impl Iterator<Item = (usize, &'a Packet)>> {
        let from_ns = message.first_packet_ns.unwrap_or(message.posted_ns);
        let (first, count) = (message.psn, message.packets.max(1));
        let in_range = move |psn: u32| psn.wrapping_sub(first) & 0x00ff_ffff < count;
        Some(self.qp()?.packets.iter().enumerate().filter(move |(_, packet)| {
            let in_time = (from_ns..=before_ns).contains(&packet.at_ns);
            packet.is_sent && packet.side == 1 && in_time && in_range(packet.psn)
        }))
    }

    /// How long the last packet of a message, and the last answer to it, were on their ways together; `None`:
    /// the peer's trace would tell.
    pub(super) fn on_the_way_ns(&self, message: &Message) -> Option<u64> {
        let qp = self.qp()?;
        let until_ns = message.acknowledged_ns?;
        let own = |packet: &Packet| packet.is_sent && packet.side == 0 && packet.message == message.number;
        let sent = qp.packets.iter().enumerate().rev();
        let (number, sent) =
            sent.filter(|(_, packet)| packet.at_ns <= until_ns).find(|(_, packet)| own(packet))?;
        let arrived = self.packet(self.arrows.end(self.process, self.queue_pair, number)?)?;
        let there_ns = arrived.at_ns.saturating_sub(sent.at_ns);
        let peer = self.peer()?;
        let answers = peer.answers(message, until_ns)?;
        let came = answers.filter_map(|(number, packet)| {
            let end = self.packet(self.arrows.end(peer.process, peer.queue_pair, number)?)?;
            Some(end.at_ns.saturating_sub(packet.at_ns))
        });
        Some(there_ns.saturating_add(came.last().unwrap_or(0)))
    }

    fn packet(&self, index: PacketIndex) -> Option<&'a Packet> {
        let process = self.timeline.processes.get(index.process)?;
        process.queue_pairs.get(index.queue_pair)?.packets.get(index.packet)
    }
}

/// Whether an opcode on the wire is that of an ACK or a NAK.
fn is_acknowledgement(opcode: u8) -> bool {
    // The low five bits say what a packet does, for each service alike.
    opcode & 0x1f == 0x11
}
