//! Tells the rules of a fault plan that wait for asynchronous events when the program has got one.

use std::sync::Arc;

use pumice_events::{Event, Subscriber, Topics};
use pumice_faults::{Occurrence, Triggers};

/// Hears of asynchronous events for the rules that wait for them.
pub struct AwaitedEvents(pub Arc<Triggers>);

impl Subscriber for AwaitedEvents {
    fn topics(&self) -> Topics {
        Topics::ASYNC_EVENTS
    }

    fn hear(&self, _at_ns: u64, event: &Event<'_>) {
        if let Event::AsyncEventDelivered { event, .. } = event {
            self.0.note(Occurrence::Event(*event));
        }
    }
}
