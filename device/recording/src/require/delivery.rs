//! Finds when the other end had each message: by the arrival of its packets, and by the receive request that
//! took it.

use std::collections::HashMap;
use std::ptr;

use pumice_transport::types::SendOpcode;

use crate::timeline::{Message, PacketIndex, Timeline, TracedPacket, TracedQueuePair};

/// The times at which messages were delivered, of those that both ends have recorded.
pub(super) struct Deliveries {
    /// Time of the delivery in ns, by the address of the message in its timeline.
    delivered_ns: HashMap<*const Message, u64>,
}

/// The arrival of the last packet of a message.
struct LastArrival<'a> {
    message: &'a Message,
    at_ns: u64,
    process: usize,
    queue_pair: usize,
}

impl Deliveries {
    /// Finds the deliveries of a timeline.
    pub(super) fn of(timeline: &Timeline) -> Deliveries {
        let mut delivered_ns = HashMap::new();
        let mut taken: HashMap<(usize, usize), Vec<LastArrival<'_>>> = HashMap::new();
        for last in last_arrivals(timeline) {
            if takes_receive(last.message) {
                taken.entry((last.process, last.queue_pair)).or_default().push(last);
            } else {
                delivered_ns.insert(ptr::from_ref(last.message), last.at_ns);
            }
        }
        for ((process, queue_pair), mut arrivals) in taken {
            let Some(qp) = queue_pair_at(timeline, process, queue_pair) else { continue };
            arrivals.sort_by_key(|last| last.at_ns);
            // Messages take receive requests in the order in which they arrive.
            let mut next = 0;
            for last in arrivals {
                next = qp.receives.partition_point(|one| one.end.at_ns < last.at_ns).max(next);
                let Some(receive) = qp.receives.get(next) else { break };
                next += 1;
                let at_ns = receive.polled_ns.unwrap_or(receive.end.at_ns);
                delivered_ns.insert(ptr::from_ref(last.message), at_ns);
            }
        }
        let messages = timeline.processes.iter().flat_map(|one| &one.queue_pairs).flat_map(|qp| &qp.messages);
        for message in messages.filter(|message| returns_data(message)) {
            delivered_ns.insert(ptr::from_ref(message), message.last_ns());
        }
        Deliveries { delivered_ns }
    }

    /// Returns how long a message of the timeline took until it was delivered; `None` if that is not known.
    pub(super) fn took_ns(&self, message: &Message) -> Option<u64> {
        let delivered_ns = self.delivered_ns.get(&ptr::from_ref(message))?;
        Some(delivered_ns.saturating_sub(message.posted_ns))
    }
}

fn opcode(message: &Message) -> Option<SendOpcode> {
    SendOpcode::from_number(u32::from(message.opcode))
}

fn returns_data(message: &Message) -> bool {
    opcode(message).is_some_and(|opcode| opcode.info().needs_response())
}

fn takes_receive(message: &Message) -> bool {
    use SendOpcode::{RdmaWriteWithImm, Send, SendWithImm, SendWithInvalidate};
    matches!(opcode(message), Some(RdmaWriteWithImm | Send | SendWithImm | SendWithInvalidate))
}

fn queue_pair_at(timeline: &Timeline, process: usize, queue_pair: usize) -> Option<&TracedQueuePair> {
    timeline.processes.get(process)?.queue_pairs.get(queue_pair)
}

fn packet_at(timeline: &Timeline, index: PacketIndex) -> Option<&TracedPacket> {
    queue_pair_at(timeline, index.process, index.queue_pair)?.packets.get(index.packet)
}

/// Finds where the last packet of each message arrived that was not dropped there.
fn last_arrivals(timeline: &Timeline) -> Vec<LastArrival<'_>> {
    /// A packet of a requester: when it was sent, when and where it arrived.
    type Passage = (u64, u64, PacketIndex);
    let mut passages: HashMap<(usize, usize, u64), Vec<Passage>> = HashMap::new();
    for arrow in &timeline.arrows {
        let Some((sent, arrived)) = packet_at(timeline, arrow.from).zip(packet_at(timeline, arrow.to)) else {
            continue;
        };
        if sent.side == 0 && !arrived.is_dropped {
            let key = (arrow.from.process, arrow.from.queue_pair, sent.message);
            passages.entry(key).or_default().push((sent.at_ns, arrived.at_ns, arrow.to));
        }
    }
    let mut found = Vec::new();
    for (process, one) in timeline.processes.iter().enumerate() {
        for (queue_pair, qp) in one.queue_pairs.iter().enumerate() {
            for message in &qp.messages {
                // Another connection of the queue pair may have had a message of this number.
                let life_ns = message.posted_ns..=message.last_ns();
                let own = passages.get(&(process, queue_pair, message.number)).into_iter().flatten();
                let own = own.filter(|(sent_ns, ..)| life_ns.contains(sent_ns));
                if let Some((_, at_ns, to)) = own.max_by_key(|(_, at_ns, _)| *at_ns) {
                    let (process, queue_pair) = (to.process, to.queue_pair);
                    found.push(LastArrival { message, at_ns: *at_ns, process, queue_pair });
                }
            }
        }
    }
    found
}
