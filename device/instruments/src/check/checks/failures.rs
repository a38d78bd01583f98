//! Queue pairs that fail: each failure is told once, by its cause if that is known.
//!
//! A failure is seen from both ends, and often has a cause that another check finds a moment earlier or
//! later. So it is held back until the other end has had time to fail, too, and told as an effect if another
//! finding names one of its queue pairs.

use std::collections::VecDeque;

use pumice_events::Event;
use pumice_ground::call_stack::Stack;
use pumice_transport::event::QpEvent;
use pumice_transport::host::QpContext;
use pumice_transport::types::{Cause, Detail, DropReason, FailedSend, QpState, WcStatus, WorkCompletion};

use crate::check::context::{Context, Found, related};
use crate::check::facts::Modified;
use crate::check::kept::{Kept, Of};
use crate::check::kind::{DATAGRAM_TOO_LONG, FAILURE_INJECTED, QUEUE_PAIR_FAILED};
use crate::check::queues::Qp;
use crate::check::recorded::Related;
use crate::check::told::{Check, Effect, Hint};

/// Posts of a queue pair whose places are kept.
const MAX_POSTS: usize = 1024;
/// Queue pairs that are remembered after they were destroyed.
const MAX_GONE: usize = 1024;
/// Queue pairs that are named of those that failed for one cause.
const MAX_NAMED: usize = 4;
/// Failures that are held back at once; further ones are told at once.
const MAX_HELD: usize = 64;
/// Send requests to a queue pair in the error state until that is told. One or two are how a program learns
/// that all before them have been flushed.
const IN_VAIN: u32 = 3;
/// Looks until a failure is told, one each 25 ms: half a second, in which its cause may be found.
const LOOKS: u32 = 20;

/// Queue pairs went to an error state.
#[derive(Debug, Default)]
pub(super) struct Failures {
    queue_pairs: Kept<QueuePair>,
    gone: VecDeque<(u32, Stack)>,
    held: Vec<Held>,
}

/// What is kept of a queue pair.
#[derive(Debug, Default)]
struct QueuePair {
    sends: VecDeque<(u64, Stack)>,
    receives: VecDeque<(u64, Stack)>,
    /// The program knows that it is in the error state, since this place if that is one.
    known_failed: Option<Stack>,
    /// Send requests posted since.
    posted_in_vain: u32,
    /// Why packets for it were dropped.
    dropped: Option<DropReason>,
    /// The rule of a fault plan that applied to it: what happens then is no mistake of the program.
    injured_by: Option<String>,
}

/// Failures of one cause.
struct Siblings {
    /// The first.
    found: Found,
    /// The objects of the others.
    others: Vec<String>,
}

impl Siblings {
    /// Whether a failure has the same cause: what is said of both differs in numbers only, and the requests
    /// were posted by one call of the program.
    fn has(&self, other: &Found) -> bool {
        let first = |found: &Found| found.stack.addresses().first().copied();
        first(&self.found) == first(other) && shape_of(&self.found.numbers) == shape_of(&other.numbers)
    }

    /// One paragraph, however many they are.
    fn tell(self, context: &mut Context) {
        let Siblings { mut found, others } = self;
        let object = found.object.clone();
        if let Some((last, first)) = others.split_last() {
            let named = first.iter().chain([last]).take(MAX_NAMED).cloned().collect::<Vec<_>>().join(", ");
            let more = if others.len() > MAX_NAMED { " and more" } else { "" };
            let count = others.len();
            let other = if count == 1 { "other" } else { "others" };
            found.numbers.push_str(&format!("; and {count} {other} of the same cause: {named}{more}"));
        }
        context.found(&QUEUE_PAIR_FAILED, found);
        others.iter().for_each(|_| context.found_again(&QUEUE_PAIR_FAILED, &object));
    }
}

/// A sentence without its numbers.
fn shape_of(sentence: &str) -> Vec<&str> {
    let has_digit = |word: &&str| word.bytes().any(|byte| byte.is_ascii_digit());
    sentence.split_ascii_whitespace().filter(|word| !has_digit(word)).collect()
}

/// A failure that is not told yet.
#[derive(Debug)]
struct Held {
    /// As the log has it.
    sentence: String,
    found: Found,
    /// Names of the queue pairs, of which another finding may tell.
    names: Vec<String>,
    /// The queue pair of this process whose request was refused, until it has failed.
    refused: Option<u32>,
    looks: u32,
    /// The log has told of it.
    is_told: bool,
}

impl QueuePair {
    fn keep(posts: &mut VecDeque<(u64, Stack)>, wr_id: u64, stack: Stack) {
        if posts.len() >= MAX_POSTS {
            posts.pop_front();
        }
        posts.push_back((wr_id, stack));
    }

