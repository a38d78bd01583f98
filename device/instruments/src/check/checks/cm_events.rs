//! Events of rdma_cm that are not acknowledged, and private data that is read after the acknowledgement.

use std::collections::BTreeMap;

use pumice_ground::call_stack::Stack;

use super::events_left::Left;
use crate::check::context::{Context, Found, related};
use crate::check::kind::{EVENTS_NOT_ACKNOWLEDGED, PRIVATE_DATA_AFTER_ACK};
use crate::check::told::Check;

/// Events that are not acknowledged; of others nothing is said.
const MAX_EVENTS: usize = 4096;

/// The program acknowledges events of rdma_cm too late, or too early.
#[derive(Debug, Default)]
pub(super) struct CmEvents {
    /// Events that the program has got in all.
    got: u64,
    /// Those that it has not acknowledged, by their addresses.
    unacknowledged: BTreeMap<u64, CmEvent>,
    /// Of private data whose event was acknowledged: which event that was, where the program got it and where
    /// it acknowledged it; by the pages.
    given_back: BTreeMap<usize, (String, Stack, Stack)>,
}

/// An event that the program has got.
#[derive(Debug)]
struct CmEvent {
    /// The address of the identifier that waits for the acknowledgement.
    identifier: u64,
    /// How many the program had got before.
    ordinal: u64,
    got_at: Stack,
}

impl Check for CmEvents {
    fn forked(&mut self, _: &mut Context) {
        *self = CmEvents::default();
    }

    fn cm_event_got(&mut self, context: &mut Context, identifier: u64, event: u64) {
        if self.unacknowledged.len() >= MAX_EVENTS || context.objects.at(identifier).is_none() {
            return;
        }
        let (ordinal, got_at) = (self.got, context.here());
        self.got = ordinal.saturating_add(1);
        self.unacknowledged.insert(event, CmEvent { identifier, ordinal, got_at });
    }

    fn cm_event_acknowledged(&mut self, _: &mut Context, event: u64) {
        self.unacknowledged.remove(&event);
    }

    fn private_data_given_back(&mut self, context: &mut Context, event: u64, name: &str, page: usize) {
        let acknowledged = context.here();
        let known = self.unacknowledged.get(&event);
        let got = known.map(|event| event.got_at.clone()).unwrap_or_default();
        self.given_back.insert(page, (name.to_owned(), got, acknowledged));
    }

    fn private_data_read(&mut self, context: &mut Context, page: usize, addresses: &[u64]) {
        let Some((name, got, acknowledged)) = self.given_back.remove(&page) else { return };
        let stack = context.stack_of(addresses);
        let numbers = format!("private data of the event {name} is read, and the event was acknowledged");
        let related = vec![
            related("it was acknowledged here", &acknowledged),
            related("the program got it here", &got),
        ];
        let object = format!("event {name}");
        context.found(&PRIVATE_DATA_AFTER_ACK, Found { object, numbers, stack, related });
    }

    fn waits_for_cm_acknowledgements(&mut self, context: &mut Context, identifier: u64, names: &str) {
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
        context.found(&EVENTS_NOT_ACKNOWLEDGED, Found { object, numbers, stack, related });
    }

    fn ends(&mut self, context: &mut Context) {
        let mut of_identifiers = BTreeMap::<u64, (u64, CmEvent)>::new();
        let mut all: Vec<CmEvent> = std::mem::take(&mut self.unacknowledged).into_values().collect();
        all.sort_by_key(|event| event.ordinal);
        for event in all {
            of_identifiers.entry(event.identifier).or_insert((0, event)).0 += 1;
        }
        for (address, (count, first)) in of_identifiers {
            if let Some(object) = context.objects.at(address) {
                let (object, made, events) = (object.name(), object.made.clone(), "rdma_cm event");
                Left { object, made, count, events, got_at: first.got_at }.tell(context);
            }
        }
    }
}
