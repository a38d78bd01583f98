//! `pumice check`: what calls tell the checker ([`pumice_device::check`]), and where what it finds goes.
//!
//! Off, nothing here runs: calls of the data path do not look, because the gate lets them pass. On, all calls
//! stop at the gate. Stacks are captured as return addresses, in the thread of the program; a thread of this
//! library finds the symbols and writes.

mod asleep;
mod early_uses;
mod exit;
mod fork;
mod freed;
mod killed;
mod known_stacks;
mod late_reads;
mod live;
pub(crate) mod misuse;
mod outputs;
mod place;
mod preload;
mod stack;
mod state;
mod symbols;
mod threads;
mod waits;
mod writer;

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use pumice_calls::Call;
use pumice_device::check::{CheckSubscriber, call_ends};
use pumice_device::event::{CallPhase, Event, Subscriber};
use pumice_device::outside;
use pumice_device::waits::Vain;

use crate::ground::log::forget_sentence;
pub(crate) use killed::says_last;
pub(crate) use late_reads::LatePage;
pub(crate) use live::LiveChecks;
pub(crate) use place::{frames_of, own_place, own_stack, place_of};
use state::{checker, of_device};
pub(crate) use state::{is_on, tell, tell_of};
pub(crate) use threads::for_one_thread;

thread_local! {
    static GIVEN: Given = const { Given { told: Cell::new(0), permitted: Cell::new(0) } };
}

/// What the call of a thread is given.
struct Given {
    /// The destroyed object, of which the checker was told; or 0.
    told: Cell<usize>,
    /// The object, if the program has not destroyed it; or 0.
    permitted: Cell<usize>,
}

/// Whether the program has destroyed the object at this address, which it gives to a call. The checker is
/// told once for each call.
pub(crate) fn is_gone(call: &str, address: usize) -> bool {
    let is_told = GIVEN.try_with(|given| given.told.get() == address).unwrap_or_default();
    let mut is_gone = false;
    tell(|checker| {
        is_gone = checker.is_gone(address as u64);
        if is_gone && !is_told {
            checker.used(address as u64, call);
        }
    });
    is_gone
}

/// Whether the call of this thread is given the object at this address, and the program may use it.
pub(crate) fn is_permitted(address: usize) -> bool {
    GIVEN.try_with(|given| given.permitted.get() == address).unwrap_or_default()
}

/// What the checker learns of the calls of the program, and when.
pub(crate) fn hear(event: &Event<'_>) {
    match event {
        Event::Call { phase: CallPhase::Begins, .. } => waits::begins(),
        Event::Call { made, phase: CallPhase::Enters } => enters(made.call, made.on),
        Event::Call { made, phase } => {
            if *phase == CallPhase::Fails && made.call.gives_back() {
                tell(|checker| checker.destroy_failed(made.on as u64));
            }
            leaves(made.call, made.on);
        }
        Event::Idle { made } => leaves(made.call, made.on),
        _ => {}
    }
}

/// A call of the data path begins of which the checker alone has to know.
pub(crate) fn enters_data_path(call: Call, address: usize) {
    waits::begins();
    enters(call, address);
}

/// It ends.
pub(crate) fn leaves_data_path(call: Call, address: usize) {
    leaves(call, address);
}

/// The program makes a call, which is given the object at this address; 0 if none.
fn enters(call: Call, address: usize) {
    threads::enters(call, address);
    if is_on() {
        // Of calls before.
        forget_sentence();
        misuse::enters(call, address);
    }
    let mut must_be_written = false;
    tell(|checker| {
        checker.call_begins();
        must_be_written = checker.enters(call, address as u64);
    });
    let _ = GIVEN.try_with(|given| {
        given.permitted.set(if must_be_written { 0 } else { address });
        if must_be_written {
            given.told.set(address);
        }
    });
    if must_be_written {
        writer::write_now();
    }
}

/// A call of which [`enters`] was told ends.
fn leaves(call: Call, address: usize) {
    threads::leaves(address);
    waits::ends(call);
    call_ends();
    let _ = GIVEN.try_with(|given| {
        given.told.set(0);
        given.permitted.set(0);
    });
}

/// A call about this device, if it is about one, was refused with this errno, and the log said this.
pub(crate) fn call_refused(call: Call, errno: i32, device: Option<usize>, sentence: &str) {
    let device = of_device(device);
    tell(|checker| checker.on(device).call_refused(call, errno, sentence));
}

/// Something is waited for in vain, where these return addresses say.
pub(crate) fn waits_in_vain(vain: &Vain, stack: &[u64]) {
    tell(|checker| checker.waits_in_vain(vain, stack));
}

/// What listens to the events of the device with this index among the devices, if programs are checked. From
/// now on what is found is written.
pub(crate) fn subscriber(device: usize) -> Option<Box<dyn Subscriber>> {
    if !is_on() {
        return None;
    }
    fork::watch();
    freed::watch();
    exit::watch();
    killed::watch();
    writer::start();
    Some(Box::new(CheckSubscriber { checker: Arc::clone(checker()), device: of_device(Some(device)) }))
}

/// Before a call that blocks until the events of an object are acknowledged: if they are not after a second,
/// that is told, because the call may never return.
pub(crate) fn waits_for_acknowledgements(
    address: usize,
    events: &str,
    remedy: Call,
    unacknowledged: impl Fn() -> u64,
) {
    const PATIENCE: Duration = Duration::from_secs(1);
    const LOOK: Duration = Duration::from_millis(5);
    if !is_on() || unacknowledged() == 0 {
        return;
    }
    let begun = outside::now();
    while outside::since(begun) < PATIENCE {
        if unacknowledged() == 0 {
            return;
        }
        outside::sleep(LOOK);
    }
    let count = unacknowledged();
    tell(|checker| checker.waits_for_acknowledgements(address as u64, count, events, remedy.name()));
}
