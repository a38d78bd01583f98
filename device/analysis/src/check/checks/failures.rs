//! Queue pairs that fail: each failure is reported once, by its cause if that is known.
//!
//! A failure is visible at both ends, and often has a cause that another check finds a moment earlier or
//! later. So it is held back until the other end has had time to fail, too, and reported as an effect if
//! another finding names one of its queue pairs.

use std::collections::VecDeque;

use pumice_model::event::Event;
use pumice_platform::call_stack::Stack;
use pumice_transport::event::QpEvent;
use pumice_transport::host::QpContext;
use pumice_transport::types::{
    Cause, DropReason, FailedSend, FailureDetail, QpState, WcStatus, WorkCompletion,
};

use crate::check::context::{CheckContext, FindingParts, related};
use crate::check::kind::{DATAGRAM_TOO_LONG, FAILURE_INJECTED, QUEUE_PAIR_FAILED};
use crate::check::notified::{Check, ExplainedFailure, Hint, PerQueue, QueueName};
use crate::check::queues::{Modified, Qp};
use crate::check::recorded::RelatedCallSite;

/// Number of posts of a queue pair whose call sites are stored.
const MAX_POSTS: usize = 1024;
/// Number of queue pairs that are remembered after they were destroyed.
const MAX_FORMER: usize = 1024;
/// Number of queue pairs that are named of those that failed for one cause.
const MAX_NAMED: usize = 4;
/// Number of failures that are held back at once; further ones are reported at once.
const MAX_HELD: usize = 64;
/// Number of send requests to a queue pair in the error state before they are reported. By posting one or two
/// a program learns that all before them have been flushed.
const MAX_FUTILE_POSTS: u32 = 3;
/// Number of looks, one each 25 ms, until a failure is reported: half a second, in which its cause may be
/// found.
const SETTLE_ROUNDS: u32 = 20;

/// The check for queue pairs that went to an error state.
#[derive(Debug, Default)]
pub(super) struct Failures {
    queue_pairs: PerQueue<FailureState>,
    former: VecDeque<(u32, Stack)>,
    held: Vec<HeldFailure>,
}

/// State of a queue pair.
#[derive(Debug, Default)]
struct FailureState {
    sends: VecDeque<(u64, Stack)>,
    receives: VecDeque<(u64, Stack)>,
    /// Call site at which the program learned that the queue pair is in the error state, if it did.
    known_failed: Option<Stack>,
    /// Number of send requests posted since then.
    futile_posts: u32,
    /// Reason why packets for the queue pair were dropped.
    dropped: Option<DropReason>,
    /// Rule of a fault plan that applied to the queue pair: what happens then is no mistake of the program.
    injured_by: Option<String>,
}

/// Failures of one cause.
struct Siblings {
    /// First of the failures.
    found: FindingParts,
    /// Objects of the other failures.
    others: Vec<String>,
}

impl Siblings {
    /// Reports whether a failure has the same cause: both texts differ in numbers only, and one call of the
    /// program posted the requests.
    fn has(&self, other: &FindingParts) -> bool {
        let first = |found: &FindingParts| found.stack.addresses().first().copied();
        first(&self.found) == first(other) && shape_of(&self.found.numbers) == shape_of(&other.numbers)
    }