    /// Where the oldest request of this name was posted. Older ones have ended.
    fn place_of(posts: &VecDeque<(u64, Stack)>, wr_id: u64) -> Option<Stack> {
        posts.iter().find(|(known, _)| *known == wr_id).map(|(_, stack)| stack.clone())
    }

    fn end(posts: &mut VecDeque<(u64, Stack)>, wr_id: u64) {
        if posts.front().is_some_and(|(known, _)| *known == wr_id) {
            posts.pop_front();
        } else if let Some(place) = posts.iter().position(|(known, _)| *known == wr_id) {
            // Requests of a queue end in turn, and unsignaled ones without a word.
            posts.drain(..=place);
        }
    }
}

impl Check for Failures {
    fn forget(&mut self, of: Option<Of>) {
        self.queue_pairs.forget(of);
        if of.is_none() {
            self.gone.clear();
            self.held.clear();
        }
    }

    fn hears(&mut self, context: &mut Context, event: &Event<'_>) {
        match event {
            Event::Qp { qp, event: QpEvent::StateChanged { to, .. } }
                if context.qps.contains_key(&qp.qpn.value()) =>
            {
                let own = self.queue_pairs.of(Of::Qp(qp.qpn.value()));
                match to {
                    QpState::Reset => *own = QueuePair::default(),
                    QpState::Rtr => own.dropped = None,
                    _ => {}
                }
            }
            Event::FaultApplied { qpn: Some(qpn), fault } => {
                self.is_injured(context, qpn.value(), fault.rule)
            }
            Event::CompletionFaultApplied { qpn, fault } => self.is_injured(context, qpn.value(), fault.rule),
            _ => {}
        }
    }

    #[inline]
    fn hears_of_message(&mut self, context: &mut Context, qp: &QpContext, event: &QpEvent<'_>) {
        let number = qp.qpn.value();
        match event {
            QpEvent::SendPosted { wr_id, .. } => self.send_posted_here(context, number, *wr_id),
            QpEvent::RecvPosted { request } => {
                let own = self.queue_pairs.of(Of::Qp(number));
                QueuePair::keep(&mut own.receives, request.wr_id, context.here());
            }
            QpEvent::Completed { completion, .. } if completion.status == WcStatus::Success => {
                let own = self.queue_pairs.of(Of::Qp(number));
                let is_receive = completion.opcode.is_recv();
                let posts = if is_receive { &mut own.receives } else { &mut own.sends };
                QueuePair::end(posts, completion.wr_id);
            }
            _ => {}
        }
    }

    fn logged(&mut self, context: &mut Context, number: u32, cause: &Cause, hint: Option<&Hint>) {
        if let Cause::PacketDropped { reason, .. } = cause
            && context.qps.contains_key(&number)
        {
            self.queue_pairs.of(Of::Qp(number)).dropped = Some(*reason);
        }
        if let Cause::MessageDropped { detail: Detail::Room { wr_id, .. }, .. } = cause {
            self.tell_too_long(context, number, *wr_id, cause);
        }
        if cause.is_usual() || !cause.is_fatal() {
            return;
        }
        if let Some(rule) = self.queue_pairs.of(Of::Qp(number)).injured_by.clone() {
            return self.tell_injected(context, number, cause, &rule);
        }
        if *cause == Cause::Planned {
            return;
        }
        match cause {
            Cause::SendFailed(failed) => self.send_failed_of(context, number, failed, hint),
            _ => self.hold(context, number, cause, hint),
        }
    }

    fn qp_modified(&mut self, context: &mut Context, modified: &Modified<'_>) {
        if modified.to == Some(QpState::Err)
            && modified.facts.is_done
            && context.qps.contains_key(&modified.number)
        {
            let own = self.queue_pairs.of(Of::Qp(modified.number));
            own.known_failed = Some(modified.stack.clone());
        }
    }

    fn polled(&mut self, context: &mut Context, _: u32, completion: &WorkCompletion) {
        let number = completion.qp_num;
        let is_error = completion.status != WcStatus::Success;
        if is_error && context.qps.get(&number).is_some_and(|qp| qp.state == QpState::Err) {
            self.queue_pairs.of(Of::Qp(number)).known_failed.get_or_insert_default();
        }
    }

    fn qp_destroyed(&mut self, context: &mut Context, number: u32) {
        if self.gone.len() >= MAX_GONE {
            self.gone.pop_front();
        }
        self.gone.push_back((number, context.here()));
    }

