//! Turns the outcomes of a stream's packets into rules. Only packets on which a plan would decide count.

use std::collections::{BTreeMap, VecDeque};

use pumice_device::faults::PacketClass;
use pumice_device::faults::frontier::{Answers, Requests, unwrap24};
use pumice_transport::wire::{OperationClass, Position, Service, Syndrome};

use super::rules::{FaultRules, PacketFault, RuleKey};
use super::sides::{CaptureSides, NotReady, PacketOutcome, PacketStream, Sighting};

/// A packet that took this much longer than the fastest one counts as late, in ns.
pub(super) const LATE_NS: u64 = 5_000_000;

/// Mask of the 24 bits of PSNs and message numbers.
const WRAP: u32 = 0x00ff_ffff;

/// The requests of a queue pair, each once: where they begin, counted from the first.
struct RequestIndex {
    first_psn: u32,
    /// Number of the message that begins at a packet, by the number of packets before it.
    starts: BTreeMap<u64, u64>,
    /// For each message that an ACK answers, the number of its last packet.
    ends: BTreeMap<u64, u64>,
}

impl RequestIndex {
    /// Collects the requests; `None` if there are none.
    fn of(sent: &[&Sighting]) -> Option<RequestIndex> {
        let requests = || sent.iter().filter(|one| one.info.is_request);
        let first_psn = requests().next()?.psn;
        let (mut near, mut packets) = (0, BTreeMap::new());
        let mut reads: Vec<(u64, u32)> = Vec::new();
        for one in requests() {
            let number = unwrap24(near, one.psn.wrapping_sub(first_psn) & WRAP);
            near = near.max(number);
            if packets.contains_key(&number) {
                continue;
            }
            if let (OperationClass::Read, Some((address, length))) = (one.info.class, one.memory) {
                // The rest of a READ that was requested before is no request of its own.
                let end = address.wrapping_add(length.into());
                let is_rest =
                    |read: &(u64, u32)| read.0.wrapping_add(read.1.into()) == end && read.0 < address;
                if reads.last().is_some_and(is_rest) {
                    continue;
                }
                reads.push((address, length));
            }
            let begins = matches!(one.info.position, Position::First | Position::Only);
            let is_acknowledged = !matches!(one.info.class, OperationClass::Read | OperationClass::Atomic);
            packets.insert(number, (begins, is_acknowledged));
        }
        let mut messages = 0_u64;
        let (mut starts, mut ends) = (BTreeMap::new(), BTreeMap::new());
        for (number, (begins, is_acknowledged)) in packets {
            messages += u64::from(begins);
            let message = messages.saturating_sub(1);
            starts.insert(number, message);
            if is_acknowledged {
                ends.insert(message, number);
            }
        }
        Some(RequestIndex { first_psn, starts, ends })
    }

    /// Returns the number of PSNs that the request of this packet takes, up to the next one.
    fn psn_count(&self, number: u64) -> u32 {
        let next = self.starts.range(number.saturating_add(1)..).next();
        next.map_or(1, |(next, _)| u32::try_from(next - number).unwrap_or(1))
    }

    /// Returns the message to which a PSN belongs.
    fn message(&self, number: u64) -> u64 {
        self.starts.range(..=number).next_back().map_or(0, |(_, message)| *message)
    }

    /// Counts these PSNs that belong to the requests.
    fn fits(&self, psns: &[u32]) -> usize {
        let end = self.starts.last_key_value().map_or(0, |(last, _)| last.saturating_add(1));
        psns.iter().filter(|psn| u64::from(psn.wrapping_sub(self.first_psn) & WRAP) < end).count()
    }
}

/// Adds the rules of a stream.
pub(super) fn walk(sides: &CaptureSides<'_>, stream: &PacketStream<'_>, rules: &mut FaultRules) {
    if let Some(request_index) = RequestIndex::of(&stream.sent) {
        requests(stream, &request_index, not_ready(sides, stream, &request_index), rules);
    }
    let answers =
        stream.sent.iter().filter(|one| !one.info.is_request && one.info.class != OperationClass::Cnp);
    let psns: Vec<u32> = answers.map(|one| one.psn).collect();
    if let Some(request_index) = answered_requests(sides, stream, &psns) {
        self::answers(stream, &request_index, rules);
    }
}

/// Returns the RNR NAKs for the requests of a stream: those from its destination whose PSNs are among them.
fn not_ready(sides: &CaptureSides<'_>, stream: &PacketStream<'_>, request_index: &RequestIndex) -> NotReady {
    let known = [sides.arrived(stream.destination), sides.sent(stream.destination)];
    let known = known.into_iter().find(|known| !known.is_empty()).unwrap_or_default();
    let mut found = NotReady::new();
    // Another process may have the same address.
    let is_own = |one: &&&Sighting| stream.own_qpn.is_none_or(|own| own == one.qpn);
    for one in known.iter().filter(|one| one.destination == stream.source).filter(is_own) {
        if let Some((syndrome, _)) = one.answer
            && let Syndrome::RnrNak { timer_code } = Syndrome::from_byte(syndrome)
            && request_index.fits(&[one.psn]) == 1
        {
            found.entry(one.psn).or_default().push_back(timer_code);
        }
    }
    found
}

