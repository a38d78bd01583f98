//! Notifications of a rule that applied to a call: to the subscribers of the device that the call is about,
//! the log, the report of calls and the report of faults.

use std::cell::Cell;

use pumice_device::event::{Event, Subscriber, Topics};
use pumice_device::faults::calls::CallFired;

use super::about::CallSubject;
use super::{fault_report_file, report};
use crate::call_sites::own_devices::name_of;
use crate::log::device_subscribers;

thread_local! {
    /// Objects of the call that this thread brings through the gate.
    static ABOUT: Cell<Option<CallSubject>> = const { Cell::new(None) };
    /// Messages of that call for the log.
    static LOG_MESSAGES: Cell<Vec<String>> = const { Cell::new(Vec::new()) };
}

/// Runs the passage of a call about these objects; returns its result, and messages for the log.
pub(super) fn about<T>(about: CallSubject, run: impl FnOnce() -> T) -> (T, Vec<String>) {
    let _ = ABOUT.try_with(|own| own.set(Some(about)));
    let outcome = run();
    let _ = ABOUT.try_with(|own| own.set(None));
    (outcome, LOG_MESSAGES.try_with(Cell::take).unwrap_or_default())
}

/// A function that is notified of a rule that applied, with the index and the name of the call's device, if
/// it is about one.
type FiredCallback = fn(&CallFired<'_>, Option<usize>, Option<&str>);

/// A subscriber that is notified of each rule that applied.
struct FiredSubscriber(FiredCallback);

impl Subscriber for FiredSubscriber {
    fn topics(&self) -> Topics {
        Topics::FAULTS
    }

    fn on_event(&self, _at_ns: u64, event: &Event<'_>) {
        if let Event::CallFaultApplied { fault } = event {
            let device = ABOUT.try_with(Cell::get).ok().flatten().and_then(CallSubject::device);
            self.0(fault, device, device.and_then(name_of));
        }
    }
}

/// Returns the subscribers of the process's gate.
pub(super) fn subscribers() -> Vec<Box<dyn Subscriber>> {
    let device_subscribers: [FiredCallback; 4] = [
        |fired, device, _| device_subscribers::emit(device, &Event::CallFaultApplied { fault: fired }),
        |fired, _, named| {
            queue_log_message(named.map_or(String::new(), |name| format!("{name}: ")) + &fired.sentence())
        },
        |fired, _, _| report::fired(fired),
        |fired, _, named| fault_report_file::fired(fired, named),
    ];
    device_subscribers
        .into_iter()
        .map(|on_event| Box::new(FiredSubscriber(on_event)) as Box<dyn Subscriber>)
        .collect()
}

fn queue_log_message(sentence: String) {
    let _ = LOG_MESSAGES.try_with(|messages| {
        let mut sentences = messages.take();
        sentences.push(sentence);
        messages.set(sentences);
    });
}