    fn settles(&mut self, context: &mut Context, is_over: bool, effects: &mut Vec<Effect>) {
        // What has failed since for the same cause is told with it.
        let due: Vec<Vec<String>> = self
            .held
            .iter()
            .filter(|held| held.looks >= LOOKS)
            .map(|held| shape_of(&held.found.numbers).into_iter().map(str::to_owned).collect())
            .collect();
        let (ripe, unripe) = std::mem::take(&mut self.held).into_iter().partition(|held: &Held| {
            is_over || held.looks >= LOOKS || due.iter().any(|shape| shape_of(&held.found.numbers) == *shape)
        });
        self.held = unripe;
        self.held.iter_mut().for_each(|held| held.looks += 1);
        let mut causes: Vec<Siblings> = Vec::new();
        for Held { sentence, found, names, is_told, .. } in ripe {
            if context.is_found_of(&names) {
                effects.push(Effect { sentence, place: found.stack, is_told });
            } else if let Some(cause) = causes.iter_mut().find(|cause| cause.has(&found)) {
                cause.others.push(found.object);
            } else {
                causes.push(Siblings { found, others: Vec::new() });
            }
        }
        causes.into_iter().for_each(|cause| cause.tell(context));
    }
}

impl Failures {
    /// The program has posted a send request here.
    fn send_posted_here(&mut self, context: &mut Context, number: u32, wr_id: u64) {
        let own = self.queue_pairs.of(Of::Qp(number));
        QueuePair::keep(&mut own.sends, wr_id, context.here());
        if own.known_failed.is_some() {
            own.posted_in_vain = own.posted_in_vain.saturating_add(1);
            if own.posted_in_vain == IN_VAIN {
                posts_in_vain(context, number, own);
            }
        }
    }

    /// A rule applied to a queue pair, and so to its peer.
    fn is_injured(&mut self, context: &Context, number: u32, rule: &str) {
        let Some(qp) = context.qps.get(&number) else { return };
        let other = qp.destination.filter(|other| context.qps.contains_key(other));
        for one in std::iter::once(number).chain(other) {
            let by = &mut self.queue_pairs.of(Of::Qp(one)).injured_by;
            if by.as_deref() != Some(rule) {
                *by = Some(rule.to_owned());
            }
        }
    }

    /// A datagram was longer than its receive.
    fn tell_too_long(&mut self, context: &mut Context, number: u32, wr_id: u64, cause: &Cause) {
        let Some(qp) = context.qps.get(&number) else { return };
        let place = QueuePair::place_of(&self.queue_pairs.of(Of::Qp(number)).receives, wr_id);
        let (object, related) = (qp.name.clone(), vec![made_here(qp)]);
        let (numbers, stack) = (format!("{object} {cause}"), place.unwrap_or_default());
        context.found(&DATAGRAM_TOO_LONG, Found { object, numbers, stack, related });
    }

    /// A queue pair failed to which a rule applied.
    fn tell_injected(&mut self, context: &mut Context, number: u32, cause: &Cause, rule: &str) {
        let Some(qp) = context.qps.get(&number) else { return };
        let own = self.queue_pairs.of(Of::Qp(number));
        let posted = match cause {
            Cause::SendFailed(failed) => QueuePair::place_of(&own.sends, failed.wr_id),
            _ => receive_of(cause).and_then(|id| QueuePair::place_of(&own.receives, id)),
        };
        let (object, related) = (qp.name.clone(), vec![made_here(qp)]);
        let numbers =
            format!("rule \"{rule}\" of the fault plan applied to {object}, which failed then: {cause}");
        let stack = posted.unwrap_or_default();
        context.found(&FAILURE_INJECTED, Found { object, numbers, stack, related });
    }

    /// A send request failed: the refusal of the other end, if that is of this process, is its cause.
    fn send_failed_of(&mut self, context: &Context, number: u32, failed: &FailedSend, hint: Option<&Hint>) {
        let Some(qp) = context.qps.get(&number) else { return };
        let stack = QueuePair::place_of(&self.queue_pairs.of(Of::Qp(number)).sends, failed.wr_id);
        let stack = stack.unwrap_or_default();
        let name = &qp.name;
        if let Some(held) = self.held.iter_mut().find(|held| held.refused == Some(number)) {
            let FailedSend { wr_id, opcode, length_bytes, status, .. } = failed;
            held.found.numbers = format!(
                "request {wr_id:#x} of {name} ({}, {length_bytes} bytes) failed with {}: {}",
                opcode.name(),
                status.name(),
                held.found.numbers
            );
            held.found.object.clone_from(name);
            held.found.stack = stack;
            held.names.push(name.clone());
            held.refused = None;
            return;
        }
        let Hint { text, mut related } = hint.cloned().unwrap_or_default();
        related.push(made_here(qp));
        let mut numbers = format!("{name}: {failed}{text}");
        let peer = failed.peer.map(|peer| peer.qpn.value()).filter(|_| qp.peer_is_here);
        if let Some((why, place)) = peer.and_then(|peer| self.unanswered(context, failed, peer)) {
            let FailedSend { wr_id, opcode, length_bytes, status, .. } = failed;
            numbers = format!(
                "request {wr_id:#x} of {name} ({}, {length_bytes} bytes) failed with {}: {why}",
                opcode.name(),
                status.name()
            );
            related.insert(0, place);
        }
        let mut names = names_of(context, qp);
        let other = peer.and_then(|peer| context.qps.get(&peer));
        names.extend(other.map(|other| other.name.clone()));
        let found = Found { object: name.clone(), numbers, stack, related };
        self.push(Held {
            sentence: format!("{name} {failed}"),
            found,
            names,
            refused: None,
            looks: 0,
            is_told: false,
        });
    }

