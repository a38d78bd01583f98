//! Finds what bounds a run: the way from its last completion back to its first post, along the packets and
//! calls that waited for each other.
//!
//! Time off this critical path does not count: if it were shorter, the run would take as long.

use std::collections::HashMap;
use std::fmt;

use pumice_transport::wire::Opcode;
use serde::Serialize;

use super::cause::time;
use crate::timeline::{PacketIndex, Timeline, TracedPacket};

/// A packet stood in a queue if it took this part longer than the fastest one of its kind.
const QUEUED_PART: u64 = 8;

/// The parts of the critical path of a run, in ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RunBounds {
    /// Time from the first post to the last completion that was polled.
    pub total_ns: u64,
    /// Time in which a packet was on its way that waited for no other.
    pub round_trips_ns: u64,
    /// Time in which packets followed each other: the rate of the wire, of the queue pair and of the adapter.
    pub wire_ns: u64,
    /// Time in which programs did something else than to wait for packets: calls, computing, late polls.
    pub program_ns: u64,
    /// Time until packets were sent again, after a loss or an RNR NAK.
    pub waits_ns: u64,
    /// Number of ways on the critical path, one after the other; a round trip has two.
    pub ways: u64,
}

impl RunBounds {
    /// Finds the critical path of a timeline; `None` if no request was posted and completed.
    pub fn of(timeline: &Timeline) -> Option<RunBounds> {
        CriticalPath::of(timeline).walk()
    }

    /// Returns the parts with their names, the longest first; those without time are left out.
    pub fn parts(&self) -> Vec<(&'static str, u64)> {
        let mut parts = vec![
            ("round trips", self.round_trips_ns),
            ("wire", self.wire_ns),
            ("the programs", self.program_ns),
            ("waits before packets were sent again", self.waits_ns),
        ];
        parts.retain(|(_, ns)| *ns > 0);
        parts.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
        parts
    }
}

impl fmt::Display for RunBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |ns: u64| u128::from(ns) * 100 / u128::from(self.total_ns.max(1));
        write!(f, "What bounds the {} from the first post to the last completion:", time(self.total_ns))?;
        for (number, (name, ns)) in self.parts().into_iter().enumerate() {
            write!(f, "{} {name} {} %", if number == 0 { "" } else { "," }, percent(ns))?;
        }
        write!(f, " ({} ways one after the other)", self.ways)
    }
}

/// What the walk along the critical path looks up.
struct CriticalPath<'a> {
    timeline: &'a Timeline,
    /// Arrivals at each process, in order.
    arrivals: Vec<Vec<(u64, PacketIndex)>>,
    /// The packet as it was sent, by the place where it arrived.
    sent: HashMap<(usize, usize, usize), PacketIndex>,
    /// The shortest time of a packet from one process to another, by its opcode and length.
    fastest_ns: HashMap<(usize, usize, u8, u32), u64>,
}

impl<'a> CriticalPath<'a> {
    fn of(timeline: &'a Timeline) -> CriticalPath<'a> {
        let mut path = CriticalPath {
            timeline,
            arrivals: vec![Vec::new(); timeline.processes.len()],
            sent: HashMap::new(),
            fastest_ns: HashMap::new(),
        };
        for arrow in &timeline.arrows {
            let Some((sent, arrived)) = path.packet(arrow.from).zip(path.packet(arrow.to)) else { continue };
            if let Some(all) = path.arrivals.get_mut(arrow.to.process) {
                all.push((arrived.at_ns, arrow.to));
            }
            path.sent.insert((arrow.to.process, arrow.to.queue_pair, arrow.to.packet), arrow.from);
            let key = (arrow.from.process, arrow.to.process, sent.opcode, sent.length);
            let ns = arrived.at_ns.saturating_sub(sent.at_ns);
            path.fastest_ns.entry(key).and_modify(|fastest| *fastest = ns.min(*fastest)).or_insert(ns);
        }
        for all in &mut path.arrivals {
            all.sort_unstable_by_key(|(at_ns, to)| (*at_ns, to.queue_pair, to.packet));
        }
        path
    }

    fn packet(&self, index: PacketIndex) -> Option<&'a TracedPacket> {
        self.timeline
            .processes
            .get(index.process)?
            .queue_pairs
            .get(index.queue_pair)?
            .packets
            .get(index.packet)
    }

