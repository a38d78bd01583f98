//! `pumice check`: the events of calls for the checker ([`pumice_device::check`]), and the output of its
//! findings.
//!
//! If checking is off, no code of this module runs: the gate lets calls of the data path pass. If it is on,
//! all calls stop at the gate. Stacks are captured as return addresses, in the thread of the program; a
//! thread of this library finds the symbols and writes.

mod freed;
mod killed;
mod live;
pub(crate) mod misuse;
mod outputs;
mod process_end;
mod threads;

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use pumice_calls::Call;
use pumice_device::check::{CheckSubscriber, call_ends};
use pumice_device::event::{CallPhase, Event, Subscriber};
use pumice_device::outside;
use pumice_device::waits::StalledWait;

pub(crate) use crate::call_sites::state::{
    call_site_lines, call_stack, frames_of, is_on, with_checker, with_checker_of,
};
use crate::call_sites::state::{checker, of_device};
use crate::log::forget_log_message;
pub(crate) use freed::LatePage;
pub(crate) use killed::set_last_message;
pub(crate) use live::LiveChecks;
pub(crate) use threads::for_one_thread;

thread_local! {
    static CALL_ARGUMENT: CallArgument =
        const { CallArgument { reported: Cell::new(0), permitted: Cell::new(0) } };
}

/// Object that is passed to the call of a thread.
struct CallArgument {
    /// Address of the destroyed object that was reported to the checker; or 0.
    reported: Cell<usize>,
    /// Address of the object, if the program has not destroyed it; or 0.
    permitted: Cell<usize>,
}

/// Reports whether the program has destroyed the object at this address, which it gives to a call. The
/// checker is notified once for each call.
pub(crate) fn was_destroyed(call: &str, address: usize) -> bool {
    let is_reported =
        CALL_ARGUMENT.try_with(|argument| argument.reported.get() == address).unwrap_or_default();
    let mut was_destroyed = false;
    with_checker(|checker| {
        was_destroyed = checker.was_destroyed(address as u64);
        if was_destroyed && !is_reported {
            checker.used(address as u64, call);
        }
    });
    was_destroyed
}

/// Reports whether the call of this thread is given the object at this address, and the program may use it.
pub(crate) fn is_permitted(address: usize) -> bool {
    CALL_ARGUMENT.try_with(|argument| argument.permitted.get() == address).unwrap_or_default()
}

/// Handles an event of the program's calls for the checker.
pub(crate) fn on_event(event: &Event<'_>) {
    match event {
        Event::Call { phase: CallPhase::Begins, .. } => crate::call_sites::preload::begins(),
        Event::Call { made, phase: CallPhase::Enters } => enters(made.call, made.on),
        Event::Call { made, phase } => {
            if *phase == CallPhase::Fails && made.call.destroys() {
                with_checker(|checker| checker.destroy_failed(made.on as u64));
            }
            leaves(made.call, made.on);
        }
        Event::Idle { made } => leaves(made.call, made.on),
        _ => {}
    }
}

/// Handles the begin of a data path call that only the checker needs.
pub(crate) fn enters_data_path(call: Call, address: usize) {
    crate::call_sites::preload::begins();
    enters(call, address);
}

/// Handles the end of a data path call that only the checker needs.
pub(crate) fn leaves_data_path(call: Call, address: usize) {
    leaves(call, address);
}

/// Handles a call of the program that is given the object at this address; 0 if none.
fn enters(call: Call, address: usize) {
    threads::enters(call, address);
    if is_on() {
        // The message of an earlier call does not belong to this one.
        forget_log_message();
        misuse::enters(call, address);
    }
    let mut must_be_written = false;
    with_checker(|checker| {
        checker.call_begins();
        must_be_written = checker.enters(call, address as u64);
    });
    let _ = CALL_ARGUMENT.try_with(|argument| {
        argument.permitted.set(if must_be_written { 0 } else { address });
        if must_be_written {
            argument.reported.set(address);
        }
    });
    if must_be_written {
        outputs::write_now();
    }
}

/// Handles the end of a call whose begin was passed to [`enters`].
fn leaves(call: Call, address: usize) {
    threads::leaves(address);
    crate::call_sites::preload::ends(call);
    call_ends();
    let _ = CALL_ARGUMENT.try_with(|argument| {
        argument.reported.set(0);
        argument.permitted.set(0);
    });
}

/// Reports that a call, about this device if it is about one, was refused with this errno, and the message
/// that was logged.
pub(crate) fn call_refused(call: Call, errno: i32, device: Option<usize>, sentence: &str) {
    let device = of_device(device);
    with_checker(|checker| checker.on(device).call_refused(call, errno, sentence));
}

/// Reports a wait that will never end, at the call site of these return addresses.
pub(crate) fn wait_stalled(stalled_wait: &StalledWait, stack: &[u64]) {
    with_checker(|checker| checker.wait_stalled(stalled_wait, stack));
}

/// Returns the checker's subscriber to the events of the device with this index among the devices, if
/// programs are checked. From now on findings are written.
pub(crate) fn subscriber(device: usize) -> Option<Box<dyn Subscriber>> {
    if !is_on() {
        return None;
    }
    process_end::watch_forks();
    freed::watch();
    process_end::watch_exit();
    killed::watch();
    outputs::start();
    Some(Box::new(CheckSubscriber { checker: Arc::clone(checker()), device: of_device(Some(device)) }))
}

/// Watches a call that blocks until the events of an object are acknowledged: if they are not after a second,
/// this is reported, because the call may never return.
pub(crate) fn waits_for_acknowledgements(
    address: usize,
    events: &str,
    remedy: Call,
    unacknowledged: impl Fn() -> u64,
) {
    const PATIENCE: Duration = Duration::from_secs(1);
    const POLL_INTERVAL: Duration = Duration::from_millis(5);
    if !is_on() || unacknowledged() == 0 {
        return;
    }
    let begun = outside::now();
    while outside::since(begun) < PATIENCE {
        if unacknowledged() == 0 {
            return;
        }
        outside::sleep(POLL_INTERVAL);
    }
    let count = unacknowledged();
    with_checker(|checker| checker.waits_for_acknowledgements(address as u64, count, events, remedy.name()));
}
