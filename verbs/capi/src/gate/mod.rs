//! The gate at the entry of every call that can fail: calls are counted by name, and the rules of a fault
//! plan make them fail or delay them.
//!
//! Without rules about calls and without a report of calls, the data path only reads one byte. Calls off the
//! data path are always counted, so that a refused call can be named by its ordinal.
//!
//! A call that this library itself makes (`rdma_create_qp` makes completion queues) is part of the program's
//! call: it has no ordinal, and no rule applies to it.

mod about;
pub(crate) mod connections;
mod counts;
mod fault_report_file;
mod fired;
mod inventory;
mod loss_state;
mod report;
mod state;
mod subscribers;
mod watch;
mod world_time;

use pumice_calls::Call;
use pumice_device::event::{CallMade, CallPhase, Event};
use pumice_device::faults::calls::{CallFaults, CallRules};
use pumice_device::outside;

use crate::call_sites::current_call::{self as current, ProgramCall, current};
use crate::check;
use crate::log::inherited;
use crate::platform::cancellation;
use crate::platform::errno::Errno;

pub(crate) use about::CallSubject;
pub(crate) use fault_report_file::fault_report;
pub(crate) use inventory::{given_back, handed_out, left_behind};
pub(crate) use loss_state::{DeviceLoss, LossState, context_closed, context_opened, permits};
pub(crate) use state::{refresh_watch, triggers};
pub(crate) use watch::lets_pass;
pub(crate) use world_time::device_opened;

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
    if watch::is_for_checks() { enter_checked(call, about.address) } else { enter(call, about) }
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
    match inherited::refuse_vfork_child() {
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
    if cancellation::is_repeated() {
        let Some(made) = current::take_aside() else { return CallEntry::UNEXAMINED };
        current::begin(made);
        return CallEntry { examined: Examination::Everything, refused: None };
    }
    let on = about.address;
    let begins = CallMade { call, on, ordinal: 0 };
    subscribers::notify(&Event::Call { made: begins, phase: CallPhase::Begins });
    let entered = state::enter(call, about);
    let is_lost = loss_state::refuses(call, on);
    let made = CallMade { ordinal: entered.ordinal(), ..begins };
    subscribers::notify(&Event::Call { made, phase: CallPhase::Enters });
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
            return subscribers::notify(&Event::Idle { made: called });
        }
        CallExit::Idle | CallExit::Failed => CallPhase::Fails,
        CallExit::Done => CallPhase::Returns,
        CallExit::Again => CallPhase::Pauses,
    };
    match phase {
        CallPhase::Pauses => current::put_aside(made),
        _ => state::returned(&entered),
    }
    subscribers::notify(&Event::Call { made: called, phase });
}

/// Writes the end of the report, at the end of the process.
pub(crate) fn finish() {
    state::finish();
}
