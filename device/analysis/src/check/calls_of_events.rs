//! Notifications to the checker about events that the program gets and acknowledges.

use super::checker::Checker;

impl Checker {
    /// Records that the program acknowledges `count` completion events.
    pub fn events_acknowledged(&mut self, handle: u32, count: u64) {
        let handle = self.context.own.handle(handle);
        self.for_each_check(|check, context| check.events_acknowledged(context, handle, count));
    }

    /// Records that the program gets an asynchronous event. `address` is that of the event's object, 0 if
    /// none.
    pub fn async_event_got(&mut self, address: u64) {
        self.for_each_check(|check, context| check.async_event_got(context, address));
    }

    /// Records that the program acknowledges an asynchronous event about the object at an address.
    pub fn async_event_acknowledged(&mut self, address: u64) {
        self.for_each_check(|check, context| check.async_event_acknowledged(context, address));
    }

    /// Records that the program gets the event of rdma_cm at an address, for whose acknowledgement this
    /// identifier waits.
    pub fn cm_event_got(&mut self, identifier: u64, event: u64) {
        self.for_each_check(|check, context| check.cm_event_got(context, identifier, event));
    }

    /// Records that the program acknowledges the event of rdma_cm at an address.
    pub fn cm_event_acknowledged(&mut self, event: u64) {
        self.for_each_check(|check, context| check.cm_event_acknowledged(context, event));
    }

    /// Records that the program acknowledges the event of rdma_cm at an address, which has this name. Its
    /// private data is in this page.
    pub fn private_data_given_back(&mut self, event: u64, name: &str, page: usize) {
        self.for_each_check(|check, context| check.private_data_given_back(context, event, name, page));
    }

    /// Records that the program reads private data in a page that it has given back, at these return
    /// addresses, innermost first.
    pub fn private_data_read(&mut self, page: usize, addresses: &[u64]) {
        self.for_each_check(|check, context| check.private_data_read(context, page, addresses));
    }

    /// Records that the program destroys the identifier at an address, leaves one of its groups or moves it,
    /// and has not acknowledged events, which have these names, for a second.
    pub fn waits_for_cm_acknowledgements(&mut self, identifier: u64, names: &str) {
        self.for_each_check(|check, context| check.waits_for_cm_acknowledgements(context, identifier, names));
    }

    /// Records that the program destroys the object at an address, and has not acknowledged `count` events of
    /// it for a second.
    pub fn waits_for_acknowledgements(&mut self, address: u64, count: u64, events: &str, remedy: &str) {
        self.for_each_check(|check, context| {
            check.waits_for_acknowledgements(context, address, count, events, remedy);
        });
    }
}
