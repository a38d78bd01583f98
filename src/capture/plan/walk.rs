//! What became of the packets of a stream, as rules: only of those that a plan would be asked about.

use std::collections::{BTreeMap, VecDeque};

use pumice_device::faults::PacketClass;
use pumice_device::faults::frontier::{Answers, Requests, unwrap24};
use pumice_transport::wire::{OperationClass, Position, Service, Syndrome};

use super::rules::{Deed, Key, Rules};
use super::sides::{NotReady, Outcome, Sides, Stream};
use super::sighting::Sighting;

/// What took so much longer than the fastest packet was late.
pub(super) const LATE_NS: u64 = 5_000_000;

/// Messages and PSNs of an answer are counted by 24 bits.
const WRAP: u32 = 0x00ff_ffff;

/// The requests of a queue pair, each once: where they begin, counted from the first.
struct Begun {
    first_psn: u32,
    /// Number of packets before it, and the message that it belongs to.
    starts: BTreeMap<u64, u64>,
    /// Of each message that is answered by an ACK: the number of its last packet.
    ends: BTreeMap<u64, u64>,
}

impl Begun {
    /// `None`: there are no requests.
    fn of(sent: &[&Sighting]) -> Option<Begun> {
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
                // The rest of a READ that was asked for before is no request of its own.
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
        Some(Begun { first_psn, starts, ends })
    }

    /// PSNs that the request of this packet takes: up to the next one.
    fn psn_count(&self, number: u64) -> u32 {
        let next = self.starts.range(number.saturating_add(1)..).next();
        next.map_or(1, |(next, _)| u32::try_from(next - number).unwrap_or(1))
    }

    /// The message to which a PSN belongs.
    fn message(&self, number: u64) -> u64 {
        self.starts.range(..=number).next_back().map_or(0, |(_, message)| *message)
    }

    /// How many of these PSNs belong to it.
    fn fits(&self, psns: &[u32]) -> usize {
        let end = self.starts.last_key_value().map_or(0, |(last, _)| last.saturating_add(1));
        psns.iter().filter(|psn| u64::from(psn.wrapping_sub(self.first_psn) & WRAP) < end).count()
    }
}

/// Adds the rules of a stream.
pub(super) fn walk(sides: &Sides<'_>, stream: &Stream<'_>, rules: &mut Rules) {
    if let Some(begun) = Begun::of(&stream.sent) {
        requests(stream, &begun, not_ready(sides, stream, &begun), rules);
    }
    let answers =
        stream.sent.iter().filter(|one| !one.info.is_request && one.info.class != OperationClass::Cnp);
    let psns: Vec<u32> = answers.map(|one| one.psn).collect();
    if let Some(begun) = asked(sides, stream, &psns) {
        self::answers(stream, &begun, rules);
    }
}

/// The RNR NAKs for the requests of a stream: those from its destination whose PSNs are among them.
fn not_ready(sides: &Sides<'_>, stream: &Stream<'_>, begun: &Begun) -> NotReady {
    let known = [sides.arrived(stream.destination), sides.sent(stream.destination)];
    let known = known.into_iter().find(|known| !known.is_empty()).unwrap_or_default();
    let mut found = NotReady::new();
    // Another process may have the same address.
    let is_own = |one: &&&Sighting| stream.own_qpn.is_none_or(|own| own == one.qpn);
    for one in known.iter().filter(|one| one.destination == stream.source).filter(is_own) {
        if let Some((syndrome, _)) = one.answer
            && let Syndrome::RnrNak { timer_code } = Syndrome::from_byte(syndrome)
            && begun.fits(&[one.psn]) == 1
        {
            found.entry(one.psn).or_default().push_back(timer_code);
        }
    }
    found
}

/// The requests that a stream answers: those that came to the queue pair that sends it, or, if that is not
/// known, those in the other direction whose PSNs fit best.
fn asked(sides: &Sides<'_>, stream: &Stream<'_>, psns: &[u32]) -> Option<Begun> {
    if psns.is_empty() {
        return None;
    }
    let mut by_queue_pair: BTreeMap<u32, Vec<&Sighting>> = BTreeMap::new();
    let is_request = |one: &&&Sighting| one.destination == stream.source && one.info.is_request;
    if let Some(own) = stream.own_qpn {
        let arrived = sides.arrived(stream.destination).iter().filter(is_request);
        let to_own: Vec<&Sighting> = arrived.copied().filter(|one| one.qpn == own).collect();
        if let Some(begun) = Begun::of(&to_own) {
            return Some(begun);
        }
    }
    let known = [sides.sent(stream.destination), sides.arrived(stream.destination)];
    let known = known.into_iter().find(|known| !known.is_empty()).unwrap_or_default();
    for one in known.iter().filter(is_request) {
        by_queue_pair.entry(one.qpn).or_default().push(one);
    }
    let all = by_queue_pair.values().filter_map(|requests| Begun::of(requests));
    all.max_by_key(|begun| begun.fits(psns))
}

/// Whether a packet is lost, as far as is known; `Outcome` says what else happened.
fn outcome(stream: &Stream<'_>, index: usize, goes_back_to: &[bool]) -> Outcome {
    if stream.sent.get(index).is_none_or(|one| one.is_lost) {
        return Outcome::default();
    }
    match &stream.outcomes {
        Some(outcomes) => outcomes.get(index).copied().unwrap_or_default(),
        None if goes_back_to.get(index).copied().unwrap_or(false) => Outcome::default(),
        None => Outcome { arrived_at: Some(index), ..Outcome::default() },
    }
}

