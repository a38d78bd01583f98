//! Those who listen to the events of this process's devices, for what happens at the entry of calls.
//!
//! Calls are made before a device is open (`ibv_get_device_list`, `ibv_open_device`). What happens to them
//! waits for the device that they are about, or for the first one that is opened, whose listeners are told of
//! it then.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use pumice_device::event::{Event, Subscribers, Topics};
use pumice_device::faults::calls::{CallFate, CallFired, CallKey};
use pumice_device::outside::lineage::PerProcess;

/// Events that wait for a device; later ones are lost.
const MOST_EARLY: usize = 64;

/// An event of a call that was made before there was a device.
enum Early {
    Fault { rule: String, tag: String, call: String, ordinal: u64, fate: Box<CallFate> },
    Refused { call: String, ordinal: Option<u64>, errno: i32, why: String },
}

struct State {
    /// The subscribers of each device that was opened, by its index among the devices; dangling once it is
    /// closed.
    devices: BTreeMap<usize, Weak<Subscribers>>,
    /// What happened in this process to calls about devices that were not opened yet, and about none in
    /// particular.
    early: Vec<(Option<usize>, Early)>,
}

struct Listeners(Mutex<State>);

static LISTENERS: PerProcess<Listeners> = PerProcess::new(|_| Listeners::new());

