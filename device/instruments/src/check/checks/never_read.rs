//! Asynchronous events that the program never reads.

use pumice_events::AsyncElement;
use pumice_ground::call_stack::Stack;
use pumice_transport::types::AsyncEventType;

use crate::check::context::{Context, Found, counted};
use crate::check::kind::ASYNC_EVENTS_NEVER_READ;
use crate::check::told::{Check, Effect};

/// The name of an event that tells of something that a program has to know.
const fn name_of(event: AsyncEventType) -> Option<&'static str> {
    match event {
        AsyncEventType::CqErr => Some("IBV_EVENT_CQ_ERR"),
        AsyncEventType::QpFatal => Some("IBV_EVENT_QP_FATAL"),
        AsyncEventType::QpReqErr => Some("IBV_EVENT_QP_REQ_ERR"),
        AsyncEventType::QpAccessErr => Some("IBV_EVENT_QP_ACCESS_ERR"),
        AsyncEventType::SrqErr => Some("IBV_EVENT_SRQ_ERR"),
        AsyncEventType::SrqLimitReached => Some("IBV_EVENT_SRQ_LIMIT_REACHED"),
        _ => None,
    }
}

/// Events came that tell of something that nothing else tells of, and the program has read none.
#[derive(Debug, Default)]
pub(super) struct NeverRead {
    /// The program has got one.
    is_read: bool,
    has_ended: bool,
    raised: u64,
    /// The first of these: what it says of which object, and where that was made.
    first: Option<(&'static str, String, Stack)>,
}

impl Check for NeverRead {
    fn forked(&mut self, _: &mut Context) {
        *self = NeverRead::default();
    }

    fn async_event_raised(&mut self, context: &mut Context, event: AsyncEventType, element: AsyncElement) {
        let (AsyncElement::Cq { cookie } | AsyncElement::Qp { cookie, .. } | AsyncElement::Srq { cookie }) =
            element
        else {
            return;
        };
        // What has no object is the device's own, or that of a call that made it for itself.
        if let (Some(name), Some(object)) = (name_of(event), context.objects.at(cookie)) {
            self.raised = self.raised.saturating_add(1);
            self.first.get_or_insert_with(|| (name, object.name(), object.made.clone()));
        }
    }

    fn async_event_got(&mut self, _: &mut Context, _: u64) {
        self.is_read = true;
    }

    fn ends(&mut self, _: &mut Context) {
        self.has_ended = true;
    }

    /// Failures are told by then, which raise such events.
    fn settles(&mut self, context: &mut Context, is_over: bool, _: &mut Vec<Effect>) {
        let first = self.first.take_if(|_| is_over && self.has_ended && !self.is_read);
        let Some((name, object, stack)) = first else { return };
        let numbers = format!(
            "{} came, the first of them {name} of {object}, and the program never called ibv_get_async_event",
            counted(self.raised, "asynchronous event")
        );
        context.found(&ASYNC_EVENTS_NEVER_READ, Found { object, numbers, stack, related: Vec::new() });
    }
}
