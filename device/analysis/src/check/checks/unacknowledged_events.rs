//! Events that the program does not acknowledge: asynchronous events, completion events, events of rdma_cm.

use std::collections::BTreeMap;

use pumice_platform::call_stack::Stack;

use crate::check::context::{CheckContext, FindingParts, counted, related};
use crate::check::kind::{EVENTS_ACKNOWLEDGED_TWICE, EVENTS_NOT_ACKNOWLEDGED, PRIVATE_DATA_AFTER_ACK};
use crate::check::notified::{Check, PerQueue, QueueName};

/// Unacknowledged events of one object.
pub(super) struct PendingAcknowledgements {
    pub(super) object: String,
    /// Call site that made the object.
    pub(super) made: Stack,
    pub(super) count: u64,
    /// Name of the kind of events, as in "completion event".
    pub(super) events: &'static str,
    /// Call site where the program got the first of them.
    got_at: Stack,
}

impl PendingAcknowledgements {
    pub(super) fn report(self, context: &mut CheckContext) {
        let PendingAcknowledgements { object, made, count, events, got_at } = self;
        let numbers = format!(
            "{} of {object}, got here, is not acknowledged at the end of the process: the object cannot be \
             destroyed",
            counted(count, events)
        );
        let related = vec![related(format!("{object} was made here"), &made)];
        context.found(&EVENTS_NOT_ACKNOWLEDGED, FindingParts { object, numbers, stack: got_at, related });
    }
}

/// Number of objects with unacknowledged events that are tracked; further objects are not checked.
const MAX_OBJECTS: usize = 4096;

/// The check for asynchronous events that the program has not acknowledged when it ends.
#[derive(Debug, Default)]
pub(super) struct AsyncEvents {
    /// Number of events that the program got and has not acknowledged, by the addresses of their objects, and
    /// the call site where it got the first of them.
    unacknowledged: BTreeMap<u64, (u64, Stack)>,
}

impl Check for AsyncEvents {
    fn forked(&mut self, _: &mut CheckContext) {
        self.unacknowledged.clear();
    }

    fn async_event_got(&mut self, context: &mut CheckContext, address: u64) {
        if context.objects.at(address).is_none() {
            return;
        }
        let stack = context.here();
        let known = &mut self.unacknowledged;
        if known.len() < MAX_OBJECTS || known.contains_key(&address) {
            let (count, _) = known.entry(address).or_insert((0, stack));
            *count = count.saturating_add(1);
        }
    }

    fn async_event_acknowledged(&mut self, _: &mut CheckContext, address: u64) {
        if let Some((count, _)) = self.unacknowledged.get_mut(&address) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.unacknowledged.remove(&address);
            }
        }
    }

    fn ends(&mut self, context: &mut CheckContext) {
        for (address, (count, got_at)) in std::mem::take(&mut self.unacknowledged) {
            if let Some(object) = context.objects.at(address) {
                let (object, made, events) = (object.name(), object.made.clone(), "asynchronous event");
                PendingAcknowledgements { object, made, count, events, got_at }.report(context);
            }
        }
    }
}

/// The check for completion events that the program has not acknowledged when it ends.
#[derive(Debug, Default)]
pub(super) struct CompletionEvents {
    /// Number of events that the program got and has not acknowledged, and the call site where it got the
    /// first of them.
    unacknowledged: PerQueue<(u64, Stack)>,
}

impl Check for CompletionEvents {
    fn forget(&mut self, of: Option<QueueName>) {
        self.unacknowledged.forget(of);
    }

    fn event_delivered(&mut self, context: &mut CheckContext, handle: u32) {
        let (count, got_at) = self.unacknowledged.of(QueueName::Cq(handle));
        *count = count.saturating_add(1);
        if *count == 1 {
            *got_at = context.here();
        }
    }

    fn events_acknowledged(&mut self, context: &mut CheckContext, handle: u32, acknowledged: u64) {
        let Some(cq) = context.cqs.get(&handle) else { return };
        let (count, _) = self.unacknowledged.of(QueueName::Cq(handle));
        let got = std::mem::replace(count, count.saturating_sub(acknowledged));
        if acknowledged > got {
            let object = cq.name.clone();
            let events = if acknowledged == 1 { "1 event" } else { &format!("{acknowledged} events") };
            let numbers = format!(
                "{events} of {object} acknowledged at once, and the program has got {got} that it had not \
                 acknowledged"
            );
            let related = vec![related(format!("{object} was made here"), &cq.made)];
            let stack = context.here();
            context.found(&EVENTS_ACKNOWLEDGED_TWICE, FindingParts { object, numbers, stack, related });
        }
    }

