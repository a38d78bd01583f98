//! The subscribers of this process's devices, as notified at the entry of calls.
//!
//! Some calls are made before a device is open (`ibv_get_device_list`, `ibv_open_device`). Their events wait
//! for the device that they are about, or for the first one that is opened, whose subscribers are notified
//! then.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use pumice_device::event::{Event, Subscribers, Topics};
use pumice_device::faults::calls::{CallFate, CallFired, CallKey};
use pumice_device::outside::fork_generation::PerProcess;

/// Largest number of events that wait for a device; later ones are lost.
const MAX_EARLY: usize = 64;

/// An event of a call that was made before there was a device.
enum EarlyEvent {
    Fault { rule: String, tag: String, call: String, ordinal: u64, fate: Box<CallFate> },
    Refused { call: String, ordinal: Option<u64>, errno: i32, why: String },
}

struct ListenersState {
    /// Subscribers of each device that was opened, by its index among the devices; dangling once it is
    /// closed.
    devices: BTreeMap<usize, Weak<Subscribers>>,
    /// Events in this process of calls about devices that were not opened yet, and about no particular
    /// device.
    early: Vec<(Option<usize>, EarlyEvent)>,
}

struct DeviceSubscribers(Mutex<ListenersState>);

static DEVICE_SUBSCRIBERS: PerProcess<DeviceSubscribers> = PerProcess::new(|_| DeviceSubscribers::new());

impl EarlyEvent {
    fn of(event: &Event<'_>) -> Option<EarlyEvent> {
        Some(match event {
            Event::CallFaultApplied { fault } => EarlyEvent::Fault {
                rule: fault.rule.to_owned(),
                tag: fault.tag.to_owned(),
                call: fault.key.call.to_owned(),
                ordinal: fault.key.ordinal,
                fate: Box::new(fault.fate),
            },
            Event::CallRefused { call, ordinal, errno, why } => EarlyEvent::Refused {
                call: (*call).to_owned(),
                ordinal: *ordinal,
                errno: *errno,
                why: (*why).to_owned(),
            },
            _ => return None,
        })
    }

    fn emit(&self, events: &Subscribers) {
        match self {
            EarlyEvent::Fault { rule, tag, call, ordinal, fate } => {
                // No call of that time is on a queue pair.
                let key = CallKey { call, ordinal: *ordinal, qp: None, to: None };
                events.emit(&Event::CallFaultApplied { fault: &CallFired { rule, tag, key, fate: **fate } });
            }
            EarlyEvent::Refused { call, ordinal, errno, why } => {
                events.emit(&Event::CallRefused { call, ordinal: *ordinal, errno: *errno, why });
            }
        }
    }
}

impl ListenersState {
    /// Returns the subscribers of a device, or of the first one that is open: `Some(None)` if it is closed,
    /// `None` if it is not open yet.
    fn subscribers_of(&self, device: Option<usize>) -> Option<Option<Arc<Subscribers>>> {
        match device {
            Some(device) => self.devices.get(&device).map(Weak::upgrade),
            None if self.devices.is_empty() => None,
            None => Some(self.devices.values().find_map(Weak::upgrade)),
        }
    }
}

impl DeviceSubscribers {
    const fn new() -> DeviceSubscribers {
        DeviceSubscribers(Mutex::new(ListenersState { devices: BTreeMap::new(), early: Vec::new() }))
    }

    fn attach(&self, device: usize, events: &Arc<Subscribers>) {
        let now = Arc::downgrade(events);
        let early = {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.devices.insert(device, now);
            let (own, others) = std::mem::take(&mut state.early)
                .into_iter()
                .partition::<Vec<_>, _>(|(of, _)| of.is_none_or(|of| of == device));
            state.early = others;
            own
        };
        early.iter().for_each(|(_, one)| one.emit(events));
    }

    /// Does not wait for a lock that is held: programs also make calls from signal handlers.
    fn has_subscriber(&self, device: Option<usize>, topics: Topics) -> bool {
        let Ok(state) = self.0.try_lock() else { return false };
        match state.subscribers_of(device) {
            Some(events) => events.is_some_and(|events| events.listen(topics)),
            None => true,
        }
    }

    fn emit(&self, device: Option<usize>, event: &Event<'_>) {
        let Ok(mut state) = self.0.try_lock() else { return };
        let events = state.subscribers_of(device);
        if events.is_none()
            && state.early.len() < MAX_EARLY
            && let Some(early) = EarlyEvent::of(event)
        {
            state.early.push((device, early));
        }
        drop(state);
        if let Some(events) = events.flatten() {
            events.emit(event);
        }
    }
}

/// Attaches the subscribers of a device, which are notified of calls from now on, and of those that were made
/// before it was opened. `device` is its index among the devices.
pub(crate) fn attach(device: usize, events: &Arc<Subscribers>) {
    DEVICE_SUBSCRIBERS.attach(device, events);
}