    /// Returns the first post, and the last completion that was polled with its process.
    fn ends(&self) -> Option<(u64, (u64, usize))> {
        let (mut first_ns, mut last) = (None::<u64>, None::<(u64, usize)>);
        for (process, one) in self.timeline.processes.iter().enumerate() {
            for qp in &one.queue_pairs {
                for message in &qp.messages {
                    first_ns = Some(first_ns.map_or(message.posted_ns, |ns| ns.min(message.posted_ns)));
                    last = last.max(message.polled_ns.map(|ns| (ns, process)));
                }
                last = last
                    .max(qp.receives.iter().filter_map(|one| one.polled_ns).max().map(|ns| (ns, process)));
            }
        }
        first_ns.zip(last)
    }

    fn walk(&self) -> Option<RunBounds> {
        let (first_ns, (mut at_ns, mut process)) = self.ends()?;
        let mut bounds = RunBounds { total_ns: at_ns.saturating_sub(first_ns), ..RunBounds::default() };
        let most = self.arrivals.iter().map(Vec::len).sum::<usize>() * 2 + 1;
        // Damaged traces may have arrows in a circle at one time.
        for _ in 0..most {
            let since = |ns: u64| at_ns.saturating_sub(ns.max(first_ns));
            let Some((arrived_ns, number)) = self.last_arrival(process, at_ns) else {
                bounds.program_ns += since(0);
                break;
            };
            bounds.program_ns += since(arrived_ns);
            if arrived_ns <= first_ns {
                break;
            }
            let Some((sender, sent)) = self.departure(process, number, first_ns, &mut bounds) else { break };
            (at_ns, process) = self.enabled_ns(sender, sent, &mut bounds);
            if at_ns <= first_ns {
                break;
            }
        }
        Some(bounds)
    }

    /// Returns the latest arrival at a process up to a time, with its number.
    fn last_arrival(&self, process: usize, at_ns: u64) -> Option<(u64, usize)> {
        let all = self.arrivals.get(process)?;
        let number = all.partition_point(|(ns, _)| *ns <= at_ns).checked_sub(1)?;
        all.get(number).map(|(ns, _)| (*ns, number))
    }

    /// Goes back along arrivals that followed each other, to a packet that waited for no other. Returns where
    /// that was sent.
    fn departure(
        &self,
        process: usize,
        mut number: usize,
        first_ns: u64,
        bounds: &mut RunBounds,
    ) -> Option<(PacketIndex, &'a TracedPacket)> {
        let all = self.arrivals.get(process)?;
        loop {
            let (arrived_ns, to) = *all.get(number)?;
            let from = *self.sent.get(&(to.process, to.queue_pair, to.packet))?;
            let sent = self.packet(from)?;
            let before = number.checked_sub(1).and_then(|before| all.get(before));
            if let Some((before_ns, _)) =
                before.filter(|(ns, _)| self.follows(from, sent, arrived_ns, process, *ns))
            {
                bounds.wire_ns += arrived_ns.saturating_sub((*before_ns).max(first_ns));
                if *before_ns <= first_ns {
                    return None;
                }
                number -= 1;
                continue;
            }
            bounds.round_trips_ns += arrived_ns.saturating_sub(sent.at_ns.max(first_ns));
            bounds.ways += 1;
            return Some((from, sent));
        }
    }

    /// Reports whether a packet arrived when it did because another one arrived before it.
    fn follows(
        &self,
        from: PacketIndex,
        sent: &TracedPacket,
        arrived_ns: u64,
        process: usize,
        before_ns: u64,
    ) -> bool {
        if sent.at_ns >= before_ns {
            return false;
        }
        if Opcode::from_byte(sent.opcode).info().is_some_and(|info| !info.position.begins()) {
            return true;
        }
        let key = (from.process, process, sent.opcode, sent.length);
        let fastest_ns = self.fastest_ns.get(&key).copied().unwrap_or(0);
        let took_ns = arrived_ns.saturating_sub(sent.at_ns);
        took_ns.saturating_sub(fastest_ns) > fastest_ns / QUEUED_PART
    }

