//! Finds what was lost, as far as the traces show: a packet, its answer, or neither.

use std::collections::HashMap;

use super::timeline_index::{QpIndex, TimelineIndex};
use crate::timeline::{Message, PacketIndex, Timeline, TracedPacket, TracedQueuePair};

/// The position of a message: the indices of its process, of its queue pair, and of the message there.
pub(super) type MessageIndex = (usize, usize, usize);

/// The fate of a message's packets, and of the answers to them, before a setback.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case", tag = "what")]
pub enum PacketFate {
    /// A fault plan lost a packet of the message.
    PacketLostByPlan {
        /// PSN of the packet.
        psn: u32,
    },
    /// A packet of the message was sent, and did not arrive at the peer.
    PacketLost {
        /// PSN of the packet.
        psn: u32,
    },
    /// A packet of the message arrived at the peer, and was dropped there.
    PacketDropped {
        /// PSN of the packet.
        psn: u32,
    },
    /// All packets arrived, and a fault plan lost an answer of the peer.
    AnswerLostByPlan {
        /// The answer was a response of a READ or an atomic rather than an acknowledgement.
        is_response: bool,
        /// PSN of the answer.
        psn: u32,
    },
    /// All packets arrived, and an answer of the peer did not.
    AnswerLost {
        /// The answer was a response of a READ or an atomic rather than an acknowledgement.
        is_response: bool,
        /// PSN of the answer.
        psn: u32,
    },
    /// A packet of the message arrived only after the setback.
    OnTheWay {
        /// PSN of the packet.
        psn: u32,
    },
    /// All packets arrived, and the peer had not answered.
    NoAnswer,
    /// The fate is unknown: only the peer's trace would show it.
    Unknown,
}

impl PacketFate {
    /// Reports whether a fault plan is known to have caused it.
    pub(super) const fn is_by_plan(self) -> bool {
        matches!(self, PacketFate::PacketLostByPlan { .. } | PacketFate::AnswerLostByPlan { .. })
    }
}

/// A queue pair in a timeline.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner<'a> {
    pub(super) timeline: &'a Timeline,
    pub(super) timeline_index: &'a TimelineIndex<'a>,
    pub(super) process: usize,
    pub(super) queue_pair: usize,
}

impl<'a> Owner<'a> {
    pub(super) fn qp(&self) -> Option<&'a TracedQueuePair> {
        self.timeline.processes.get(self.process)?.queue_pairs.get(self.queue_pair)
    }

    /// Returns the index of its packets and requests.
    pub(super) fn found(&self) -> Option<&'a QpIndex<'a>> {
        self.timeline_index.queue_pair(self.process, self.queue_pair)
    }

    /// Returns the peer in the timeline, if its trace is among these.
    pub(super) fn peer(&self) -> Option<Owner<'a>> {
        let (process, queue_pair) = self.timeline_index.peer(self.qp()?.peer?)?;
        Some(Owner { process, queue_pair, ..*self })
    }

    /// Returns the fate of the packets of a message that were sent before a time.
    pub(super) fn fate(&self, message: &Message, before_ns: u64) -> Option<PacketFate> {
        // The packets that a setback sends again have the same time as the setback.
        let in_time = (message.posted_ns, before_ns.saturating_sub(1));
        // The last transmission of each PSN counts.
        let mut last: HashMap<u32, (usize, &TracedPacket)> = HashMap::new();
        for (number, packet) in self.found()?.requests(message.number, in_time) {
            last.insert(packet.psn, (number, packet));
        }
        let mut packets: Vec<(usize, &TracedPacket)> = last.into_values().collect();
        packets.sort_by_key(|(number, _)| *number);
        if let Some((_, lost)) = packets.iter().find(|(_, packet)| packet.is_lost) {
            return Some(PacketFate::PacketLostByPlan { psn: lost.psn });
        }
        let Some(peer) = self.peer() else { return Some(PacketFate::Unknown) };
        let covers = |from_ns: u64| {
            let process = self.timeline.processes.get(peer.process);
            process.is_some_and(|process| process.covers(from_ns, before_ns))
        };
        for (number, packet) in &packets {
            let psn = packet.psn;
            let Some(arrival) = self.timeline_index.arrival(self.process, self.queue_pair, *number) else {
                if !covers(packet.at_ns) {
                    return Some(PacketFate::Unknown);
                }
                return Some(PacketFate::PacketLost { psn });
            };
            let arrived = self.timeline.processes.get(arrival.process);
            let arrived = arrived.and_then(|process| process.queue_pairs.get(arrival.queue_pair));
            let arrived = arrived.and_then(|qp| qp.packets.get(arrival.packet));
            match arrived {
                Some(arrived) if arrived.at_ns > before_ns => return Some(PacketFate::OnTheWay { psn }),
                Some(arrived) if arrived.is_dropped => return Some(PacketFate::PacketDropped { psn }),
                _ => {}
            }
        }
        if !covers(message.first_packet_ns.unwrap_or(message.posted_ns)) {
            return Some(PacketFate::Unknown);
        }
        peer.answer_to(message, before_ns)
    }

    /// Returns the fate of this queue pair's answers to a message of its peer.
    fn answer_to(&self, message: &Message, before_ns: u64) -> Option<PacketFate> {
        let mut fate = PacketFate::NoAnswer;
        for (number, packet) in self.answers(message, before_ns)? {
            let (psn, is_response) = (packet.psn, !is_acknowledgement(packet.opcode));
            if packet.is_lost {
                fate = PacketFate::AnswerLostByPlan { is_response, psn };
            } else if self.timeline_index.arrival(self.process, self.queue_pair, number).is_none() {
                fate = PacketFate::AnswerLost { is_response, psn };
            }
        }
        Some(fate)
    }

    /// Returns the answers of this queue pair to a message of its peer before a time, in their order, with
    /// their indices.
    fn answers(&self, message: &Message, before_ns: u64) -> Option<Vec<(usize, &'a TracedPacket)>> {
        let from_ns = message.first_packet_ns.unwrap_or(message.posted_ns);
        Some(self.found()?.answers((message.psn, message.packets.max(1)), (from_ns, before_ns)))
    }

    /// Returns how long the last packet of a message and the last answer to it travelled together, in ns;
    /// `None` if only the peer's trace would show it.
    pub(super) fn in_transit_ns(&self, message: &Message) -> Option<u64> {
        let until_ns = message.acknowledged_ns?;
        let (number, sent) = self.found()?.requests(message.number, (0, until_ns)).next_back()?;
        let arrived = self.packet(self.timeline_index.arrival(self.process, self.queue_pair, number)?)?;
        let there_ns = arrived.at_ns.saturating_sub(sent.at_ns);
        let peer = self.peer()?;
        let came = peer.answers(message, until_ns)?.into_iter().rev().find_map(|(number, packet)| {
            let end = self.packet(self.timeline_index.arrival(peer.process, peer.queue_pair, number)?)?;
            Some(end.at_ns.saturating_sub(packet.at_ns))
        });
        Some(there_ns.saturating_add(came.unwrap_or(0)))
    }

    fn packet(&self, index: PacketIndex) -> Option<&'a TracedPacket> {
        let process = self.timeline.processes.get(index.process)?;
        process.queue_pairs.get(index.queue_pair)?.packets.get(index.packet)
    }
}

/// Reports whether an opcode on the wire is that of an ACK or a NAK.
fn is_acknowledgement(opcode: u8) -> bool {
    // The low five bits are the kind of packet, for each service alike.
    opcode & 0x1f == 0x11
}