impl Early {
    fn of(event: &Event<'_>) -> Option<Early> {
        Some(match event {
            Event::CallFaultApplied { fault } => Early::Fault {
                rule: fault.rule.to_owned(),
                tag: fault.tag.to_owned(),
                call: fault.key.call.to_owned(),
                ordinal: fault.key.ordinal,
                fate: Box::new(fault.fate),
            },
            Event::CallRefused { call, ordinal, errno, why } => Early::Refused {
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
            Early::Fault { rule, tag, call, ordinal, fate } => {
                // No call of that time is on a queue pair.
                let key = CallKey { call, ordinal: *ordinal, qp: None };
                events.emit(&Event::CallFaultApplied { fault: &CallFired { rule, tag, key, fate: **fate } });
            }
            Early::Refused { call, ordinal, errno, why } => {
                events.emit(&Event::CallRefused { call, ordinal: *ordinal, errno: *errno, why });
            }
        }
    }
}

impl State {
    /// Those who listen to a device, or to the first one that is open: `Some(None)` if it is closed,
    /// `None` if it is not open yet.
    fn listeners_of(&self, device: Option<usize>) -> Option<Option<Arc<Subscribers>>> {
        match device {
            Some(device) => self.devices.get(&device).map(Weak::upgrade),
            None if self.devices.is_empty() => None,
            None => Some(self.devices.values().find_map(Weak::upgrade)),
        }
    }
}

impl Listeners {
    const fn new() -> Listeners {
        Listeners(Mutex::new(State { devices: BTreeMap::new(), early: Vec::new() }))
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

    /// A lock that is held is not waited for: programs also make calls from signal handlers.
    fn hear(&self, device: Option<usize>, topics: Topics) -> bool {
        let Ok(state) = self.0.try_lock() else { return false };
        match state.listeners_of(device) {
            Some(events) => events.is_some_and(|events| events.listen(topics)),
            None => true,
        }
    }

    fn emit(&self, device: Option<usize>, event: &Event<'_>) {
        let Ok(mut state) = self.0.try_lock() else { return };
        let events = state.listeners_of(device);
        if events.is_none()
            && state.early.len() < MOST_EARLY
            && let Some(early) = Early::of(event)
        {
            state.early.push((device, early));
        }
        drop(state);
        if let Some(events) = events.flatten() {
            events.emit(event);
        }
    }
}

/// Calls are events of this device from now on, and those that were made before it was opened. `device` is
/// its index among the devices.
pub(crate) fn attach(device: usize, events: &Arc<Subscribers>) {
    LISTENERS.attach(device, events);
}

/// Whether these topics have a listener, or may have one when the device is opened.
pub(crate) fn hear(device: Option<usize>, topics: Topics) -> bool {
    LISTENERS.hear(device, topics)
}

/// Tells those who listen to the device that a call is about. What is about none in particular is told to the
/// first device that is open.
pub(crate) fn emit(device: Option<usize>, event: &Event<'_>) {
    LISTENERS.emit(device, event);
}

#[cfg(test)]
mod tests {
    use pumice_device::event::Subscriber;
    use pumice_device::ground::clock::Clock;

    use super::*;

    struct Told(Arc<Mutex<Vec<String>>>);

    impl Subscriber for Told {
        fn topics(&self) -> Topics {
            Topics::CALLS | Topics::FAULTS
        }

        fn hear(&self, _at_ns: u64, event: &Event<'_>) {
            self.0.lock().unwrap().push(match event {
                Event::CallFaultApplied { fault } => fault.sentence(),
                Event::CallRefused { call, ordinal, .. } => format!("{call} {ordinal:?}"),
                _ => String::new(),
            });
        }
    }

    #[test]
    fn a_device_is_told_of_calls_that_were_made_before_it() {
        let listeners = Listeners::new();
        let key = CallKey { call: "ibv_open_device", ordinal: 1, qp: None };
        let fate = CallFate { errno: Some(libc::ENOMEM), ..CallFate::default() };
        for _ in 0..MOST_EARLY {
            let fault = &CallFired { rule: "one", tag: "a", key, fate };
            listeners.emit(None, &Event::CallFaultApplied { fault });
        }
        assert!(listeners.hear(None, Topics::CALLS));
        listeners.emit(
            None,
            &Event::CallRefused { call: "ibv_open_device", ordinal: Some(2), errno: 12, why: "no room" },
        );
        let heard = Arc::default();
        let subscribers: Vec<Box<dyn Subscriber>> = vec![Box::new(Told(Arc::clone(&heard)))];
        let events = Arc::new(Subscribers::new(subscribers, Clock::monotonic()));
        listeners.attach(0, &events);
        let told = std::mem::take(&mut *heard.lock().unwrap());
        assert_eq!(told.len(), MOST_EARLY, "a bounded number is kept");
        assert_eq!(told[0], "fault \"one\" fails ibv_open_device with ENOMEM (call 1 of this name)");
        listeners.emit(
            None,
            &Event::CallRefused { call: "ibv_open_device", ordinal: Some(3), errno: 12, why: "later" },
        );
        assert_eq!(*heard.lock().unwrap(), ["ibv_open_device Some(3)"]);
        drop(events);
        assert!(!listeners.hear(None, Topics::CALLS));
    }
    #[test]
    fn a_call_is_told_to_the_device_that_it_is_about() {
        let listeners = Listeners::new();
        let refused = |ordinal| Event::CallRefused {
            call: "ibv_open_device",
            ordinal: Some(ordinal),
            errno: 12,
            why: "no room",
        };
        listeners.emit(Some(1), &refused(1));
        listeners.emit(None, &refused(2));
        let open = |device| {
            let heard: Arc<Mutex<Vec<String>>> = Arc::default();
            let subscribers: Vec<Box<dyn Subscriber>> = vec![Box::new(Told(Arc::clone(&heard)))];
            let events = Arc::new(Subscribers::new(subscribers, Clock::monotonic()));
            listeners.attach(device, &events);
            (events, heard)
        };
        let take = |heard: &Arc<Mutex<Vec<String>>>| std::mem::take(&mut *heard.lock().unwrap());
        let (first, of_first) = open(0);
        assert_eq!(take(&of_first), ["ibv_open_device Some(2)"], "what is about no device");
        let (second, of_second) = open(1);
        assert_eq!(take(&of_second), ["ibv_open_device Some(1)"]);
        for (device, ordinal) in [(Some(0), 3), (Some(1), 4), (None, 5)] {
            listeners.emit(device, &refused(ordinal));
        }
        assert_eq!(take(&of_first), ["ibv_open_device Some(3)", "ibv_open_device Some(5)"]);
        assert_eq!(take(&of_second), ["ibv_open_device Some(4)"]);
        drop(first);
        listeners.emit(Some(0), &refused(6));
        listeners.emit(None, &refused(7));
        assert_eq!(take(&of_second), ["ibv_open_device Some(7)"]);
        drop(second);
        assert!(!listeners.hear(Some(1), Topics::CALLS) && listeners.hear(Some(2), Topics::CALLS));
    }
}
