//! Asynchronous events that rules of a fault plan wait for: the rules are notified when the program has got
//! one.

use std::sync::Arc;

use pumice_faults::Triggers;
use pumice_model::event::{Event, Subscriber, Topics};
use pumice_model::fates::trigger::Occurrence;

/// A subscriber that notifies the rules which wait for asynchronous events.
pub struct AwaitedEvents(pub Arc<Triggers>);

impl Subscriber for AwaitedEvents {
    fn topics(&self) -> Topics {
        Topics::ASYNC_EVENTS
    }

    fn on_event(&self, _at_ns: u64, event: &Event<'_>) {
        if let Event::AsyncEventDelivered { event, .. } = event {
            self.0.note(Occurrence::Event(*event));
        }
    }
}
