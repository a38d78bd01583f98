//! The gate at the entry of every call that can fail, the subscribers to calls, and the contexts of lost
//! devices.
//!
//! The gate at the entry of every call that can fail: calls are counted by name, and the rules of a fault
//! plan make them fail or delay them.
//!
//! Subscribers receive [`Event::Call`] and [`Event::Idle`] only, in the thread that makes the call, and
//! without a time: reading a clock would cost more than most of them do. The subscribers also determine
//! whether calls of the data path come here at all ([`super::state`]).
//!
//! Without rules about calls and without a report of calls, the data path only reads one byte. Calls off the
//! data path are always counted, so that a refused call can be named by its ordinal.
//!
//! A call that this library itself makes (`rdma_create_qp` makes completion queues) is part of the program's
//! call: it has no ordinal, and no rule applies to it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pumice_calls::Call;
use pumice_device::event::{CallMade, CallPhase, Event};
use pumice_device::faults::calls::{CallFaults, CallRules};
use pumice_device::outside;
use pumice_device::outside::fork_generation::PerProcess;
use pumice_device::platform::order;

use crate::call_sites::current_call;
use crate::call_sites::current_call::{self as current, ProgramCall, context_at, current};
use crate::log::refusal;
use crate::platform::{Errno, threads};
use crate::{check, waits};

/// State of an opened device: lost or not. A lost device stays lost.
pub(crate) struct LossState {
    lost: AtomicU8,
    /// Index of the device among the devices.
    device: usize,
}

/// Way in which a device was lost.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum DeviceLoss {
    /// The device has failed.
    Failed = 1,
    /// The device was removed: programs still find flushed completions.
    Removed = 2,
}

impl LossState {
    /// Creates the state of the device with this index among the devices.
    pub(crate) const fn of(device: usize) -> LossState {
        LossState { lost: AtomicU8::new(0), device }
    }

    /// Marks the device as lost.
    pub(crate) fn end(&self, loss: DeviceLoss) {
        self.lost.store(loss as u8, Ordering::SeqCst);
        state::lose_device();
    }

    /// Returns how the device was lost, if it was.
    pub(crate) fn loss(&self) -> Option<DeviceLoss> {
        match self.lost.load(Ordering::SeqCst) {
            0 => None,
            1 => Some(DeviceLoss::Failed),
            _ => Some(DeviceLoss::Removed),
        }
    }
}

/// State of each open context's device, by the address of the context.
static CONTEXTS: PerProcess<Mutex<BTreeMap<usize, Arc<LossState>>>> = PerProcess::new(|_| Mutex::default());

fn contexts() -> MutexGuard<'static, BTreeMap<usize, Arc<LossState>>> {
    CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records that a context was opened.
pub(crate) fn context_opened(address: usize, loss_state: &Arc<LossState>) {
    current_call::context_opened(address, loss_state.device);
    contexts().insert(address, Arc::clone(loss_state));
}

/// Records that a context was closed.
pub(crate) fn context_closed(address: usize) {
    current_call::context_closed(address);
    contexts().remove(&address);
}

/// Reports whether a call on the object at this address fails because its device is lost. If the device is
/// not known, the call fails if all devices are lost.
pub(super) fn refuses(call: Call, address: usize) -> bool {
    if !state::is_lost() || call.outlives_device() {
        return false;
    }
    let own = context_at(address).unwrap_or(address);
    let contexts = contexts();
    match contexts.get(&own) {
        Some(loss_state) => match loss_state.loss() {
            None => false,
            Some(DeviceLoss::Failed) => true,
            Some(DeviceLoss::Removed) => !call.polls(),
        },
        None => {
            !contexts.is_empty()
                && contexts.values().all(|loss_state| loss_state.loss() == Some(DeviceLoss::Failed))
        }
    }
}

/// Checks whether the call that this thread is in may use the context at this address, or an object in it.
///
/// # Errors
/// Fails with EIO if the device is lost.
pub(crate) fn permits(context: usize) -> Result<(), Errno> {
    if !state::is_lost() {
        return Ok(());
    }
    let call = current().and_then(|made| made.call());
    if call.is_none_or(Call::outlives_device) {
        return Ok(());
    }
    let is_lost = contexts().get(&context).is_some_and(|loss_state| loss_state.loss().is_some());
    if is_lost { Err(Errno(libc::EIO)) } else { Ok(()) }
}