/// Reports whether these topics have a subscriber, or may have one when the device is opened.
pub(crate) fn has_subscriber(device: Option<usize>, topics: Topics) -> bool {
    DEVICE_SUBSCRIBERS.has_subscriber(device, topics)
}

/// Notifies the subscribers of the device that a call is about. The first open device gets calls that are
/// about no particular device.
pub(crate) fn emit(device: Option<usize>, event: &Event<'_>) {
    DEVICE_SUBSCRIBERS.emit(device, event);
}

#[cfg(test)]
mod tests {
    use pumice_device::event::Subscriber;
    use pumice_device::platform::clock::Clock;

    use super::*;

    struct RecordingSubscriber(Arc<Mutex<Vec<String>>>);

    impl Subscriber for RecordingSubscriber {
        fn topics(&self) -> Topics {
            Topics::CALLS | Topics::FAULTS
        }

        fn on_event(&self, _at_ns: u64, event: &Event<'_>) {
            self.0.lock().unwrap().push(match event {
                Event::CallFaultApplied { fault } => fault.sentence(),
                Event::CallRefused { call, ordinal, .. } => format!("{call} {ordinal:?}"),
                _ => String::new(),
            });
        }
    }

    #[test]
    fn a_device_is_notified_of_calls_that_were_made_before_it() {
        let device_subscribers = DeviceSubscribers::new();
        let key = CallKey { call: "ibv_open_device", ordinal: 1, qp: None, to: None };
        let fate = CallFate { errno: Some(libc::ENOMEM), ..CallFate::default() };
        for _ in 0..MAX_EARLY {
            let fault = &CallFired { rule: "one", tag: "a", key, fate };
            device_subscribers.emit(None, &Event::CallFaultApplied { fault });
        }
        assert!(device_subscribers.has_subscriber(None, Topics::CALLS));
        device_subscribers.emit(
            None,
            &Event::CallRefused { call: "ibv_open_device", ordinal: Some(2), errno: 12, why: "no room" },
        );
        let recorded = Arc::default();
        let subscribers: Vec<Box<dyn Subscriber>> =
            vec![Box::new(RecordingSubscriber(Arc::clone(&recorded)))];
        let events = Arc::new(Subscribers::new(subscribers, Clock::monotonic()));
        device_subscribers.attach(0, &events);
        let messages = std::mem::take(&mut *recorded.lock().unwrap());
        assert_eq!(messages.len(), MAX_EARLY, "a bounded number is kept");
        assert_eq!(messages[0], "fault \"one\" fails ibv_open_device with ENOMEM (call 1 of this name)");
        device_subscribers.emit(
            None,
            &Event::CallRefused { call: "ibv_open_device", ordinal: Some(3), errno: 12, why: "later" },
        );
        assert_eq!(*recorded.lock().unwrap(), ["ibv_open_device Some(3)"]);
        drop(events);
        assert!(!device_subscribers.has_subscriber(None, Topics::CALLS));
    }
    #[test]
    fn the_device_that_a_call_is_about_is_notified() {
        let device_subscribers = DeviceSubscribers::new();
        let refused = |ordinal| Event::CallRefused {
            call: "ibv_open_device",
            ordinal: Some(ordinal),
            errno: 12,
            why: "no room",
        };
        device_subscribers.emit(Some(1), &refused(1));
        device_subscribers.emit(None, &refused(2));
        let open = |device| {
            let recorded: Arc<Mutex<Vec<String>>> = Arc::default();
            let subscribers: Vec<Box<dyn Subscriber>> =
                vec![Box::new(RecordingSubscriber(Arc::clone(&recorded)))];
            let events = Arc::new(Subscribers::new(subscribers, Clock::monotonic()));
            device_subscribers.attach(device, &events);
            (events, recorded)
        };
        let take = |recorded: &Arc<Mutex<Vec<String>>>| std::mem::take(&mut *recorded.lock().unwrap());
        let (first, of_first) = open(0);
        assert_eq!(take(&of_first), ["ibv_open_device Some(2)"], "what is about no device");
        let (second, of_second) = open(1);
        assert_eq!(take(&of_second), ["ibv_open_device Some(1)"]);
        for (device, ordinal) in [(Some(0), 3), (Some(1), 4), (None, 5)] {
            device_subscribers.emit(device, &refused(ordinal));
        }
        assert_eq!(take(&of_first), ["ibv_open_device Some(3)", "ibv_open_device Some(5)"]);
        assert_eq!(take(&of_second), ["ibv_open_device Some(4)"]);
        drop(first);
        device_subscribers.emit(Some(0), &refused(6));
        device_subscribers.emit(None, &refused(7));
        assert_eq!(take(&of_second), ["ibv_open_device Some(7)"]);
        drop(second);
        assert!(
            !device_subscribers.has_subscriber(Some(1), Topics::CALLS)
                && device_subscribers.has_subscriber(Some(2), Topics::CALLS)
        );
    }
}