    /// Why a queue pair of this process with that number did not answer.
    fn unanswered(&mut self, context: &Context, failed: &FailedSend, peer: u32) -> Option<(String, Related)> {
        if failed.status != WcStatus::RetryExcErr {
            return None;
        }
        if let Some(end) = context.qps.get(&peer) {
            let other = self.queue_pairs.of(Of::Qp(peer));
            if let (QpState::Err, Some(since)) = (end.state, other.known_failed.clone()) {
                let why = format!("its peer, {}, is in the error state, and receives nothing", end.name);
                return Some((why, related("the peer was moved to the error state here", &since)));
            }
            let reason = other.dropped.filter(|_| !failed.was_acknowledged)?;
            return Some((format!("{} dropped what came: {reason}", end.name), made_here(end)));
        }
        let (_, destroyed) = self.gone.iter().rev().find(|(gone, _)| *gone == peer)?;
        let why = format!("this process has destroyed its peer, queue pair number {peer:#x}");
        Some((why, related("that queue pair was destroyed here", destroyed)))
    }

    /// Another failure than that of a send request.
    fn hold(&mut self, context: &Context, number: u32, cause: &Cause, hint: Option<&Hint>) {
        let Some(qp) = context.qps.get(&number) else { return };
        let own = self.queue_pairs.of(Of::Qp(number));
        let Hint { text, related: known } = hint.cloned().unwrap_or_default();
        let mut related = known;
        let mut stack = Stack::default();
        if let Some(posted) = receive_of(cause).and_then(|id| QueuePair::place_of(&own.receives, id)) {
            stack = posted.clone();
            related.push(Related { what: "the receive was posted here".to_owned(), place: posted });
        }
        related.push(made_here(qp));
        let numbers = format!("{} {cause}{text}", qp.name);
        let is_told = matches!(cause, Cause::CqOverrun { .. });
        let is_refusal = matches!(cause, Cause::RequestRefused { .. });
        let asker = qp.destination.filter(|_| is_refusal && qp.peer_is_here);
        let refused = asker.filter(|other| context.qps.contains_key(other));
        let mut names = names_of(context, qp);
        names.extend(refused.and_then(|other| context.qps.get(&other)).map(|other| other.name.clone()));
        let found = Found { object: qp.name.clone(), numbers, stack, related };
        self.push(Held {
            sentence: format!("{} {cause}", qp.name),
            found,
            names,
            refused,
            looks: 0,
            is_told,
        });
    }

    fn push(&mut self, held: Held) {
        if self.held.len() >= MAX_HELD {
            // It is told at the next look, without its other end.
            self.held.iter_mut().for_each(|held| held.looks = LOOKS);
        }
        self.held.push(held);
    }
}

/// The program goes on with a queue pair of which it knows that it has failed.
fn posts_in_vain(context: &mut Context, number: u32, own: &QueuePair) {
    let stack = context.here();
    let Some(qp) = context.qps.get(&number) else { return };
    let failed = own.known_failed.clone().unwrap_or_default();
    let since = Related { what: "it was moved to the error state here".to_owned(), place: failed };
    let numbers = format!(
        "{IN_VAIN} send requests were posted to {}, which is in the error state: they are flushed \
         (WR_FLUSH_ERR), and nothing is sent",
        qp.name
    );
    let (object, related) = (qp.name.clone(), vec![since, made_here(qp)]);
    context.found(&QUEUE_PAIR_FAILED, Found { object, numbers, stack, related });
}

/// The receive request that a failure is about.
fn receive_of(cause: &Cause) -> Option<u64> {
    match cause {
        Cause::RequestRefused { detail, .. } | Cause::ReceiveFailed { detail, .. } => match detail {
            Detail::Receive { wr_id, .. } | Detail::Room { wr_id, .. } => Some(*wr_id),
            _ => None,
        },
        _ => None,
    }
}

fn made_here(qp: &Qp) -> Related {
    related(format!("{} was made here", qp.name), &qp.made)
}

/// What findings call a queue pair and its completion queues.
fn names_of(context: &Context, qp: &Qp) -> Vec<String> {
    let queues = [qp.send_cq, qp.recv_cq];
    let queues = queues.iter().filter_map(|handle| context.cqs.get(handle)).map(|cq| cq.name.clone());
    std::iter::once(qp.name.clone()).chain(queues).collect()
}
