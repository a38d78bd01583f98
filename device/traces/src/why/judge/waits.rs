//! Why a message waited: to be sent, for a receive request, for its completion.

use super::super::cause::{Cause, CauseKind};
use super::super::clues::cause_of;
use super::super::loss::MessageIndex;
use super::super::times::Span;
use super::super::words::time;
use super::{Case, Judge, REACH, needs_response};
use crate::format::FaultWhat;
use crate::timeline::{FaultFact, Message, SetbackKind};

impl<'a> Judge<'a> {
    pub(super) fn of_send_queue(&mut self, case: &Case<'a>, span: &Span, depth: u8) -> Cause {
        if let Some(cause) = read_depth(case, span) {
            return cause;
        }
        let before = self.before(case, span.from_ns);
        if let Some(index) = before
            && depth > 0
            && let Some(judged) = self.judge_within(index, depth - 1)
            && !judged.cause.kind.is_ordinary()
            && !matches!(judged.cause.kind, CauseKind::PollsLate | CauseKind::Unsignaled)
        {
            return judged.cause;
        }
        if let Some(cause) = self.congestion(case, span).or_else(|| self.rate(case, span)) {
            return cause;
        }
        if let Some(cause) = window(case, span).or_else(|| no_room(case, span)) {
            return cause;
        }
        match before {
            Some(_) => {
                let sentence = format!("requests before it were on their way for {}", time(span.ns()));
                Cause::new(CauseKind::Behind, case.index.0, sentence)
            }
            None if case.message.is_behind_unseen => Cause::new(
                CauseKind::Behind,
                case.index.0,
                "requests that were posted before the recording were under way",
            ),
            None => Cause::new(CauseKind::OwnDevice, case.index.0, "the queue pair waited to send"),
        }
    }

    /// The oldest message of the queue pair that was under way at a time.
    pub(super) fn before(&self, case: &Case<'a>, at_ns: u64) -> Option<MessageIndex> {
        let (process, queue_pair, number) = case.index;
        let first = number.saturating_sub(REACH);
        let earlier = case.qp.messages.get(first..number)?.iter().enumerate();
        let is_open = |one: &Message| {
            let over_ns = one.acknowledged_ns.or(one.end.map(|end| end.at_ns));
            one.connection == case.message.connection && over_ns.is_none_or(|over_ns| over_ns > at_ns)
        };
        let (oldest, _) = earlier.filter(|(_, one)| is_open(one)).min_by_key(|(index, _)| *index)?;
        Some((process, queue_pair, first + oldest))
    }

    pub(super) fn of_receiver(&mut self, case: &Case<'a>, span: &Span, depth: u8) -> Cause {
        let process = case.index.0;
        let setback = span.setback.and_then(|number| case.message.setbacks.get(number)).copied();
        let key = (process, case.qp.ordinal, 0, case.message.number);
        if let Some(fact) = self.clues.of_message(key, &[FaultWhat::Refused], span.to_ns) {
            return cause_of(fact, process);
        }
        if let Some(other) = setback.filter(|setback| !setback.is_own)
            && let Some(cause) = self.of_other(case, &other, depth)
        {
            return cause;
        }
        let first_ns = case.message.setbacks.iter().find_map(|one| match one.kind {
            SetbackKind::ReceiverNotReady { .. } => Some(one.at_ns),
            _ => None,
        });
        let first_ns = first_ns.unwrap_or(span.from_ns);
        let over_ns = case.message.acknowledged_ns.unwrap_or(case.end_ns);
        let naks = case.qp.rnr_naks_ns.iter().filter(|at_ns| (first_ns..=over_ns).contains(*at_ns)).count();
        let refused = format!("the peer had no receive request for it ({naks} RNR NAKs)");
        let Some(peer) = case.owner.peer().and_then(|peer| peer.qp()) else {
            return Cause::new(
                CauseKind::NoReceive,
                process,
                format!("{refused}; the peer's trace would tell when its program polled and posted"),
            );
        };
        let unpolled = peer.receives.iter().filter(|one| {
            let waits = one.polled_ns.is_none_or(|polled_ns| polled_ns > first_ns);
            one.end.at_ns <= first_ns && waits
        });
        let oldest = unpolled.map(|one| (one.end.at_ns, one.polled_ns)).min();
        let wait_ns = over_ns.saturating_sub(first_ns);
        let late = oldest.map(|(ended_ns, polled_ns)| polled_ns.unwrap_or(over_ns).saturating_sub(ended_ns));
        // A poll that comes soon is none that holds the sender up.
        if let Some(late_ns) = late.filter(|late_ns| *late_ns >= wait_ns / 2) {
            let sentence = format!(
                "{refused}: its program polled slowly, the completion of an earlier receive waited {}",
                time(late_ns)
            );
            return Cause::new(CauseKind::PeerPollsLate, process, sentence);
        }
        let later = peer.receives.iter().filter_map(|one| one.posted_ns).filter(|at| *at > first_ns).min();
        match later {
            Some(posted_ns) => Cause::new(
                CauseKind::PeerPostsLate,
                process,
                format!(
                    "{refused}: its program posted one {} after the first of them",
                    time(posted_ns.saturating_sub(first_ns))
                ),
            ),
            None => Cause::new(
                CauseKind::NoReceive,
                process,
                format!("{refused}, and its program posted none after that"),
            ),
        }
    }