    /// Reports all of the failures in one paragraph.
    fn report(self, context: &mut CheckContext) {
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

/// Returns the pieces of a sentence without its numbers.
fn shape_of(sentence: &str) -> Vec<&str> {
    let has_digit = |word: &&str| word.bytes().any(|byte| byte.is_ascii_digit());
    sentence.split_ascii_whitespace().filter(|word| !has_digit(word)).collect()
}

/// A failure that is not reported yet.
#[derive(Debug)]
struct HeldFailure {
    /// Sentence of the log.
    sentence: String,
    found: FindingParts,
    /// Names of the queue pairs, by which another finding may refer to the failure.
    names: Vec<String>,
    /// Queue pair of this process whose request was refused, until it has failed.
    refused: Option<u32>,
    rounds: u32,
    /// The failure is in the log already.
    is_reported: bool,
}

impl FailureState {
    fn remember(posts: &mut VecDeque<(u64, Stack)>, wr_id: u64, stack: Stack) {
        if posts.len() >= MAX_POSTS {
            posts.pop_front();
        }
        posts.push_back((wr_id, stack));
    }

    /// Returns the call site where the oldest request of this name was posted. Older requests have ended.
    fn post_site_of(posts: &VecDeque<(u64, Stack)>, wr_id: u64) -> Option<Stack> {
        posts.iter().find(|(known, _)| *known == wr_id).map(|(_, stack)| stack.clone())
    }

    fn end(posts: &mut VecDeque<(u64, Stack)>, wr_id: u64) {
        if posts.front().is_some_and(|(known, _)| *known == wr_id) {
            posts.pop_front();
        } else if let Some(call_site) = posts.iter().position(|(known, _)| *known == wr_id) {
            // Requests of a queue end in turn, and unsignaled ones without a completion.
            posts.drain(..=call_site);
        }
    }
}

impl Check for Failures {
    fn forget(&mut self, of: Option<QueueName>) {
        self.queue_pairs.forget(of);
        if of.is_none() {
            self.former.clear();
            self.held.clear();
        }
    }

    fn on_event(&mut self, context: &mut CheckContext, event: &Event<'_>) {
        match event {
            Event::Qp { qp, event: QpEvent::StateChanged { to, .. } }
                if context.qps.contains_key(&qp.qpn.value()) =>
            {
                let own = self.queue_pairs.of(QueueName::Qp(qp.qpn.value()));
                match to {
                    QpState::Reset => *own = FailureState::default(),
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
    fn on_message_event(&mut self, context: &mut CheckContext, qp: &QpContext, event: &QpEvent<'_>) {
        let number = qp.qpn.value();
        match event {
            QpEvent::SendPosted { wr_id, .. } => self.send_posted_here(context, number, *wr_id),
            QpEvent::RecvPosted { request } => {
                let own = self.queue_pairs.of(QueueName::Qp(number));
                FailureState::remember(&mut own.receives, request.wr_id, context.here());
            }
            QpEvent::Completed { completion, .. } if completion.status == WcStatus::Success => {
                let own = self.queue_pairs.of(QueueName::Qp(number));
                let is_receive = completion.opcode.is_recv();
                let posts = if is_receive { &mut own.receives } else { &mut own.sends };
                FailureState::end(posts, completion.wr_id);
            }
            _ => {}
        }
    }

    fn logged(&mut self, context: &mut CheckContext, number: u32, cause: &Cause, hint: Option<&Hint>) {
        if let Cause::PacketDropped { reason, .. } = cause
            && context.qps.contains_key(&number)
        {
            self.queue_pairs.of(QueueName::Qp(number)).dropped = Some(*reason);
        }
        if let Cause::MessageDropped { detail: FailureDetail::Room { wr_id, .. }, .. } = cause {
            self.report_too_long(context, number, *wr_id, cause);
        }
        if cause.is_usual() || !cause.is_fatal() {
            return;
        }
        if let Some(rule) = self.queue_pairs.of(QueueName::Qp(number)).injured_by.clone() {
            return self.report_injected(context, number, cause, &rule);
        }
        if *cause == Cause::Planned {
            return;
        }
        match cause {
            Cause::SendFailed(failed) => self.send_failed_of(context, number, failed, hint),
            _ => self.hold(context, number, cause, hint),
        }
    }

    fn qp_modified(&mut self, context: &mut CheckContext, modified: &Modified<'_>) {
        if modified.to == Some(QpState::Err)
            && modified.facts.is_done
            && context.qps.contains_key(&modified.number)
        {
            let own = self.queue_pairs.of(QueueName::Qp(modified.number));
            own.known_failed = Some(modified.stack.clone());
        }
    }

    fn polled(&mut self, context: &mut CheckContext, _: u32, completion: &WorkCompletion) {
        let number = completion.qp_num;
        let is_error = completion.status != WcStatus::Success;
        if is_error && context.qps.get(&number).is_some_and(|qp| qp.state == QpState::Err) {
            self.queue_pairs.of(QueueName::Qp(number)).known_failed.get_or_insert_default();
        }
    }

    fn qp_destroyed(&mut self, context: &mut CheckContext, number: u32) {
        if self.former.len() >= MAX_FORMER {
            self.former.pop_front();
        }
        self.former.push_back((number, context.here()));
    }

    fn settles(&mut self, context: &mut CheckContext, is_over: bool, effects: &mut Vec<ExplainedFailure>) {
        // Failures of the same cause that came since are reported together.
        let due: Vec<Vec<String>> = self
            .held
            .iter()
            .filter(|held| held.rounds >= SETTLE_ROUNDS)
            .map(|held| shape_of(&held.found.numbers).into_iter().map(str::to_owned).collect())
            .collect();
        let (ripe, unripe) = std::mem::take(&mut self.held).into_iter().partition(|held: &HeldFailure| {
            is_over
                || held.rounds >= SETTLE_ROUNDS
                || due.iter().any(|shape| shape_of(&held.found.numbers) == *shape)
        });
        self.held = unripe;
        self.held.iter_mut().for_each(|held| held.rounds += 1);
        let mut causes: Vec<Siblings> = Vec::new();
        for HeldFailure { sentence, found, names, is_reported, .. } in ripe {
            if context.is_found_of(&names) {
                effects.push(ExplainedFailure { sentence, call_site: found.stack, is_reported });
            } else if let Some(cause) = causes.iter_mut().find(|cause| cause.has(&found)) {
                cause.others.push(found.object);
            } else {
                causes.push(Siblings { found, others: Vec::new() });
            }
        }
        causes.into_iter().for_each(|cause| cause.report(context));
    }
}

impl Failures {
    /// Records a send request that the program has posted at this call site.
    fn send_posted_here(&mut self, context: &mut CheckContext, number: u32, wr_id: u64) {
        let own = self.queue_pairs.of(QueueName::Qp(number));
        FailureState::remember(&mut own.sends, wr_id, context.here());
        if own.known_failed.is_some() {
            own.futile_posts = own.futile_posts.saturating_add(1);
            if own.futile_posts == MAX_FUTILE_POSTS {
                report_futile_posts(context, number, own);
            }
        }
    }

    /// Records that a rule applied to a queue pair, and so to its peer.
    fn is_injured(&mut self, context: &CheckContext, number: u32, rule: &str) {
        let Some(qp) = context.qps.get(&number) else { return };
        let other = qp.destination.filter(|other| context.qps.contains_key(other));
        for one in std::iter::once(number).chain(other) {
            let by = &mut self.queue_pairs.of(QueueName::Qp(one)).injured_by;
            if by.as_deref() != Some(rule) {
                *by = Some(rule.to_owned());
            }
        }
    }

    /// Reports a datagram that was longer than its receive.
    fn report_too_long(&mut self, context: &mut CheckContext, number: u32, wr_id: u64, cause: &Cause) {
        let Some(qp) = context.qps.get(&number) else { return };
        let call_site =
            FailureState::post_site_of(&self.queue_pairs.of(QueueName::Qp(number)).receives, wr_id);
        let (object, related) = (qp.name.clone(), vec![made_here(qp)]);
        let (numbers, stack) = (format!("{object} {cause}"), call_site.unwrap_or_default());
        context.found(&DATAGRAM_TOO_LONG, FindingParts { object, numbers, stack, related });
    }

    /// Reports the failure of a queue pair to which a rule applied.
    fn report_injected(&mut self, context: &mut CheckContext, number: u32, cause: &Cause, rule: &str) {
        let Some(qp) = context.qps.get(&number) else { return };
        let own = self.queue_pairs.of(QueueName::Qp(number));
        let posted = match cause {
            Cause::SendFailed(failed) => FailureState::post_site_of(&own.sends, failed.wr_id),
            _ => receive_of(cause).and_then(|id| FailureState::post_site_of(&own.receives, id)),
        };
        let (object, related) = (qp.name.clone(), vec![made_here(qp)]);
        let numbers =
            format!("rule \"{rule}\" of the fault plan applied to {object}, which failed then: {cause}");
        let stack = posted.unwrap_or_default();
        context.found(&FAILURE_INJECTED, FindingParts { object, numbers, stack, related });
    }

    /// Handles the failure of a send request: if the other end is in this process, its refusal is the cause.
    fn send_failed_of(
        &mut self,
        context: &CheckContext,
        number: u32,
        failed: &FailedSend,
        hint: Option<&Hint>,
    ) {
        let Some(qp) = context.qps.get(&number) else { return };
        let stack =
            FailureState::post_site_of(&self.queue_pairs.of(QueueName::Qp(number)).sends, failed.wr_id);
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
        if let Some((why, call_site)) = peer.and_then(|peer| self.unanswered(context, failed, peer)) {
            let FailedSend { wr_id, opcode, length_bytes, status, .. } = failed;
            numbers = format!(
                "request {wr_id:#x} of {name} ({}, {length_bytes} bytes) failed with {}: {why}",
                opcode.name(),
                status.name()
            );
            related.insert(0, call_site);
        }
        let mut names = names_of(context, qp);
        let other = peer.and_then(|peer| context.qps.get(&peer));
        names.extend(other.map(|other| other.name.clone()));
        let found = FindingParts { object: name.clone(), numbers, stack, related };
        self.push(HeldFailure {
            sentence: format!("{name} {failed}"),
            found,
            names,
            refused: None,
            rounds: 0,
            is_reported: false,
        });
    }

    /// Returns why a queue pair of this process with that number did not answer.
    fn unanswered(
        &mut self,
        context: &CheckContext,
        failed: &FailedSend,
        peer: u32,
    ) -> Option<(String, RelatedCallSite)> {
        if failed.status != WcStatus::RetryExcErr {
            return None;
        }
        if let Some(end) = context.qps.get(&peer) {
            let other = self.queue_pairs.of(QueueName::Qp(peer));
            if let (QpState::Err, Some(since)) = (end.state, other.known_failed.clone()) {
                let why = format!("its peer, {}, is in the error state, and receives nothing", end.name);
                return Some((why, related("the peer was moved to the error state here", &since)));
            }
            let reason = other.dropped.filter(|_| !failed.was_acknowledged)?;
            return Some((format!("{} dropped what came: {reason}", end.name), made_here(end)));
        }
        let (_, destroyed) = self.former.iter().rev().find(|(former, _)| *former == peer)?;
        let why = format!("this process has destroyed its peer, queue pair number {peer:#x}");
        Some((why, related("that queue pair was destroyed here", destroyed)))
    }

    /// Holds back a failure other than that of a send request.
    fn hold(&mut self, context: &CheckContext, number: u32, cause: &Cause, hint: Option<&Hint>) {
        let Some(qp) = context.qps.get(&number) else { return };
        let own = self.queue_pairs.of(QueueName::Qp(number));
        let Hint { text, related: known } = hint.cloned().unwrap_or_default();
        let mut related = known;
        let mut stack = Stack::default();
        if let Some(posted) = receive_of(cause).and_then(|id| FailureState::post_site_of(&own.receives, id)) {
            stack = posted.clone();
            related
                .push(RelatedCallSite { what: "the receive was posted here".to_owned(), call_site: posted });
        }
        related.push(made_here(qp));
        let numbers = format!("{} {cause}{text}", qp.name);
        let is_reported = matches!(cause, Cause::CqOverrun { .. });
        let is_refusal = matches!(cause, Cause::RequestRefused { .. });
        let asker = qp.destination.filter(|_| is_refusal && qp.peer_is_here);
        let refused = asker.filter(|other| context.qps.contains_key(other));
        let mut names = names_of(context, qp);
        names.extend(refused.and_then(|other| context.qps.get(&other)).map(|other| other.name.clone()));
        let found = FindingParts { object: qp.name.clone(), numbers, stack, related };
        self.push(HeldFailure {
            sentence: format!("{} {cause}", qp.name),
            found,
            names,
            refused,
            rounds: 0,
            is_reported,
        });
    }

    fn push(&mut self, held: HeldFailure) {
        if self.held.len() >= MAX_HELD {
            // The failures are reported at the next look, without their other ends.
            self.held.iter_mut().for_each(|held| held.rounds = SETTLE_ROUNDS);
        }
        self.held.push(held);
    }
}

/// Reports a program that goes on with a queue pair although it knows that the queue pair has failed.
fn report_futile_posts(context: &mut CheckContext, number: u32, own: &FailureState) {
    let stack = context.here();
    let Some(qp) = context.qps.get(&number) else { return };
    let failed = own.known_failed.clone().unwrap_or_default();
    let since =
        RelatedCallSite { what: "it was moved to the error state here".to_owned(), call_site: failed };
    let numbers = format!(
        "{MAX_FUTILE_POSTS} send requests were posted to {}, which is in the error state: they are flushed \
         (WR_FLUSH_ERR), and nothing is sent",
        qp.name
    );
    let (object, related) = (qp.name.clone(), vec![since, made_here(qp)]);
    context.found(&QUEUE_PAIR_FAILED, FindingParts { object, numbers, stack, related });
}

/// Returns the receive request that a failure is about.
fn receive_of(cause: &Cause) -> Option<u64> {
    match cause {
        Cause::RequestRefused { detail, .. } | Cause::ReceiveFailed { detail, .. } => match detail {
            FailureDetail::Receive { wr_id, .. } | FailureDetail::Room { wr_id, .. } => Some(*wr_id),
            _ => None,
        },
        _ => None,
    }
}

fn made_here(qp: &Qp) -> RelatedCallSite {
    related(format!("{} was made here", qp.name), &qp.calls.made)
}

/// Returns the names of a queue pair and its completion queues in findings.
fn names_of(context: &CheckContext, qp: &Qp) -> Vec<String> {
    let queues = [qp.send_cq, qp.recv_cq];
    let queues = queues.iter().filter_map(|handle| context.cqs.get(handle)).map(|cq| cq.name.clone());
    std::iter::once(qp.name.clone()).chain(queues).collect()
}
