//! Judges why a message waited: to be sent, for a receive request, or for its completion.

use super::super::cause::{CauseKind, MessageCause, RnrStorm, time};
use super::super::fact_index::cause_of;
use super::super::loss::MessageIndex;
use super::super::timeline_index::{over_ns, within};
use super::super::times::TimeSpan;
use super::{Judge, JudgedMessage, REACH, needs_response};
use crate::format::TracedFaultAction;
use crate::timeline::{FaultFact, Message, SetbackKind};

impl<'a> Judge<'a> {
    pub(super) fn of_send_queue(
        &mut self,
        case: &JudgedMessage<'a>,
        span: &TimeSpan,
        depth: u8,
    ) -> MessageCause {
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
                MessageCause::new(CauseKind::Behind, case.index.0, sentence)
            }
            None if case.message.is_behind_unseen => MessageCause::new(
                CauseKind::Behind,
                case.index.0,
                "requests that were posted before the recording were under way",
            ),
            None => MessageCause::new(CauseKind::OwnDevice, case.index.0, "the queue pair waited to send"),
        }
    }

    /// Returns the oldest message of the queue pair that was under way at a time.
    pub(super) fn before(&self, case: &JudgedMessage<'a>, at_ns: u64) -> Option<MessageIndex> {
        let (process, queue_pair, number) = case.index;
        let first = number.saturating_sub(REACH);
        // Messages of an earlier connection come before.
        let connection = case.message.connection;
        let of_connection = case.qp.messages.partition_point(|one| one.connection < connection);
        let oldest = case.found.first_open(first.max(of_connection), at_ns)?;
        (oldest < number).then_some((process, queue_pair, oldest))
    }

    pub(super) fn of_receiver(
        &mut self,
        case: &JudgedMessage<'a>,
        span: &TimeSpan,
        depth: u8,
    ) -> MessageCause {
        let process = case.index.0;
        let setback = span.setback.and_then(|number| case.message.setbacks.get(number)).copied();
        let key = (process, case.qp.ordinal, 0, case.message.number);
        if let Some(fact) = self.fact_index.of_message(key, &[TracedFaultAction::Refused], span.to_ns) {
            return cause_of(fact, process);
        }
        if let Some(other) = setback.filter(|setback| !setback.is_own)
            && let Some(cause) = self.of_other(case, &other, depth)
        {
            return cause;
        }
        let first = case.message.setbacks.iter().find_map(|one| match one.kind {
            SetbackKind::ReceiverNotReady { wait_ns, .. } => Some((one.at_ns, wait_ns)),
            _ => None,
        });
        let (first_ns, asked_ns) = first.unwrap_or((span.from_ns, u64::MAX));
        let over_ns = case.message.acknowledged_ns.unwrap_or(case.end_ns);
        let naks = case.found.rnr_naks(first_ns, over_ns);
        let storm = RnrStorm::of(asked_ns, naks);
        MessageCause { storm, ..receiver_not_ready(case, (first_ns, over_ns), naks) }
    }

    pub(super) fn of_completion(
        &mut self,
        case: &JudgedMessage<'a>,
        span: &TimeSpan,
        depth: u8,
    ) -> MessageCause {
        let process = case.index.0;
        let stretch = (span.from_ns, span.to_ns);
        let is_late = |fact: &FaultFact| {
            let is_own = fact.qp == Some(case.qp.ordinal) && fact.side == 0;
            fact.what == TracedFaultAction::CompletionLate && is_own
        };
        let late = self.fact_index.lasting(process, stretch, is_late);
        if let Some(late) = late.filter(|late| late.ns >= span.ns() / 3) {
            return cause_of(late.fact, process);
        }
        let key = (process, case.qp.ordinal, 0, case.message.number);
        if let Some(fact) = self.fact_index.of_message(key, &[TracedFaultAction::CompletionLate], span.to_ns)
        {
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
            return MessageCause::new(CauseKind::Unsignaled, process, sentence);
        }
        if let Some(index) = self.before(case, span.from_ns)
            && let Some(depth) = depth.checked_sub(1)
            && let Some(judged) = self.judge_within(index, depth)
            && !judged.cause.kind.is_ordinary()
        {
            return judged.cause;
        }
        let sentence = format!("requests before it had not completed for {}", time(span.ns()));
        MessageCause::new(CauseKind::Behind, process, sentence)
    }
}

