//! Events: those that are not acknowledged, and those that the program never reads.

use std::collections::BTreeMap;

use pumice_events::AsyncElement;
use pumice_transport::types::AsyncEventType;

use super::checker::{Checker, Found, counted, related};
use super::kind::{ASYNC_EVENTS_NEVER_READ, EVENTS_NOT_ACKNOWLEDGED, PRIVATE_DATA_AFTER_ACK};
use super::queues::{Armed, Async, CmEvent, Cq};

/// Objects with asynchronous events that are not acknowledged, and such events of rdma_cm; of others nothing
/// is said.
const MAX_OBJECTS: usize = 4096;

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

impl Checker {
    pub(super) fn event_raised(&mut self, handle: u32) {
        if let Some(cq) = self.cqs.get_mut(&handle) {
            cq.armed = Armed::No;
            if cq.armed_over == cq.unpolled {
                // Nothing has come since: it is for what was there.
                cq.fired_late = cq.armed_over;
            }
            cq.events_queued = cq.events_queued.saturating_add(1);
            cq.stir();
        }
    }

    pub(super) fn event_delivered(&mut self, handle: u32) {
        if self.cqs.get(&handle).is_some_and(|cq| cq.fired_late > 0) {
            self.tell_woken_late(handle);
        }
        let Some(cq) = self.cqs.get_mut(&handle) else { return };
        cq.events_queued = cq.events_queued.saturating_sub(1);
        cq.stir();
        cq.unacknowledged = cq.unacknowledged.saturating_add(1);
        if cq.unacknowledged == 1 {
            let got_at = self.here();
            if let Some(cq) = self.cqs.get_mut(&handle) {
                cq.got_at = got_at;
            }
        }
    }

    /// The program acknowledges so many completion events.
    pub fn events_acknowledged(&mut self, handle: u32, count: u64) {
        if let Some(cq) = self.cqs.get_mut(&self.own.handle(handle)) {
            cq.unacknowledged = cq.unacknowledged.saturating_sub(count);
        }
    }

    pub(super) fn async_event_raised(&mut self, event: AsyncEventType, element: AsyncElement) {
        let (AsyncElement::Cq { cookie } | AsyncElement::Qp { cookie, .. } | AsyncElement::Srq { cookie }) =
            element
        else {
            return;
        };
        // What has no object is the device's own, or that of a call that made it for itself.
        if let (Some(name), Some(object)) = (name_of(event), self.objects.at(cookie)) {
            self.asynchronous.raised = self.asynchronous.raised.saturating_add(1);
            let first = || (name, object.name(), object.made.clone());
            self.asynchronous.first.get_or_insert_with(first);
        }
    }

    /// The program gets an asynchronous event; `address`: of the object that it is about, 0 if none.
    pub fn async_event_got(&mut self, address: u64) {
        self.asynchronous.is_read = true;
        if self.objects.at(address).is_none() {
            return;
        }
        let stack = self.here();
        let known = &mut self.asynchronous.unacknowledged;
        if known.len() < MAX_OBJECTS || known.contains_key(&address) {
            let (count, _) = known.entry(address).or_insert((0, stack));
            *count = count.saturating_add(1);
        }
    }