/// Returns the requests that a stream answers: those that arrived at the queue pair that sends it or, if that
/// is unknown, those in the other direction whose PSNs fit best.
fn answered_requests(
    sides: &CaptureSides<'_>,
    stream: &PacketStream<'_>,
    psns: &[u32],
) -> Option<RequestIndex> {
    if psns.is_empty() {
        return None;
    }
    let mut by_queue_pair: BTreeMap<u32, Vec<&Sighting>> = BTreeMap::new();
    let is_request = |one: &&&Sighting| one.destination == stream.source && one.info.is_request;
    if let Some(own) = stream.own_qpn {
        let arrived = sides.arrived(stream.destination).iter().filter(is_request);
        let to_own: Vec<&Sighting> = arrived.copied().filter(|one| one.qpn == own).collect();
        if let Some(request_index) = RequestIndex::of(&to_own) {
            return Some(request_index);
        }
    }
    let known = [sides.sent(stream.destination), sides.arrived(stream.destination)];
    let known = known.into_iter().find(|known| !known.is_empty()).unwrap_or_default();
    for one in known.iter().filter(is_request) {
        by_queue_pair.entry(one.qpn).or_default().push(one);
    }
    let all = by_queue_pair.values().filter_map(|requests| RequestIndex::of(requests));
    all.max_by_key(|request_index| request_index.fits(psns))
}

/// Returns the outcome of a packet, which counts as lost if the sender went back to it.
fn outcome(stream: &PacketStream<'_>, index: usize, retransmits_from: &[bool]) -> PacketOutcome {
    if stream.sent.get(index).is_none_or(|one| one.is_lost) {
        return PacketOutcome::default();
    }
    match &stream.outcomes {
        Some(outcomes) => outcomes.get(index).copied().unwrap_or_default(),
        None if retransmits_from.get(index).copied().unwrap_or(false) => PacketOutcome::default(),
        None => PacketOutcome { arrived_at: Some(index), ..PacketOutcome::default() },
    }
}

/// Returns, for each packet, whether the sender goes back to it later, which means that it was lost or is
/// assumed to be.
fn retransmits_from(stream: &PacketStream<'_>, is_counted: impl Fn(&Sighting) -> bool) -> Vec<bool> {
    let mut again = vec![false; stream.sent.len()];
    let mut last: BTreeMap<u32, usize> = BTreeMap::new();
    let mut before: Option<u32> = None;
    for (index, one) in stream.sent.iter().enumerate().filter(|(_, one)| is_counted(one)) {
        // PSNs increase, except when a sender goes back.
        let steps_back = before.is_some_and(|before| before.wrapping_sub(one.psn) & WRAP < WRAP / 2);
        if steps_back && let Some(earlier) = last.get(&one.psn).and_then(|earlier| again.get_mut(*earlier)) {
            *earlier = true;
        }
        last.insert(one.psn, index);
        before = Some(one.psn);
    }
    again
}

fn requests(
    stream: &PacketStream<'_>,
    request_index: &RequestIndex,
    mut not_ready: NotReady,
    rules: &mut FaultRules,
) {
    let back = retransmits_from(stream, |one| one.info.is_request);
    let (mut frontier, mut near) = (Requests::default(), 0);
    for (index, one) in stream.sent.iter().enumerate().filter(|(_, one)| one.info.is_request) {
        let relative = one.psn.wrapping_sub(request_index.first_psn) & WRAP;
        let is_reliable = one.info.service.is_reliable();
        near = unwrap24(near, relative).max(near);
        let at = if is_reliable {
            let Some(step) = frontier.attempt(relative) else { continue };
            (step.packet, step.transmission)
        } else {
            (near, 1)
        };
        let outcome = outcome(stream, index, &back);
        let message = request_index.message(at.0);
        // The n-th NAK of these answers the n-th transmission that arrived.
        let came = outcome.arrived_at.is_some() || stream.outcomes.is_none() && !one.is_lost;
        let timer_code = not_ready.get_mut(&one.psn).filter(|_| came).and_then(VecDeque::pop_front);
        if let Some(timer_code) = timer_code {
            let key = key(stream, one, message, at);
            rules.add(PacketFault::NotReady { timer_code }, key, false);
            frontier.decided(false, request_index.psn_count(at.0));
            continue;
        }
        let arrives = add_outcome(stream, one, &outcome, message, at, one.is_damaged, rules);
        frontier.decided(arrives, request_index.psn_count(at.0));
    }
}

