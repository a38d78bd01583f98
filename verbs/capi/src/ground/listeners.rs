//! Those who listen to the events of this process's device, for what happens at the entry of calls.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use pumice_device::event::{Event, Subscribers, Topics};

/// The subscribers of this process's device; dangling while there is no device.
static SUBSCRIBERS: Mutex<Weak<Subscribers>> = Mutex::new(Weak::new());

/// Calls are events of this device from now on.
pub(crate) fn attach(events: &Arc<Subscribers>) {
    if events.listen(Topics::CALLS | Topics::FAULTS) {
        *SUBSCRIBERS.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(events);
    }
}

/// Those who listen, if there is a device. A lock that is held is not waited for: programs also make calls
/// from signal handlers.
fn those() -> Option<Arc<Subscribers>> {
    SUBSCRIBERS.try_lock().ok().and_then(|events| events.upgrade())
}

/// Whether these topics have a listener.
pub(crate) fn hear(topics: Topics) -> bool {
    those().is_some_and(|events| events.listen(topics))
}

/// Tells those who listen.
pub(crate) fn emit(event: &Event<'_>) {
    if let Some(events) = those() {
        events.emit(event);
    }
}