    /// The program acknowledges an asynchronous event about the object at an address.
    pub fn async_event_acknowledged(&mut self, address: u64) {
        let known = &mut self.asynchronous.unacknowledged;
        if let Some((count, _)) = known.get_mut(&address) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                known.remove(&address);
            }
        }
    }

    /// The program gets the event of rdma_cm at an address, for whose acknowledgement this identifier waits.
    pub fn cm_event_got(&mut self, identifier: u64, event: u64) {
        if self.asynchronous.of_rdma_cm.len() >= MAX_OBJECTS || self.objects.at(identifier).is_none() {
            return;
        }
        let got_at = self.here();
        let known = &mut self.asynchronous;
        let ordinal = known.of_rdma_cm_got;
        known.of_rdma_cm_got = ordinal.saturating_add(1);
        known.of_rdma_cm.insert(event, CmEvent { identifier, ordinal, got_at });
    }

    /// The program acknowledges the event of rdma_cm at an address.
    pub fn cm_event_acknowledged(&mut self, event: u64) {
        self.asynchronous.of_rdma_cm.remove(&event);
    }

    /// The program acknowledges the event of rdma_cm at an address, whose name this is. Its private data is
    /// in this page.
    pub fn private_data_given_back(&mut self, event: u64, name: &str, page: usize) {
        let acknowledged = self.here();
        let known = self.asynchronous.of_rdma_cm.get(&event);
        let got = known.map(|event| event.got_at.clone()).unwrap_or_default();
        self.asynchronous.given_back.insert(page, (name.to_owned(), got, acknowledged));
    }

    /// The program reads private data in a page that it has given back, where these return addresses say,
    /// innermost first.
    pub fn private_data_read(&mut self, page: usize, addresses: &[u64]) {
        let Some((name, got, acknowledged)) = self.asynchronous.given_back.remove(&page) else { return };
        let stack = self.stack_of(addresses);
        let numbers = format!("private data of the event {name} is read, and the event was acknowledged");
        let related = vec![
            related("it was acknowledged here", &acknowledged),
            related("the program got it here", &got),
        ];
        let object = format!("event {name}");
        self.found(&PRIVATE_DATA_AFTER_ACK, Found { object, numbers, stack, related });
    }

    /// The program destroys the identifier at an address, leaves one of its groups or moves it, and has not
    /// acknowledged events, which have these names, for a second.
    pub fn waits_for_cm_acknowledgements(&mut self, identifier: u64, names: &str) {
        let waits = self.here();
        let known = self.asynchronous.of_rdma_cm.values().filter(|event| event.identifier == identifier);
        let first = known.min_by_key(|event| event.ordinal);
        let (Some(first), Some(object)) = (first, self.objects.at(identifier)) else { return };
        let (made, object, stack) = (object.made.clone(), object.name(), first.got_at.clone());
        let numbers = format!(
            "events of {object}, the first of them got here, are not acknowledged (rdma_ack_cm_event): \
             {names}; the call waits until they are"
        );
        let related =
            vec![related("the call waits here", &waits), related(format!("{object} was made here"), &made)];
        self.found(&EVENTS_NOT_ACKNOWLEDGED, Found { object, numbers, stack, related });
    }

    /// The program destroys the object at an address, and has not acknowledged so many events of it for a
    /// second.
    pub fn waits_for_acknowledgements(&mut self, address: u64, count: u64, events: &str, remedy: &str) {
        let stack = self.here();
        let Some(object) = self.objects.at(address) else { return };
        let (made, object) = (object.made.clone(), object.name());
        let numbers = format!(
            "events of {object} that are not acknowledged: {count} {events} ({remedy}); the call blocks \
             until they are"
        );
        let related = vec![related(format!("{object} was made here"), &made)];
        self.found(&EVENTS_NOT_ACKNOWLEDGED, Found { object, numbers, stack, related });
    }

    /// The process ends well: events that are left.
    pub(super) fn tell_events_left(&mut self, cqs: &BTreeMap<u32, Cq>) {
        let unacknowledged = std::mem::take(&mut self.asynchronous.unacknowledged);
        let asynchronous = unacknowledged.into_iter().filter_map(|(address, (count, got_at))| {
            let object = self.objects.at(address)?;
            Some((object.name(), object.made.clone(), count, "asynchronous event", got_at))
        });
        let mut of_identifiers = BTreeMap::<u64, (u64, CmEvent)>::new();
        let mut of_rdma_cm: Vec<CmEvent> =
            std::mem::take(&mut self.asynchronous.of_rdma_cm).into_values().collect();
        of_rdma_cm.sort_by_key(|event| event.ordinal);
        for event in of_rdma_cm {
            of_identifiers.entry(event.identifier).or_insert((0, event)).0 += 1;
        }
        let of_identifiers = of_identifiers.into_iter().filter_map(|(address, (count, first))| {
            let object = self.objects.at(address)?;
            Some((object.name(), object.made.clone(), count, "rdma_cm event", first.got_at))
        });
        let of_queues = cqs.values().filter(|cq| cq.unacknowledged > 0);
        let completion = of_queues.map(|cq| {
            (cq.name.clone(), cq.made.clone(), cq.unacknowledged, "completion event", cq.got_at.clone())
        });
        let left: Vec<_> = completion.chain(asynchronous).chain(of_identifiers).collect();
        for (object, made, count, events, stack) in left {
            let numbers = format!(
                "{} of {object}, got here, is not acknowledged at the end of the process: the object cannot \
                 be destroyed",
                counted(count, events)
            );
            let related = vec![related(format!("{object} was made here"), &made)];
            self.found(&EVENTS_NOT_ACKNOWLEDGED, Found { object, numbers, stack, related });
        }
        self.tell_unread();
    }

    fn tell_unread(&mut self) {
        let Async { is_read, raised, .. } = self.asynchronous;
        let Some((name, object, stack)) = self.asynchronous.first.take().filter(|_| !is_read) else { return };
        let numbers = format!(
            "{} came, the first of them {name} of {object}, and the program never called ibv_get_async_event",
            counted(raised, "asynchronous event")
        );
        self.found(&ASYNC_EVENTS_NEVER_READ, Found { object, numbers, stack, related: Vec::new() });
    }
}