fn answers(stream: &PacketStream<'_>, request_index: &RequestIndex, rules: &mut FaultRules) {
    let back = retransmits_from(stream, carries_data);
    let (mut frontier, mut near, mut done) = (Answers::default(), 0, 0_u64);
    for (index, one) in stream.sent.iter().enumerate().filter(|(_, one)| !one.info.is_request) {
        let number = unwrap24(near, one.psn.wrapping_sub(request_index.first_psn) & WRAP);
        near = near.max(number);
        if carries_data(one) {
            if let Some((_, msn)) = one.answer {
                done = done.max(unwrap24(done, msn));
            }
            let Some(found) = frontier.attempt(number) else { continue };
            let at = (found.packet, found.transmission);
            let outcome = outcome(stream, index, &back);
            let arrives =
                add_outcome(stream, one, &outcome, request_index.message(number), at, one.is_damaged, rules);
            frontier.decided(found, arrives);
        } else if let Some((syndrome, msn)) = one.answer
            && matches!(Syndrome::from_byte(syndrome), Syndrome::Ack { .. })
        {
            let (first, last) = (done, unwrap24(done, msn));
            done = done.max(last);
            // An ACK acknowledges all messages since the one before it. A plan does not decide about an ACK
            // that acknowledges nothing new.
            let outcome = outcome(stream, index, &back);
            let lost = stream.outcomes.is_some() && outcome.arrived_at.is_none();
            // A plan decides about the ACK of each message, even where one packet acknowledges several.
            for (message, packet) in request_index.ends.range(first..last.max(first)) {
                let key = || key(stream, one, *message, (*packet, 1));
                if lost {
                    rules.add(PacketFault::Drop, key(), one.is_lost);
                } else if outcome.late_ns >= LATE_NS && message + 1 == last {
                    rules.add(PacketFault::Delay { ns: outcome.late_ns }, key(), one.is_planned);
                }
            }
        }
    }
}

/// Reports whether the packet is an answer with data, which a plan may lose again and again.
fn carries_data(one: &Sighting) -> bool {
    matches!(one.info.class, OperationClass::ReadResponse | OperationClass::AtomicAnswer)
}

/// Adds the rules for a packet; returns whether it arrived in a form that the receiver accepts.
fn add_outcome(
    stream: &PacketStream<'_>,
    one: &Sighting,
    outcome: &PacketOutcome,
    message: u64,
    at: (u64, u32),
    left_damaged: bool,
    rules: &mut FaultRules,
) -> bool {
    let is_planned = one.is_planned || left_damaged;
    if outcome.arrived_at.is_none() && stream.outcomes.is_none() && !one.is_lost {
        rules.presume_lost(key(stream, one, message, at), is_planned);
        return false;
    }
    let mut add = |fault| rules.add(fault, key(stream, one, message, at), is_planned);
    if outcome.arrived_at.is_none() {
        add(PacketFault::Drop);
        return false;
    }
    if outcome.is_damaged || left_damaged {
        add(PacketFault::Corrupt);
        return false;
    }
    if outcome.copies > 0 {
        add(PacketFault::Duplicate { copies: outcome.copies });
    }
    if outcome.late_ns >= LATE_NS {
        add(PacketFault::Delay { ns: outcome.late_ns });
    } else if outcome.overtaken_by > 0 {
        add(PacketFault::Reorder { packets: outcome.overtaken_by });
    }
    true
}

fn key(
    stream: &PacketStream<'_>,
    one: &Sighting,
    message: u64,
    (packet, transmission): (u64, u32),
) -> RuleKey {
    let class = match one.info.class {
        OperationClass::Send => PacketClass::Send,
        OperationClass::Write => PacketClass::Write,
        OperationClass::Read => PacketClass::Read,
        OperationClass::Atomic => PacketClass::Atomic,
        OperationClass::Flush => PacketClass::Flush,
        OperationClass::ReadResponse => PacketClass::ReadResponse,
        OperationClass::AtomicAnswer => PacketClass::AtomicResponse,
        OperationClass::Cnp => PacketClass::Cnp,
        OperationClass::Acknowledge => PacketClass::Ack,
    };
    RuleKey {
        peer: stream.destination,
        service: match one.info.service {
            Service::Uc => "uc",
            Service::Xrc => "xrc",
            _ => "rc",
        },
        side: if one.info.is_request { "requester" } else { "responder" },
        qp: stream.ordinal,
        opcode: class.name(),
        message,
        packet,
        transmission,
        peer_key: None,
    }
}

#[cfg(test)]
#[path = "walk_tests.rs"]
mod tests;
