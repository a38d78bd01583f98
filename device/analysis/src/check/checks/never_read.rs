//! Completion queues that are never polled, events that are never read, and calls that wait for
//! acknowledgements.

use pumice_model::event::AsyncElement;
use pumice_platform::call_stack::Stack;
use pumice_transport::types::AsyncEventType;

use crate::check::context::{CheckContext, FindingParts, counted, related};
use crate::check::kind::{ASYNC_EVENTS_NEVER_READ, COMPLETIONS_NEVER_POLLED, EVENTS_NOT_ACKNOWLEDGED};
use crate::check::notified::{Check, ExplainedFailure};
use crate::check::queues::Cq;

/// Number of completions after which the program has had time to poll.
const COMPLETIONS_OF_AN_OLD_QUEUE: u64 = 4;

/// The check for queues that get completions and are never polled.
#[derive(Debug, Default)]
pub(super) struct NeverPolled;

impl Check for NeverPolled {
    fn cq_destroyed(&mut self, context: &mut CheckContext, handle: u32) {
        let found = context.cqs.get(&handle).and_then(found_of);
        found.into_iter().for_each(|one| context.found(&COMPLETIONS_NEVER_POLLED, one));
    }

    /// The program might have polled the queue next, so nothing is reported.
    fn is_ended_by_signal(&mut self, context: &mut CheckContext) {
        let is_old = |cq: &&Cq| cq.successes >= COMPLETIONS_OF_AN_OLD_QUEUE;
        let found: Vec<FindingParts> = context.cqs.values().filter(is_old).filter_map(found_of).collect();
        found.into_iter().for_each(|one| context.found(&COMPLETIONS_NEVER_POLLED, one));
    }

    fn ends(&mut self, context: &mut CheckContext) {
        let found: Vec<FindingParts> = context.cqs.values().filter_map(found_of).collect();
        found.into_iter().for_each(|one| context.found(&COMPLETIONS_NEVER_POLLED, one));
    }
}

fn found_of(cq: &Cq) -> Option<FindingParts> {
    if cq.polls > 0 || cq.successes == 0 {
        return None;
    }
    let numbers =
        format!("{} came to {}, and it was never polled", counted(cq.successes, "completion"), cq.name);
    let (object, stack) = (cq.name.clone(), cq.made.clone());
    Some(FindingParts { object, numbers, stack, related: Vec::new() })
}

/// Reports whether an event says something that a program has to know.
const fn is_important(event: AsyncEventType) -> bool {
    matches!(
        event,
        AsyncEventType::CqErr
            | AsyncEventType::QpFatal
            | AsyncEventType::QpReqErr
            | AsyncEventType::QpAccessErr
            | AsyncEventType::SrqErr
            | AsyncEventType::SrqLimitReached
    )
}

/// The check for programs that read no asynchronous events although some came whose content nothing else
/// reports.
#[derive(Debug, Default)]
pub(super) struct NeverRead {
    /// The program has read an event.
    is_read: bool,
    has_ended: bool,
    raised: u64,
    /// First of these events: its name, its object, and the call site that made the object.
    first: Option<(&'static str, String, Stack)>,
}

impl Check for NeverRead {
    fn forked(&mut self, _: &mut CheckContext) {
        *self = NeverRead::default();
    }

    fn async_event_raised(
        &mut self,
        context: &mut CheckContext,
        event: AsyncEventType,
        element: AsyncElement,
    ) {
        let (AsyncElement::Cq { cookie } | AsyncElement::Qp { cookie, .. } | AsyncElement::Srq { cookie }) =
            element
        else {
            return;
        };
        // An event without an object is the device's own, or that of an object that a call made for itself.
        if let (true, Some(object)) = (is_important(event), context.objects.at(cookie)) {
            self.raised = self.raised.saturating_add(1);
            self.first.get_or_insert_with(|| (event.name(), object.name(), object.made.clone()));
        }
    }

    fn async_event_got(&mut self, _: &mut CheckContext, _: u64) {
        self.is_read = true;
    }

    fn ends(&mut self, _: &mut CheckContext) {
        self.has_ended = true;
    }

    /// Failures, which raise such events, are reported by then.
    fn settles(&mut self, context: &mut CheckContext, is_over: bool, _: &mut Vec<ExplainedFailure>) {
        let first = self.first.take_if(|_| is_over && self.has_ended && !self.is_read);
        let Some((name, object, stack)) = first else { return };
        let numbers = format!(
            "{} came, the first of them {name} of {object}, and the program never called ibv_get_async_event",
            counted(self.raised, "asynchronous event")
        );
        context.found(&ASYNC_EVENTS_NEVER_READ, FindingParts { object, numbers, stack, related: Vec::new() });
    }
}

/// The check for programs that destroy an object, and have not acknowledged events of it for a second.
#[derive(Debug, Default)]
pub(super) struct WaitingCalls;

impl Check for WaitingCalls {
    fn waits_for_acknowledgements(
        &mut self,
        context: &mut CheckContext,
        address: u64,
        count: u64,
        events: &str,
        remedy: &str,
    ) {
        let stack = context.here();
        let known = context.objects.at(address).map(|object| (object.made.clone(), object.name()));
        // An object that a call of librdmacm made for an identifier is none of the objects that the program
        // has made.
        let (made, object) = known.unzip();
        let object = object.unwrap_or_else(|| "an object that librdmacm made".to_owned());
        let numbers = format!(
            "events of {object} that are not acknowledged: {count} {events} ({remedy}); the call blocks \
             until they are"
        );
        let related = made.iter().map(|made| related(format!("{object} was made here"), made)).collect();
        context.found(&EVENTS_NOT_ACKNOWLEDGED, FindingParts { object, numbers, stack, related });
    }
}