/// The table of subscribers, in this order: the wait watcher first records what a thread polls, the checker
/// learns of a call before the world hands over to another thread, and the recorded order comes after those.
const SUBSCRIBERS: [fn(&Event<'_>); 6] =
    [waits::on_event, check::on_event, yield_in_world, follow_order, state::on_event, report::on_event];

/// Notifies all subscribers.
pub(super) fn notify(event: &Event<'_>) {
    for on_event in SUBSCRIBERS {
        on_event(event);
    }
}

/// Lets another thread run, in a world, before each call, after each that posts, and after each idle poll.
fn yield_in_world(event: &Event<'_>) {
    if !outside::world::is_in_world() || state::pass(event) {
        return;
    }
    match event {
        Event::Call { phase: CallPhase::Enters, .. } => outside::world::point(),
        // What is posted may complete before the program goes on.
        Event::Call { made: CallMade { call, .. }, phase: CallPhase::Returns } if call.posts() => {
            outside::world::point()
        }
        Event::Idle { .. } => outside::world::idle_poll(),
        _ => {}
    }
}

/// Records or imposes the order of calls.
fn follow_order(event: &Event<'_>) {
    let (Event::Call { made: CallMade { call, .. }, .. } | Event::Idle { made: CallMade { call, .. } }) =
        event
    else {
        return;
    };
    let Some(order) = order::of_process() else { return };
    match event {
        Event::Call { phase: CallPhase::Enters, .. } => order.enters(*call),
        Event::Call { phase: CallPhase::Returns | CallPhase::Fails, .. } => order.leaves(*call, false),
        Event::Idle { .. } => order.leaves(*call, true),
        _ => {}
    }
}

pub(crate) mod fired;
mod report;
mod state;

pub(crate) use fired::CallSubject;
pub(crate) use report::fault_report;
pub(crate) use report::{given_back, handed_out, left_behind};

pub(crate) use state::device_opened;
pub(crate) use state::lets_pass;
pub(crate) use state::{refresh_watch, triggers};

/// A call that has entered, and has to leave.
#[derive(Clone, Copy)]
pub(crate) struct CallEntry {
    examined: Examination,
    /// Error with which the call fails without being executed.
    pub(crate) refused: Option<Errno>,
}

/// Part of a call that is examined.
#[derive(Clone, Copy)]
enum Examination {
    Nothing,
    /// The checker alone examines the call.
    Checked(Call),
    /// The call is one of the program, which was counted.
    Everything,
}

impl CallEntry {
    /// The passage of a call that is not examined.
    pub(crate) const UNEXAMINED: CallEntry = CallEntry { examined: Examination::Nothing, refused: None };
}

/// Lets a call of the data path enter that has to be examined.
#[inline]
pub(crate) fn enter_data_path(call: Call, about: CallSubject) -> CallEntry {
    if state::is_for_checks() { enter_checked(call, about.address) } else { enter(call, about) }
}

/// Lets a call of the data path enter for the checker. Without a plan and a report it needs no ordinal:
/// findings contain its name and the program's call site.
#[inline(never)]
fn enter_checked(call: Call, on: usize) -> CallEntry {
    if !current::begins(ProgramCall::Uncounted(call)) {
        return CallEntry::UNEXAMINED;
    }
    check::enters_data_path(call, on);
    CallEntry { examined: Examination::Checked(call), refused: None }
}

/// Lets a call off the data path enter, as [`enter`] does.
pub(crate) fn enter_control_path(call: Call, about: CallSubject) -> CallEntry {
    match refusal::refuse_vfork_child() {
        Some(errno) => CallEntry { examined: Examination::Nothing, refused: Some(errno) },
        None => enter(call, about),
    }
}

/// Lets a call enter.
#[cold]
#[inline(never)]
pub(crate) fn enter(call: Call, about: CallSubject) -> CallEntry {
    if current().is_some() {
        return CallEntry::UNEXAMINED;
    }
    if threads::is_repeated() {
        let Some(made) = current::take_aside() else { return CallEntry::UNEXAMINED };
        current::begin(made);
        return CallEntry { examined: Examination::Everything, refused: None };
    }
    let on = about.address;
    let begins = CallMade { call, on, ordinal: 0 };
    notify(&Event::Call { made: begins, phase: CallPhase::Begins });
    let entered = state::enter(call, about);
    let is_lost = refuses(call, on);
    let made = CallMade { ordinal: entered.ordinal(), ..begins };
    notify(&Event::Call { made, phase: CallPhase::Enters });
    current::begin(ProgramCall::Counted(entered));
    if entered.delay_ns > 0 {
        outside::sleep(std::time::Duration::from_nanos(entered.delay_ns));
    }
    let refused = if is_lost { Some(libc::EIO) } else { entered.refused };
    CallEntry { examined: Examination::Everything, refused: refused.map(Errno) }
}

/// The rules about calls of this process, as an interface to change them while the program runs.
pub(crate) struct ProcessCalls;

impl CallRules for ProcessCalls {
    fn change(&self, change: &mut dyn FnMut(&mut CallFaults)) {
        state::change(change);
    }
}

/// End of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallExit {
    Done,
    /// The call found nothing, and is not counted because the number of such calls depends on time.
    Idle,
    /// The call will be tried again.
    Again,
    Failed,
}

/// Lets a call that has entered leave.
#[inline]
pub(crate) fn leave(call_entry: CallEntry, end: impl FnOnce() -> CallExit, about: CallSubject) {
    match call_entry.examined {
        Examination::Nothing => {}
        Examination::Checked(call) => leave_checked(call, about.address),
        Examination::Everything => left(call_entry, end(), about),
    }
}

#[inline(never)]
fn leave_checked(call: Call, on: usize) {
    current::end();
    check::leaves_data_path(call, on);
}

#[cold]
#[inline(never)]
fn left(call_entry: CallEntry, end: CallExit, about: CallSubject) {
    let Some(made) = current::end() else { return };
    let ProgramCall::Counted(entered) = made else { return };
    let called = CallMade { call: entered.call(), on: about.address, ordinal: entered.ordinal() };
    let phase = match end {
        // A call that a plan refused has found nothing either, but counts.
        CallExit::Idle if call_entry.refused.is_none() => {
            state::take_back(&entered);
            return notify(&Event::Idle { made: called });
        }
        CallExit::Idle | CallExit::Failed => CallPhase::Fails,
        CallExit::Done => CallPhase::Returns,
        CallExit::Again => CallPhase::Pauses,
    };
    match phase {
        CallPhase::Pauses => current::put_aside(made),
        _ => state::returned(&entered),
    }
    notify(&Event::Call { made: called, phase });
}

/// Writes the end of the report, at the end of the process.
pub(crate) fn finish() {
    state::finish();
}
