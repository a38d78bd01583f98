//! Asynchronous events that the program never reads.

use pumice_model::event::AsyncElement;
use pumice_platform::call_stack::Stack;
use pumice_transport::types::AsyncEventType;

use crate::check::context::{CheckContext, FindingParts, counted};
use crate::check::kind::ASYNC_EVENTS_NEVER_READ;
use crate::check::notified::{Check, ExplainedFailure};

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