    /// Returns what a packet was sent for: the process, and the time of its post or of the packet before, up
    /// to which that process is looked at next.
    fn enabled_ns(&self, from: PacketIndex, sent: &TracedPacket, bounds: &mut RunBounds) -> (u64, usize) {
        let process = from.process;
        let Some(qp) =
            self.timeline.processes.get(process).and_then(|one| one.queue_pairs.get(from.queue_pair))
        else {
            return (sent.at_ns, process);
        };
        if sent.transmission > 1 {
            let earlier = qp.packets.get(..from.packet).unwrap_or_default().iter().rev();
            let again = |one: &&TracedPacket| one.is_sent && one.psn == sent.psn && one.side == sent.side;
            if let Some(before) = earlier.take(1 << 16).find(again) {
                bounds.waits_ns += sent.at_ns.saturating_sub(before.at_ns);
                return (before.at_ns, process);
            }
        }
        let last_ns = self.last_arrival(process, sent.at_ns).map_or(0, |(ns, _)| ns);
        let until = qp.messages.partition_point(|message| message.posted_ns <= sent.at_ns);
        let earlier = qp.messages.get(..until).unwrap_or_default().iter().rev();
        let own = earlier.take(1 << 16).find(|message| sent.side == 0 && message.number == sent.message);
        match own.filter(|message| message.posted_ns > last_ns) {
            Some(message) => {
                bounds.wire_ns += sent.at_ns.saturating_sub(message.posted_ns);
                (message.posted_ns, process)
            }
            None => (sent.at_ns, process),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::{Arrow, Message, TimelineProcess, TracedQueuePair};

    fn packet(at_ns: u64, is_sent: bool, opcode: u8, message: u64) -> TracedPacket {
        TracedPacket {
            at_ns,
            is_sent,
            is_lost: false,
            is_dropped: false,
            side: u8::from(opcode == 17),
            opcode,
            psn: message as u32,
            length: 20,
            transmission: 1,
            message,
            other_qpn: 1,
            path: None,
        }
    }

    /// Two SENDs, each posted when the one before was acknowledged: 100 ns out, 50 ns back, 10 ns between.
    fn two_in_turn() -> Timeline {
        let (mut client, mut server, mut arrows) = (Vec::new(), Vec::new(), Vec::new());
        let mut messages = Vec::new();
        for number in 0..2_u64 {
            let posted_ns = 1000 + number * 160;
            client.push(packet(posted_ns, true, 4, number));
            server.push(packet(posted_ns + 100, false, 4, 0));
            server.push(packet(posted_ns + 100, true, 17, number));
            client.push(packet(posted_ns + 150, false, 17, 0));
            let at = |process, packet| PacketIndex { process, queue_pair: 0, packet };
            let first = number as usize * 2;
            arrows.push(Arrow { from: at(0, first), to: at(1, first) });
            arrows.push(Arrow { from: at(1, first + 1), to: at(0, first + 1) });
            messages.push(Message {
                number,
                posted_ns,
                polled_ns: Some(posted_ns + 150),
                ..Message::default()
            });
        }
        let process = |packets, messages| TimelineProcess {
            queue_pairs: vec![TracedQueuePair { packets, messages, ..TracedQueuePair::default() }],
            ..TimelineProcess::default()
        };
        Timeline {
            processes: vec![process(client, messages), process(server, Vec::new())],
            arrows,
            ..Timeline::default()
        }
    }

    #[test]
    fn messages_in_turn_are_bound_by_their_round_trips() {
        let bounds = RunBounds::of(&two_in_turn()).expect("it has messages");
        let RunBounds { total_ns, round_trips_ns, program_ns, ways, .. } = bounds;
        assert_eq!((total_ns, round_trips_ns, program_ns, ways), (310, 300, 10, 4));
        let said = bounds.to_string();
        assert!(said.ends_with("round trips 96 %, the programs 3 % (4 ways one after the other)"), "{said}");
        assert_eq!(RunBounds::of(&Timeline::default()), None);
    }

    #[test]
    fn packets_that_follow_each_other_are_bound_by_the_wire() {
        let mut timeline = two_in_turn();
        // The second SEND is posted at once, and arrives 40 ns behind the first.
        let [client, server] = &mut timeline.processes[..] else { panic!("there are two") };
        let (client, server) = (&mut client.queue_pairs[0], &mut server.queue_pairs[0]);
        client.messages[1] =
            Message { number: 1, posted_ns: 1000, polled_ns: Some(1190), ..Message::default() };
        (client.packets[2].at_ns, client.packets[3].at_ns) = (1000, 1190);
        (server.packets[2].at_ns, server.packets[3].at_ns) = (1140, 1140);
        let bounds = RunBounds::of(&timeline).expect("it has messages");
        let RunBounds { total_ns, round_trips_ns, wire_ns, ways, .. } = bounds;
        assert_eq!((total_ns, round_trips_ns, wire_ns, ways), (190, 150, 40, 2));
    }
}
