//! Those who listen to the events of this process's device, for what happens at the entry of calls.
//!
//! Calls are made before there is a device (`ibv_get_device_list`, `ibv_open_device`). What happens to them
//! waits for the first device, whose listeners are told of it when it opens.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use pumice_device::event::{Event, Subscribers, Topics};
use pumice_device::faults::calls::{CallFate, CallFired, CallKey};

use crate::ground::process::own_process;

/// Events that wait for the first device; later ones are lost.
const MOST_EARLY: usize = 64;

/// An event of a call that was made before there was a device.
enum Early {
    Fault { rule: String, tag: String, call: String, ordinal: u64, fate: CallFate },
    Refused { call: String, ordinal: Option<u64>, errno: i32, why: String },
}

enum State {
    /// There was no device yet in this process.
    NotYet { process: u32, early: Vec<Early> },
    /// The subscribers of this process's device; dangling while there is no device.
    Of(Weak<Subscribers>),
}

struct Listeners(Mutex<State>);

static LISTENERS: Listeners = Listeners::new();

impl Early {
    fn of(event: &Event<'_>) -> Option<Early> {
        Some(match event {
            Event::CallFaultApplied { fault } => Early::Fault {
                rule: fault.rule.to_owned(),
                tag: fault.tag.to_owned(),
                call: fault.key.call.to_owned(),
                ordinal: fault.key.ordinal,
                fate: fault.fate,
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
                events.emit(&Event::CallFaultApplied { fault: &CallFired { rule, tag, key, fate: *fate } });
            }
            Early::Refused { call, ordinal, errno, why } => {
                events.emit(&Event::CallRefused { call, ordinal: *ordinal, errno: *errno, why });
            }
        }
    }
}

impl Listeners {
    const fn new() -> Listeners {
        Listeners(Mutex::new(State::NotYet { process: 0, early: Vec::new() }))
    }

    fn attach(&self, events: &Arc<Subscribers>) {
        let has_any = events.listen(Topics::CALLS | Topics::FAULTS);
        let now = if has_any { Arc::downgrade(events) } else { Weak::new() };
        let before = {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *state, State::Of(now))
        };
        if let State::NotYet { process, early } = before
            && process == own_process()
        {
            early.iter().for_each(|one| one.emit(events));
        }
    }

    /// A lock that is held is not waited for: programs also make calls from signal handlers.
    fn hear(&self, topics: Topics) -> bool {
        match self.0.try_lock().ok().as_deref() {
            Some(State::Of(events)) => events.upgrade().is_some_and(|events| events.listen(topics)),
            Some(State::NotYet { .. }) => true,
            None => false,
        }
    }

    fn emit(&self, event: &Event<'_>) {
        let Ok(mut state) = self.0.try_lock() else { return };
        let events = match &mut *state {
            State::Of(events) => events.upgrade(),
            State::NotYet { process, early } => {
                if *process != own_process() {
                    // What a fork's parent did is not the fork's.
                    (*process, *early) = (own_process(), Vec::new());
                }
                if early.len() < MOST_EARLY {
                    early.extend(Early::of(event));
                }
                None
            }
        };
        drop(state);
        if let Some(events) = events {
            events.emit(event);
        }
    }
}

/// Calls are events of this device from now on, and those that were made before there was one.
pub(crate) fn attach(events: &Arc<Subscribers>) {
    LISTENERS.attach(events);
}

/// Whether these topics have a listener, or may have one when there is a device.
pub(crate) fn hear(topics: Topics) -> bool {
    LISTENERS.hear(topics)
}

/// Tells those who listen.
pub(crate) fn emit(event: &Event<'_>) {
    LISTENERS.emit(event);
}

#[cfg(test)]
mod tests {
    use super::*;
    use pumice_device::event::Subscriber;
    use pumice_device::ground::clock::Clock;

    struct Listener(Arc<Mutex<Vec<String>>>);

    impl Subscriber for Listener {
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
            listeners.emit(&Event::CallFaultApplied { fault });
        }
        assert!(listeners.hear(Topics::CALLS));
        listeners.emit(&Event::CallRefused {
            call: "ibv_open_device",
            ordinal: Some(2),
            errno: 12,
            why: "no room",
        });
        let heard = Arc::default();
        let subscribers: Vec<Box<dyn Subscriber>> = vec![Box::new(Listener(Arc::clone(&heard)))];
        let events = Arc::new(Subscribers::new(subscribers, Clock::monotonic()));
        listeners.attach(&events);
        let told = std::mem::take(&mut *heard.lock().unwrap());
        assert_eq!(told.len(), MOST_EARLY, "a bounded number is kept");
        assert_eq!(told[0], "fault \"one\" fails ibv_open_device with ENOMEM (call 1 of this name)");
        listeners.emit(&Event::CallRefused {
            call: "ibv_open_device",
            ordinal: Some(3),
            errno: 12,
            why: "later",
        });
        assert_eq!(*heard.lock().unwrap(), ["ibv_open_device Some(3)"]);
        drop(events);
        assert!(!listeners.hear(Topics::CALLS));
    }
}
