//! Notifications at the gate: rules that applied to a call, what is known about it before, and connect(2) on
//! TCP.
//!
//! Notifications of connect(2) on TCP by the small preload (`verbs/sysfs`): each is a point in the order of a
//! process.
//!
//! Notifications of a rule that applied to a call: to the subscribers of the device that the call is about,
//! the log, the report of calls and the report of faults.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem::transmute;

use pumice_device::event::{Event, Subscriber, Topics};
use pumice_device::faults::calls::CallFired;
use pumice_device::platform::order;
use pumice_transport::types::QpState;

use super::report;
use crate::call_sites::current_call::{device_at, name_of};
use crate::log::device_subscribers;

/// The objects that a call is about.
#[derive(Clone, Copy)]
pub(crate) struct CallSubject {
    pub(super) address: usize,
    on: DeviceSource,
    pub(super) queue_pair: Option<fn(usize) -> Option<u32>>,
    /// State to which the call is to bring the queue pair.
    pub(super) to: Option<QpState>,
}

/// Object that determines the device of a call.
#[derive(Clone, Copy)]
enum DeviceSource {
    Nothing,
    /// A context, or an object of one, by its address.
    Object(usize),
    /// An object that may have a context, and the function that finds the context's address; 0 if it has
    /// none. The function is called no earlier than the call itself accesses the object: a pointer may be
    /// invalid.
    Owner(*const (), fn(*const ()) -> usize),
    /// A device, by its index among the devices.
    Device(usize),
}

impl CallSubject {
    /// A call about no known object.
    pub(crate) const NOTHING: CallSubject =
        CallSubject { address: 0, on: DeviceSource::Nothing, queue_pair: None, to: None };

    /// Returns a call about the object behind a program's pointer.
    pub(crate) fn of<T>(pointer: *const T) -> CallSubject {
        let address = pointer.addr();
        CallSubject { address, on: DeviceSource::Object(address), ..CallSubject::NOTHING }
    }

    /// Returns a call about the device of the object behind a program's pointer: the call uses the object,
    /// and is not about it alone.
    pub(crate) fn on<T>(pointer: *const T) -> CallSubject {
        CallSubject { on: DeviceSource::Object(pointer.addr()), ..CallSubject::NOTHING }
    }

    /// Returns a call about a device, by its index among the devices.
    pub(crate) const fn device_at(index: usize) -> CallSubject {
        CallSubject { on: DeviceSource::Device(index), ..CallSubject::NOTHING }
    }

    /// Returns the same call about an object that may have a context, whose address `context` finds.
    pub(crate) const fn owned_by(self, pointer: *const (), context: fn(*const ()) -> usize) -> CallSubject {
        CallSubject { on: DeviceSource::Owner(pointer, context), ..self }
    }

    /// Returns a call about the queue pair behind a program's pointer; `ordinal` finds its ordinal by the
    /// address.
    pub(crate) fn queue_pair<T>(pointer: *const T, ordinal: fn(usize) -> Option<u32>) -> CallSubject {
        CallSubject { queue_pair: Some(ordinal), ..CallSubject::of(pointer) }
    }

    /// Returns the same call, which is to bring the queue pair to a state.
    pub(crate) const fn towards(self, to: Option<QpState>) -> CallSubject {
        CallSubject { to, ..self }
    }

    /// Returns the index of the device among the devices, if it is known.
    pub(crate) fn device(self) -> Option<usize> {
        match self.on {
            DeviceSource::Nothing => None,
            DeviceSource::Object(address) => device_at(address),
            DeviceSource::Owner(pointer, context) => device_at(context(pointer)),
            DeviceSource::Device(index) => Some(index),
        }
    }
}

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
        |fired, _, named| report::report_fault(fired, named),
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

/// Callbacks for the preload, which has the same structure in `verbs/sysfs/src/connections.rs`.
#[repr(C)]
struct ConnectionHooks {
    before_connect: extern "C" fn(),
    after_connect: extern "C" fn(c_int),
}

static HOOKS: ConnectionHooks = ConnectionHooks { before_connect, after_connect };

/// Registers the callbacks with the preload, if it is loaded.
pub(crate) fn watch() {
    // SAFETY: a name that ends with NUL.
    let function = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"pumice_connections_told_to".as_ptr()) };
    if function.is_null() {
        return;
    }
    // SAFETY: the function of that name has this type, and the structure lives as long as the process.
    unsafe {
        transmute::<*mut c_void, unsafe extern "C" fn(*const ConnectionHooks)>(function)(&raw const HOOKS)
    };
}

extern "C" fn before_connect() {
    if let Some(order) = order::of_process() {
        order.begins_to_connect();
    }
}

extern "C" fn after_connect(is_made: c_int) {
    if let Some(order) = order::of_process() {
        order.has_connected(is_made != 0);
    }
}
