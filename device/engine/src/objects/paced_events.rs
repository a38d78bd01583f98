//! Events of one completion queue that rules of a fault plan delay.

use std::sync::Arc;

use pumice_faults::{CompletionEventCounts, CompletionEventFaults};
use pumice_model::event::{Event, Subscribers};
use pumice_model::fates::fired::CompletionEventKey;
use pumice_platform::clock::Clock;

/// The rules that delay events of completion queues, for all queues of a device.
#[derive(Debug, Clone)]
pub struct EventPacer {
    #[doc(hidden)]
    pub faults: Arc<CompletionEventFaults>,
    #[doc(hidden)]
    pub clock: Clock,
}

/// The events of one completion queue.
#[derive(Debug)]
pub(super) struct PacedEvents {
    pub pacer: EventPacer,
    /// Ordinal of the completion queue on its device.
    pub ordinal: u32,
    pub counts: CompletionEventCounts,
    waiting: Option<PacedEvent>,
}

/// An event that waits.
#[derive(Debug)]
struct PacedEvent {
    /// Number of completions that it still waits for.
    pub more: u32,
    /// Latest time of the event.
    pub due_ns: u64,
    /// Earliest time of the event.
    pub from_ns: u64,
}

/// The decision about an event that a completion makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventPacing {
    /// The event comes now.
    Now,
    /// The event comes at this time, or before.
    By(u64),
    /// An event waits already.
    Waits,
}

impl PacedEvents {
    pub(crate) fn new(pacer: EventPacer, ordinal: u32) -> PacedEvents {
        PacedEvents { pacer, ordinal, counts: CompletionEventCounts::default(), waiting: None }
    }

    /// Reports whether an event waits.
    pub(crate) const fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Handles a completion for which the queue is armed: its event is the `nth` of the queue, from 1.
    pub(crate) fn completed(&mut self, nth: u64, events: &Subscribers) -> EventPacing {
        if let Some(waiting) = &mut self.waiting {
            waiting.more = waiting.more.saturating_sub(1);
            return if waiting.more > 0 {
                EventPacing::Waits
            } else if waiting.from_ns <= self.pacer.clock.now_ns() {
                EventPacing::Now
            } else {
                waiting.due_ns = waiting.from_ns;
                EventPacing::By(waiting.from_ns)
            };
        }
        let key = CompletionEventKey { cq: self.ordinal, nth };
        let fate = self.pacer.faults.decide(key, &mut self.counts, &mut |fault| {
            events.emit(&Event::CompletionEventFaultApplied { fault });
        });
        if fate.delay_ns == 0 && fate.more == 0 {
            return EventPacing::Now;
        }
        let now_ns = self.pacer.clock.now_ns();
        let from_ns = now_ns.saturating_add(fate.delay_ns);
        let due_ns = from_ns.max(now_ns.saturating_add(if fate.more > 0 { fate.within_ns } else { 0 }));
        self.waiting = Some(PacedEvent { more: fate.more.max(1), due_ns, from_ns });
        EventPacing::By(due_ns)
    }

    /// Reports whether an event waits whose time has come.
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.due_ns <= now_ns)
    }

    /// Ends the wait: the event comes, or the queue is not armed any more.
    pub(super) fn end(&mut self) {
        self.waiting = None;
    }
}
