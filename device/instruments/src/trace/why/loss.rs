//! What was lost, as far as the traces tell: a packet, its answer, or neither.

use std::collections::HashMap;

use crate::trace::timeline::{Message, Packet, PacketIndex, QueuePair, Timeline};

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
    AnswerLostByPlan,
    /// All packets arrived; an answer of the peer did not.
    AnswerLost,
    /// All packets arrived, and the peer had not answered.
    NoAnswer,
    /// The peer's trace would tell.
    Unknown,
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
    fn peer(&self) -> Option<Owner<'a>> {
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
            let in_time = (message.posted_ns..=before_ns).contains(&packet.at_ns);
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
        for (number, packet) in &packets {
            let psn = packet.psn;
            let Some(arrival) = self.arrows.end(self.process, self.queue_pair, *number) else {
                return Some(Fate::PacketLost { psn });
            };
            let arrived = self.timeline.processes.get(arrival.process);
            let arrived = arrived.and_then(|process| process.queue_pairs.get(arrival.queue_pair));
            let arrived = arrived.and_then(|qp| qp.packets.get(arrival.packet));
            match arrived {
                Some(arrived) if arrived.at_ns > before_ns => return Some(Fate::NoAnswer),
                Some(arrived) if arrived.is_dropped => return Some(Fate::PacketDropped { psn }),
                _ => {}
            }
        }
        peer.answer_to(message, before_ns)
    }

    /// What became of the answers of this queue pair to a message of its peer's.
    fn answer_to(&self, message: &Message, before_ns: u64) -> Option<Fate> {
        let from_ns = message.first_packet_ns.unwrap_or(message.posted_ns);
        let in_range = |psn: u32| psn.wrapping_sub(message.psn) & 0x00ff_ffff < message.packets.max(1);
        let answers = self.qp()?.packets.iter().enumerate().filter(|(_, packet)| {
            let in_time = (from_ns..=before_ns).contains(&packet.at_ns);
            packet.is_sent && packet.side == 1 && in_time && in_range(packet.psn)
        });
        let mut fate = Fate::NoAnswer;
        for (number, packet) in answers {
            if packet.is_lost {
                fate = Fate::AnswerLostByPlan;
            } else if self.arrows.end(self.process, self.queue_pair, number).is_none() {
                fate = Fate::AnswerLost;
            }
        }
        Some(fate)
    }
}
