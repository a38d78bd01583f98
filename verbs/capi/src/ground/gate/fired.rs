//! Who is told of a rule that applied to a call: the listeners of the device that the call is about, the
//! log, the report of calls and the report of faults.

use std::cell::Cell;

use pumice_device::event::{Event, Subscriber, Topics};
use pumice_device::faults::calls::CallFired;

use super::about::About;
use super::{evidence, report};
use crate::ground::listeners;
use crate::ground::own_devices::name_of;

thread_local! {
    /// What the call is about that this thread brings through the gate.
    static ABOUT: Cell<Option<About>> = const { Cell::new(None) };
    /// Sentences for the log, of that call.
    static TOLD: Cell<Vec<String>> = const { Cell::new(Vec::new()) };
}

/// Runs a passage of a call about this: its outcome, and sentences for the log.
pub(super) fn about<T>(about: About, run: impl FnOnce() -> T) -> (T, Vec<String>) {
    let _ = ABOUT.try_with(|own| own.set(Some(about)));
    let outcome = run();
    let _ = ABOUT.try_with(|own| own.set(None));
    (outcome, TOLD.try_with(Cell::take).unwrap_or_default())
}

/// Told of a rule that applied, with the index and the name of the call's device, if it is about one.
type Hear = fn(&CallFired<'_>, Option<usize>, Option<&str>);

/// One that hears of each rule.
struct Listener(Hear);

impl Subscriber for Listener {
    fn topics(&self) -> Topics {
        Topics::FAULTS
    }

    fn hear(&self, _at_ns: u64, event: &Event<'_>) {
        if let Event::CallFaultApplied { fault } = event {
            let device = ABOUT.try_with(Cell::get).ok().flatten().and_then(About::device);
            self.0(fault, device, device.and_then(name_of));
        }
    }
}

/// The listeners of a gate of the process.
pub(super) fn subscribers() -> Vec<Box<dyn Subscriber>> {
    let listeners: [Hear; 4] = [
        |fired, device, _| listeners::emit(device, &Event::CallFaultApplied { fault: fired }),
        |fired, _, named| tell(named.map_or(String::new(), |name| format!("{name}: ")) + &fired.sentence()),
        |fired, _, _| report::fired(fired),
        |fired, _, named| evidence::fired(fired, named),
    ];
    listeners.into_iter().map(|hear| Box::new(Listener(hear)) as Box<dyn Subscriber>).collect()
}

fn tell(sentence: String) {
    let _ = TOLD.try_with(|told| {
        let mut sentences = told.take();
        sentences.push(sentence);
        told.set(sentences);
    });
}
