//! The gate at the entry of every call that can fail: calls are counted by name, and the rules of a fault
//! plan make them fail or take their time.
//!
//! Without rules about calls and without a report of calls, the data path reads one byte and goes on. Calls
//! off the data path are always counted, so that a refused call can be named by its ordinal.
//!
//! A call that this library makes of itself (`rdma_create_qp` makes completion queues) is part of the call
//! that the program made: it has no ordinal, and no rule is asked about it.

mod about;
mod counts;
mod current;
mod evidence;
mod fired;
mod inventory;
mod life;
mod report;
mod state;
mod subscribers;
mod watch;

use pumice_calls::Call;
use pumice_device::event::{CallMade, CallPhase, Event};
use pumice_device::faults::calls::{CallFaults, CallRules};
use pumice_device::outside;

use crate::ground::cancellation;
use crate::ground::check;
use crate::ground::errno::Errno;
use crate::ground::inherited;

pub(crate) use about::About;
use current::Made;
pub(crate) use current::{current, quietly};
pub(crate) use evidence::fault_report;
pub(crate) use inventory::{given_back, handed_out, left_behind};
pub(crate) use life::{Life, Loss, context_closed, context_opened, permits};
pub(crate) use state::{look_anew, triggers};
pub(super) use watch::lets_pass;

/// A call that has entered, and has to leave.
#[derive(Clone, Copy)]
pub(super) struct Passage {
    seen: Seen,
    /// It does nothing, and fails with this.
    pub(super) refused: Option<Errno>,
}

/// How much was seen of a call.
#[derive(Clone, Copy)]
enum Seen {
    Nothing,
    /// The checker knows of it, and nothing else.
    Checked(Call),
    /// A call of the program, which was counted.
    Everything,
}

impl Passage {
    /// Of a call that was not looked at.
    pub(super) const UNSEEN: Passage = Passage { seen: Seen::Nothing, refused: None };
}

/// A call of the data path enters, which something wants to know of.
#[inline]
pub(super) fn enter_data_path(call: Call, about: About) -> Passage {
    if watch::is_for_checks() { enter_checked(call, about.address) } else { enter(call, about) }
}

/// A call of the data path enters. Without a plan and a report it needs no ordinal: its name and the place
/// of the program are what findings have of it.
#[inline(never)]
fn enter_checked(call: Call, on: usize) -> Passage {
    if !current::begins(Made::Uncounted(call)) {
        return Passage::UNSEEN;
    }
    check::enters_data_path(call, on);
    Passage { seen: Seen::Checked(call), refused: None }
}

/// A call off the data path enters, as [`enter`] has it.
pub(super) fn enter_whole(call: Call, about: About) -> Passage {
    match inherited::refuse_borrower() {
        Some(errno) => Passage { seen: Seen::Nothing, refused: Some(errno) },
        None => enter(call, about),
    }
}

/// A call enters.
#[cold]
#[inline(never)]
pub(super) fn enter(call: Call, about: About) -> Passage {
    if current().is_some() {
        return Passage::UNSEEN;
    }
    if cancellation::is_repeated() {
        let Some(made) = current::take_aside() else { return Passage::UNSEEN };
        current::begin(made);
        return Passage { seen: Seen::Everything, refused: None };
    }
    let on = about.address;
    let begins = CallMade { call, on, ordinal: 0 };
    subscribers::tell(&Event::Call { made: begins, phase: CallPhase::Begins });
    let entered = state::enter(call, about);
    let is_lost = life::refuses(call, on);
    let made = CallMade { ordinal: entered.ordinal(), ..begins };
    subscribers::tell(&Event::Call { made, phase: CallPhase::Enters });
    current::begin(Made::Counted(entered));
    if entered.delay_ns > 0 {
        outside::sleep(std::time::Duration::from_nanos(entered.delay_ns));
    }
    let refused = if is_lost { Some(libc::EIO) } else { entered.refused };
    Passage { seen: Seen::Everything, refused: refused.map(Errno) }
}

/// The rules about calls of this process, for those who change them while the program runs.
pub(crate) struct ProcessCalls;

impl CallRules for ProcessCalls {
    fn change(&self, change: &mut dyn FnMut(&mut CallFaults)) {
        state::change(change);
    }
}

/// How a call ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PassageEnd {
    Done,
    /// It found nothing, and how often programs look depends on time: it does not count.
    Idle,
    /// It will be tried again.
    Again,
    Failed,
}

/// A call that has entered leaves.
#[inline]
pub(super) fn leave(passage: Passage, end: impl FnOnce() -> PassageEnd, about: About) {
    match passage.seen {
        Seen::Nothing => {}
        Seen::Checked(call) => left_checked(call, about.address),
        Seen::Everything => left(passage, end(), about),
    }
}

#[inline(never)]
fn left_checked(call: Call, on: usize) {
    current::end();
    check::leaves_data_path(call, on);
}

#[cold]
#[inline(never)]
fn left(passage: Passage, end: PassageEnd, about: About) {
    let Some(made) = current::end() else { return };
    let Made::Counted(entered) = made else { return };
    let called = CallMade { call: entered.call(), on: about.address, ordinal: entered.ordinal() };
    let phase = match end {
        // What a plan refused has found nothing either, and counts.
        PassageEnd::Idle if passage.refused.is_none() => {
            state::take_back(&entered);
            return subscribers::tell(&Event::Idle { made: called });
        }
        PassageEnd::Idle | PassageEnd::Failed => CallPhase::Fails,
        PassageEnd::Done => CallPhase::Returns,
        PassageEnd::Again => CallPhase::Pauses,
    };
    match phase {
        CallPhase::Pauses => current::put_aside(made),
        _ => state::returned(&entered),
    }
    subscribers::tell(&Event::Call { made: called, phase });
}

/// The process ends: what the report says at the end is written.
pub(crate) fn farewell() {
    state::farewell();
}
