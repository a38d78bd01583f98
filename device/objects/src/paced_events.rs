//! Events of one completion queue that rules of a fault plan put off.

use std::sync::Arc;

use pumice_events::{Event, Subscribers};
use pumice_faults::completion_events::CompletionEventKey;
use pumice_faults::{CompletionEventCounts, CompletionEventFaults};
use pumice_ground::clock::Clock;

/// What puts off events of completion queues, for all queues of a device.
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
    /// The ordinal of the completion queue on its device.
    pub ordinal: u32,
    pub counts: CompletionEventCounts,
    waiting: Option<PacedEvent>,
}

/// An event that waits.
#[derive(Debug)]
struct PacedEvent {
    /// For so many completions.
    pub more: u32,
    /// Not longer than until then.
    pub due_ns: u64,
    /// And at least until then.
    pub from_ns: u64,
}

/// What becomes of an event that a completion makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paced {
    /// It comes now.
    Now,
    /// It comes then, or before.
    By(u64),
    /// It waits already.
    Waits,
}

impl PacedEvents {
    pub(crate) fn new(pacer: EventPacer, ordinal: u32) -> PacedEvents {
        PacedEvents { pacer, ordinal, counts: CompletionEventCounts::default(), waiting: None }
    }

    /// Whether an event waits.
    pub(crate) const fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// A completion came for which the queue is armed: its event is the `nth` of the queue, from 1.
    pub(crate) fn completed(&mut self, nth: u64, events: &Subscribers) -> Paced {
        if let Some(waiting) = &mut self.waiting {
            waiting.more = waiting.more.saturating_sub(1);
            return if waiting.more > 0 {
                Paced::Waits
            } else if waiting.from_ns <= self.pacer.clock.now_ns() {
                Paced::Now
            } else {
                waiting.due_ns = waiting.from_ns;
                Paced::By(waiting.from_ns)
            };
        }
        let key = CompletionEventKey { cq: self.ordinal, nth };
        let fate = self.pacer.faults.decide(key, &mut self.counts, &mut |fault| {
            events.emit(&Event::CompletionEventFaultApplied { fault });
        });
        if fate.delay_ns == 0 && fate.more == 0 {
            return Paced::Now;
        }
        let now_ns = self.pacer.clock.now_ns();
        let from_ns = now_ns.saturating_add(fate.delay_ns);
        let due_ns = from_ns.max(now_ns.saturating_add(if fate.more > 0 { fate.within_ns } else { 0 }));
        self.waiting = Some(PacedEvent { more: fate.more.max(1), due_ns, from_ns });
        Paced::By(due_ns)
    }

    /// Whether an event waits whose time has come.
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.due_ns <= now_ns)
    }

    /// The event comes, or the queue is not armed any more.
    pub(super) fn end(&mut self) {
        self.waiting = None;
    }
}
