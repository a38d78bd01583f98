//! Events of rdma_cm that are not acknowledged, and private data that is read after the acknowledgement.

use std::collections::BTreeMap;

use pumice_platform::call_stack::Stack;

use super::unacknowledged_events::PendingAcknowledgements;
use crate::check::context::{CheckContext, FindingParts, related};
use crate::check::kind::{EVENTS_NOT_ACKNOWLEDGED, PRIVATE_DATA_AFTER_ACK};
use crate::check::notified::Check;

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