    fn ends(&mut self, context: &mut CheckContext) {
        let left = context.cqs.iter().filter_map(|(handle, cq)| {
            let (count, got_at) = self.unacknowledged.of(QueueName::Cq(*handle)).clone();
            let (object, made, events) = (cq.name.clone(), cq.made.clone(), "completion event");
            (count > 0).then_some(PendingAcknowledgements { object, made, count, events, got_at })
        });
        let left: Vec<PendingAcknowledgements> = left.collect();
        left.into_iter().for_each(|one| one.report(context));
    }
}

/// Number of unacknowledged events that are tracked; further events are not checked.
const MAX_EVENTS: usize = 4096;

/// The check for events of rdma_cm that the program acknowledges too late, or too early.
#[derive(Debug, Default)]
pub(super) struct CmEvents {
    /// Number of events that the program has got in all.
    got: u64,
    /// Events that the program has not acknowledged, by their addresses.
    unacknowledged: BTreeMap<u64, UnacknowledgedCmEvent>,
    /// Acknowledged events with private data, by the pages of the data: the event's name, the call site that
    /// got it, and the one that acknowledged it.
    given_back: BTreeMap<usize, (String, Stack, Stack)>,
}

/// An event that the program has got.
#[derive(Debug)]
struct UnacknowledgedCmEvent {
    /// Address of the identifier that waits for the acknowledgement.
    identifier: u64,
    /// Number of events that the program had got before.
    ordinal: u64,
    got_at: Stack,
}

impl Check for CmEvents {
    fn forked(&mut self, _: &mut CheckContext) {
        *self = CmEvents::default();
    }

    fn cm_event_got(&mut self, context: &mut CheckContext, identifier: u64, event: u64) {
        if self.unacknowledged.len() >= MAX_EVENTS || context.objects.at(identifier).is_none() {
            return;
        }
        let (ordinal, got_at) = (self.got, context.here());
        self.got = ordinal.saturating_add(1);
        self.unacknowledged.insert(event, UnacknowledgedCmEvent { identifier, ordinal, got_at });
    }

    fn cm_event_acknowledged(&mut self, _: &mut CheckContext, event: u64) {
        self.unacknowledged.remove(&event);
    }

    fn private_data_given_back(&mut self, context: &mut CheckContext, event: u64, name: &str, page: usize) {
        let acknowledged = context.here();
        let known = self.unacknowledged.get(&event);
        let got = known.map(|event| event.got_at.clone()).unwrap_or_default();
        self.given_back.insert(page, (name.to_owned(), got, acknowledged));
    }

    fn private_data_read(&mut self, context: &mut CheckContext, page: usize, addresses: &[u64]) {
        let Some((name, got, acknowledged)) = self.given_back.remove(&page) else { return };
        let stack = context.stack_of(addresses);
        let numbers = format!("private data of the event {name} is read, and the event was acknowledged");
        let related = vec![
            related("it was acknowledged here", &acknowledged),
            related("the program got it here", &got),
        ];
        let object = format!("event {name}");
        context.found(&PRIVATE_DATA_AFTER_ACK, FindingParts { object, numbers, stack, related });
    }

    fn waits_for_cm_acknowledgements(&mut self, context: &mut CheckContext, identifier: u64, names: &str) {
        let waits = context.here();
        let known = self.unacknowledged.values().filter(|event| event.identifier == identifier);
        let first = known.min_by_key(|event| event.ordinal);
        let (Some(first), Some(object)) = (first, context.objects.at(identifier)) else { return };
        let (made, object, stack) = (object.made.clone(), object.name(), first.got_at.clone());
        let numbers = format!(
            "events of {object}, the first of them got here, are not acknowledged (rdma_ack_cm_event): \
             {names}; the call waits until they are"
        );
        let related =
            vec![related("the call waits here", &waits), related(format!("{object} was made here"), &made)];
        context.found(&EVENTS_NOT_ACKNOWLEDGED, FindingParts { object, numbers, stack, related });
    }

    fn ends(&mut self, context: &mut CheckContext) {
        let mut of_identifiers = BTreeMap::<u64, (u64, UnacknowledgedCmEvent)>::new();
        let mut all: Vec<UnacknowledgedCmEvent> =
            std::mem::take(&mut self.unacknowledged).into_values().collect();
        all.sort_by_key(|event| event.ordinal);
        for event in all {
            of_identifiers.entry(event.identifier).or_insert((0, event)).0 += 1;
        }
        for (address, (count, first)) in of_identifiers {
            if let Some(object) = context.objects.at(address) {
                let (object, made, events) = (object.name(), object.made.clone(), "rdma_cm event");
                PendingAcknowledgements { object, made, count, events, got_at: first.got_at }.report(context);
            }
        }
    }
}