/// Says why the peer had no receive request from a time until the message was over, with this many RNR NAKs.
fn receiver_not_ready(
    case: &JudgedMessage<'_>,
    (first_ns, over_ns): (u64, u64),
    naks: usize,
) -> MessageCause {
    let process = case.index.0;
    let refused = format!("the peer had no receive request for it ({naks} RNR NAKs)");
    let Some(peer) = case.owner.peer().and_then(|peer| peer.found()) else {
        return MessageCause::new(
            CauseKind::NoReceive,
            process,
            format!("{refused}; the peer's trace would tell when its program polled and posted"),
        );
    };
    let oldest = peer.oldest_unpolled(first_ns);
    let wait_ns = over_ns.saturating_sub(first_ns);
    let late = oldest.map(|(ended_ns, polled_ns)| polled_ns.unwrap_or(over_ns).saturating_sub(ended_ns));
    // A poll that comes soon does not hold the sender up.
    if let Some(late_ns) = late.filter(|late_ns| *late_ns >= wait_ns / 2) {
        let sentence = format!(
            "{refused}: its program polled slowly, the completion of an earlier receive waited {}",
            time(late_ns)
        );
        return MessageCause::new(CauseKind::PeerPollsLate, process, sentence);
    }
    match peer.posted_after(first_ns) {
        Some(posted_ns) => MessageCause::new(
            CauseKind::PeerPostsLate,
            process,
            format!(
                "{refused}: its program posted one {} after the first of them",
                time(posted_ns.saturating_sub(first_ns))
            ),
        ),
        None => MessageCause::new(
            CauseKind::NoReceive,
            process,
            format!("{refused}, and its program posted none after that"),
        ),
    }
}

/// Returns the cause if `max_rd_atomic` READs and atomics were under way.
fn read_depth(case: &JudgedMessage<'_>, span: &TimeSpan) -> Option<MessageCause> {
    let (_, reads) = case.qp.limits?;
    let number = case.index.2;
    let middle_ns = span.from_ns + span.ns() / 2;
    let same = |one: &&Message| one.connection == case.message.connection && needs_response(one.opcode);
    let earlier = case.found.open_before(number, REACH, middle_ns).iter().filter(same);
    let open = earlier.filter(|one| over_ns(one) > middle_ns);
    let is_sent = |one: &&Message| one.first_packet_ns.is_some_and(|at_ns| at_ns <= middle_ns);
    let sent = open.clone().filter(is_sent).count();
    let waits = needs_response(case.message.opcode) || open.clone().any(|one| !is_sent(&one));
    // The device treats 0 as 1.
    if !waits || sent < usize::from(reads.max(1)) {
        return None;
    }
    let sentence = format!(
        "{sent} READs or atomics were under way, and max_rd_atomic of the queue pair is {reads} (read \
         depth): it waited {} until one was answered",
        time(span.ns())
    );
    Some(MessageCause::new(CauseKind::ReadDepth, case.index.0, sentence))
}

/// Returns the cause if the window was full.
pub(super) fn window(case: &JudgedMessage<'_>, span: &TimeSpan) -> Option<MessageCause> {
    let near = within(&case.qp.measures, |one| one.at_ns, (span.from_ns, span.to_ns)).iter();
    let full = near.clone().filter(|one| one.in_flight_packets >= one.window_packets).count();
    let least = near.clone().map(|one| one.window_packets).min()?;
    (full * 2 > near.count()).then(|| {
        let sentence = format!(
            "the window was full: {least} packets may be unacknowledged, and as many were, for {}",
            time(span.ns())
        );
        MessageCause::new(CauseKind::Window, case.index.0, sentence)
    })
}

/// Returns the cause if the requests before it filled the window, so that the next one did not fit. The
/// window is measured when acknowledgements arrive, which make room at the same time.
fn no_room(case: &JudgedMessage<'_>, span: &TimeSpan) -> Option<MessageCause> {
    let middle_ns = span.from_ns + span.ns() / 2;
    let known = case.qp.measures.partition_point(|one| one.at_ns <= middle_ns);
    let window = case.qp.measures.get(known.checked_sub(1)?)?.window_packets;
    let number = case.index.2;
    let earlier = case.found.open_before(number + 1, REACH + 1, middle_ns).iter();
    let open = earlier.filter(|one| one.connection == case.message.connection && over_ns(one) > middle_ns);
    let mut under_way = 0_u32;
    for one in open {
        if needs_response(one.opcode) {
            return None;
        }
        let is_sent = one.last_packet_ns.is_some_and(|at_ns| at_ns <= middle_ns);
        if !is_sent {
            // The next request to leave.
            let is_full = under_way > 0 && under_way.saturating_add(one.packets) > window;
            let sentence = format!(
                "the window was full: {window} packets may be unacknowledged, and those of requests before \
                 it were {under_way}, for {}",
                time(span.ns())
            );
            return is_full.then(|| MessageCause::new(CauseKind::Window, case.index.0, sentence));
        }
        under_way = under_way.saturating_add(one.packets);
    }
    None
}