    pub(super) fn of_completion(&mut self, case: &Case<'a>, span: &Span, depth: u8) -> Cause {
        let process = case.index.0;
        let stretch = (span.from_ns, span.to_ns);
        let is_late = |fact: &FaultFact| {
            let is_own = fact.qp == Some(case.qp.ordinal) && fact.side == 0;
            fact.what == FaultWhat::CompletionLate && is_own
        };
        let late = self.clues.lasting(process, stretch, is_late);
        if let Some(late) = late.filter(|late| late.ns >= span.ns() / 3) {
            return cause_of(late.fact, process);
        }
        let key = (process, case.qp.ordinal, 0, case.message.number);
        if let Some(fact) = self.clues.of_message(key, &[FaultWhat::CompletionLate], span.to_ns) {
            return cause_of(fact, process);
        }
        let has_own = case.message.end.map_or(case.message.signaled, |end| end.has_completion);
        if !has_own {
            let sentence = match case.message.end {
                Some(_) => format!(
                    "it is unsignaled, so it was over only with the next signaled request of its queue pair, \
                     {} after its acknowledgement",
                    time(span.ns())
                ),
                None => {
                    "it is unsignaled and acknowledged, and no signaled request came after it: no completion \
                         can come"
                        .to_owned()
                }
            };
            return Cause::new(CauseKind::Unsignaled, process, sentence);
        }
        if let Some(index) = self.before(case, span.from_ns)
            && let Some(depth) = depth.checked_sub(1)
            && let Some(judged) = self.judge_within(index, depth)
            && !judged.cause.kind.is_ordinary()
        {
            return judged.cause;
        }
        let sentence = format!("requests before it had not completed for {}", time(span.ns()));
        Cause::new(CauseKind::Behind, process, sentence)
    }
}

/// As many READs and atomics were under way as may be.
fn read_depth(case: &Case<'_>, span: &Span) -> Option<Cause> {
    let (_, reads) = case.qp.limits?;
    let number = case.index.2;
    let middle_ns = span.from_ns + span.ns() / 2;
    let first = number.saturating_sub(REACH);
    let same = |one: &&Message| one.connection == case.message.connection && needs_response(one.opcode);
    let earlier = case.qp.messages.get(first..number)?.iter().filter(same);
    let over_ns = |one: &Message| one.acknowledged_ns.or(one.end.map(|end| end.at_ns)).unwrap_or(u64::MAX);
    let open = earlier.filter(|one| over_ns(one) > middle_ns);
    let is_sent = |one: &&Message| one.first_packet_ns.is_some_and(|at_ns| at_ns <= middle_ns);
    let sent = open.clone().filter(is_sent).count();
    let waits = needs_response(case.message.opcode) || open.clone().any(|one| !is_sent(&one));
    // The device takes 0 for 1.
    if !waits || sent < usize::from(reads.max(1)) {
        return None;
    }
    let sentence = format!(
        "{sent} READs or atomics were under way, and max_rd_atomic of the queue pair is {reads} (read \
         depth): it waited {} until one was answered",
        time(span.ns())
    );
    Some(Cause::new(CauseKind::ReadDepth, case.index.0, sentence))
}

/// The window was full.
pub(super) fn window(case: &Case<'_>, span: &Span) -> Option<Cause> {
    let near = case.qp.measures.iter().filter(|one| (span.from_ns..=span.to_ns).contains(&one.at_ns));
    let full = near.clone().filter(|one| one.in_flight_packets >= one.window_packets).count();
    let least = near.clone().map(|one| one.window_packets).min()?;
    (full * 2 > near.count()).then(|| {
        let sentence = format!(
            "the window was full: {least} packets may be unacknowledged, and as many were, for {}",
            time(span.ns())
        );
        Cause::new(CauseKind::Window, case.index.0, sentence)
    })
}

/// The requests before it filled the window, so that the next one had no room in it. The window is measured
/// when acknowledgements come, which make room at the same time.
fn no_room(case: &Case<'_>, span: &Span) -> Option<Cause> {
    let middle_ns = span.from_ns + span.ns() / 2;
    let known = case.qp.measures.partition_point(|one| one.at_ns <= middle_ns);
    let window = case.qp.measures.get(known.checked_sub(1)?)?.window_packets;
    let number = case.index.2;
    let earlier = case.qp.messages.get(number.saturating_sub(REACH)..=number)?.iter();
    let open = earlier.filter(|one| {
        let over_ns = one.acknowledged_ns.or(one.end.map(|end| end.at_ns)).unwrap_or(u64::MAX);
        one.connection == case.message.connection && over_ns > middle_ns
    });
    let mut under_way = 0_u32;
    for one in open {
        if needs_response(one.opcode) {
            return None;
        }
        let is_sent = one.last_packet_ns.is_some_and(|at_ns| at_ns <= middle_ns);
        if !is_sent {
            // The next one to leave.
            let is_full = under_way > 0 && under_way.saturating_add(one.packets) > window;
            let sentence = format!(
                "the window was full: {window} packets may be unacknowledged, and those of requests before \
                 it were {under_way}, for {}",
                time(span.ns())
            );
            return is_full.then(|| Cause::new(CauseKind::Window, case.index.0, sentence));
        }
        under_way = under_way.saturating_add(one.packets);
    }
    None
}