/// For each packet, whether the sender goes back to it later: then it was lost, or is taken to be.
fn goes_back_to(stream: &Stream<'_>, is_counted: impl Fn(&Sighting) -> bool) -> Vec<bool> {
    let mut again = vec![false; stream.sent.len()];
    let mut last: BTreeMap<u32, usize> = BTreeMap::new();
    let mut before: Option<u32> = None;
    for (index, one) in stream.sent.iter().enumerate().filter(|(_, one)| is_counted(one)) {
        // PSNs go upwards but for a sender that goes back.
        let steps_back = before.is_some_and(|before| before.wrapping_sub(one.psn) & WRAP < WRAP / 2);
        if steps_back && let Some(earlier) = last.get(&one.psn).and_then(|earlier| again.get_mut(*earlier)) {
            *earlier = true;
        }
        last.insert(one.psn, index);
        before = Some(one.psn);
    }
    again
}

fn requests(stream: &Stream<'_>, begun: &Begun, mut not_ready: NotReady, rules: &mut Rules) {
    let back = goes_back_to(stream, |one| one.info.is_request);
    let (mut frontier, mut near) = (Requests::default(), 0);
    for (index, one) in stream.sent.iter().enumerate().filter(|(_, one)| one.info.is_request) {
        let relative = one.psn.wrapping_sub(begun.first_psn) & WRAP;
        let is_reliable = one.info.service.is_reliable();
        near = unwrap24(near, relative).max(near);
        let at = if is_reliable {
            let Some(step) = frontier.attempt(relative) else { continue };
            (step.packet, step.transmission)
        } else {
            (near, 1)
        };
        let outcome = outcome(stream, index, &back);
        let message = begun.message(at.0);
        // The n-th of these NAKs is for the n-th transmission that came there.
        let came = outcome.arrived_at.is_some() || stream.outcomes.is_none() && !one.is_lost;
        let timer_code = not_ready.get_mut(&one.psn).filter(|_| came).and_then(VecDeque::pop_front);
        if let Some(timer_code) = timer_code {
            let key = key(stream, one, message, at);
            rules.add(Deed::NotReady { timer_code }, key, false);
            frontier.decided(false, begun.psn_count(at.0));
            continue;
        }
        let arrives = say(stream, one, &outcome, message, at, one.is_damaged, rules);
        frontier.decided(arrives, begun.psn_count(at.0));
    }
}

fn answers(stream: &Stream<'_>, begun: &Begun, rules: &mut Rules) {
    let back = goes_back_to(stream, carries_data);
    let (mut frontier, mut near, mut done) = (Answers::default(), 0, 0_u64);
    for (index, one) in stream.sent.iter().enumerate().filter(|(_, one)| !one.info.is_request) {
        let number = unwrap24(near, one.psn.wrapping_sub(begun.first_psn) & WRAP);
        near = near.max(number);
        if carries_data(one) {
            if let Some((_, msn)) = one.answer {
                done = done.max(unwrap24(done, msn));
            }
            let Some(found) = frontier.attempt(number) else { continue };
            let at = (found.packet, found.transmission);
            let outcome = outcome(stream, index, &back);
            let arrives = say(stream, one, &outcome, begun.message(number), at, one.is_damaged, rules);
            frontier.decided(found, arrives);
        } else if let Some((syndrome, msn)) = one.answer
            && matches!(Syndrome::from_byte(syndrome), Syndrome::Ack { .. })
        {
            let (first, last) = (done, unwrap24(done, msn));
            done = done.max(last);
            // An ACK speaks for all messages since the one before it; one that says nothing new is not asked
            // about.
            let outcome = outcome(stream, index, &back);
            let lost = stream.outcomes.is_some() && outcome.arrived_at.is_none();
            // A plan is asked about the ACK of each message, also where one packet speaks for several.
            for (message, packet) in begun.ends.range(first..last.max(first)) {
                let key = || key(stream, one, *message, (*packet, 1));
                if lost {
                    rules.add(Deed::Drop, key(), one.is_lost);
                } else if outcome.late_ns >= LATE_NS && message + 1 == last {
                    rules.add(Deed::Delay { ns: outcome.late_ns }, key(), one.is_planned);
                }
            }
        }
    }
}

/// Whether it is an answer that a plan may lose again and again.
fn carries_data(one: &Sighting) -> bool {
    matches!(one.info.class, OperationClass::ReadResponse | OperationClass::AtomicAnswer)
}

/// Adds the rules about a packet; whether it arrived in a form that is accepted.
fn say(
    stream: &Stream<'_>,
    one: &Sighting,
    outcome: &Outcome,
    message: u64,
    at: (u64, u32),
    left_damaged: bool,
    rules: &mut Rules,
) -> bool {
    let is_planned = one.is_planned || left_damaged;
    let mut add = |deed| rules.add(deed, key(stream, one, message, at), is_planned);
    if outcome.arrived_at.is_none() {
        add(Deed::Drop);
        return false;
    }
    if outcome.is_damaged || left_damaged {
        add(Deed::Corrupt);
        return false;
    }
    if outcome.copies > 0 {
        add(Deed::Duplicate { copies: outcome.copies });
    }
    if outcome.late_ns >= LATE_NS {
        add(Deed::Delay { ns: outcome.late_ns });
    } else if outcome.overtaken_by > 0 {
        add(Deed::Reorder { packets: outcome.overtaken_by });
    }
    true
}

fn key(stream: &Stream<'_>, one: &Sighting, message: u64, (packet, transmission): (u64, u32)) -> Key {
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
    Key {
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
        of_peer: None,
    }
}

#[cfg(test)]
#[path = "walk_tests.rs"]
mod tests;
