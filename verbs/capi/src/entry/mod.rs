//! What crosses the boundary to C: arguments, results, objects, requests.
//!
//! Results of calls: errno conventions, and the boundary that stops panics.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pumice_calls::{Call, ErrorReturn};
use pumice_device::outside::system_call::Uncancelled;

use crate::call_sites::current_call::run_internally;
use crate::entry::refusals::{is_normal_result, log_refusal};
use crate::gate::{self, CallEntry, CallExit, CallSubject};
use crate::log::settings::check_refusals;
use crate::log::{refusal, take_logged};
use crate::platform::threads::RESTART;
use crate::platform::{Errno, NOT_SUPPORTED, reserve, set_errno};

/// Runs a function and converts a panic to EIO. The panic itself was reported by its hook.
#[inline]
fn catch_panics<T>(run: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    // State that a panic leaves half changed is behind the locks of the device, whose poisoning is ignored.
    catch_unwind(AssertUnwindSafe(run)).unwrap_or(Err(Errno(libc::EIO)))
}

/// Runs a call that has passed the gate, and stops panics. `is_idle` reports whether the result means that
/// the call found nothing.
#[inline]
fn run_call<T>(
    call: Call,
    call_entry: CallEntry,
    about: CallSubject,
    run: impl FnOnce() -> Result<T, Errno>,
    is_idle: impl FnOnce(&T) -> bool,
) -> Result<T, Errno> {
    let outcome = match call_entry.refused {
        None => catch_panics(run),
        Some(errno) => Err(errno),
    };
    end_call(call, call_entry, about, outcome.as_ref().map(is_idle).map_err(|errno| *errno));
    outcome
}

/// Ends a call: logs why it was refused, and lets it leave the gate. `is_idle` says whether the call found
/// nothing.
#[inline(never)]
fn end_call(call: Call, call_entry: CallEntry, about: CallSubject, is_idle: Result<bool, Errno>) {
    if let Err(errno) = is_idle {
        log_refusal(call, errno, about, call_entry.refused.is_some());
    }
    let end = || match is_idle {
        Ok(true) => CallExit::Idle,
        Ok(false) => CallExit::Done,
        Err(RESTART) => CallExit::Again,
        Err(errno) if is_normal_result(errno) => CallExit::Idle,
        Err(_) => CallExit::Failed,
    };
    gate::leave(call_entry, end, about);
}

/// Returns false: the call found something, or does not look for anything.
const fn found<T>(_outcome: &T) -> bool {
    false
}

/// Asserts that a call ends as its row says.
#[inline]
fn check_convention(call: Call, answer: ErrorReturn) {
    debug_assert_eq!(call.row().answer, answer, "{call} ends otherwise than its row says");
}

/// Runs a call through the gate and stops panics; the thread is not cancelled meanwhile.
fn contained<T>(call: Call, about: CallSubject, run: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    let _uncancelled = Uncancelled::begin();
    let run = || {
        check_refusals(call)?;
        reserve::check(call.row())?;
        run()
    };
    run_call(call, gate::enter_control_path(call, about), about, run, found)
}

/// Conventions for the data path, which makes no system call that is a cancellation point.
pub(crate) mod data_path {
    use super::{Call, ErrorReturn, check_convention, end_call};
    use super::{CallEntry, CallSubject, Errno, c_int, catch_panics, found, gate, set_errno};

    /// Runs a call, and stops panics. `refused` reports further information when a fault rule refuses the
    /// call. A call that is not examined, and is not refused, does nothing else.
    #[inline(always)]
    fn run_call<T>(
        call: Call,
        about: CallSubject,
        refused: impl FnOnce(),
        run: impl FnOnce() -> Result<T, Errno>,
        is_idle: impl FnOnce(&T) -> bool,
    ) -> Result<T, Errno> {
        let call_entry = if gate::lets_pass() { None } else { Some(gate::enter_data_path(call, about)) };
        let outcome = match call_entry.and_then(|call_entry| call_entry.refused) {
            None => catch_panics(run),
            Some(errno) => {
                refused();
                Err(errno)
            }
        };
        if call_entry.is_some() || outcome.is_err() {
            let is_idle = outcome.as_ref().map(is_idle).map_err(|errno| *errno);
            end_call(call, call_entry.unwrap_or(CallEntry::UNEXAMINED), about, is_idle);
        }
        outcome
    }

    #[inline]
    fn returned(outcome: Result<(), Errno>) -> c_int {
        match outcome {
            Ok(()) => 0,
            Err(Errno(errno)) => {
                set_errno(errno);
                errno
            }
        }
    }

    /// Runs a call as [`super::status`] does.
    #[inline]
    pub(crate) fn status(call: Call, about: CallSubject, run: impl FnOnce() -> Result<(), Errno>) -> c_int {
        check_convention(call, ErrorReturn::Errno);
        returned(run_call(call, about, || (), run, found))
    }

    /// Runs a call as [`super::status`] does; `refused` reports further information when a fault rule refuses
    /// the call.
    #[inline]
    pub(crate) fn status_or(
        call: Call,
        about: CallSubject,
        refused: impl FnOnce(),
        run: impl FnOnce() -> Result<(), Errno>,
    ) -> c_int {
        check_convention(call, ErrorReturn::Errno);
        returned(run_call(call, about, refused, run, found))
    }

    /// Runs a call as [`super::negative_of`] does; the result 0 means that it found nothing.
    #[inline]
    pub(crate) fn polled(
        call: Call,
        about: CallSubject,
        run: impl FnOnce() -> Result<c_int, Errno>,
    ) -> c_int {
        check_convention(call, ErrorReturn::Negative);
        let outcome = run_call(call, about, || (), run, |count| *count == 0);
        outcome.unwrap_or_else(|Errno(errno)| {
            set_errno(errno);
            -errno
        })
    }

    /// Runs a call that returns a number, or -1 and errno; the result 0 means that it found nothing.
    #[inline]
    pub(crate) fn polled_number(
        call: Call,
        about: CallSubject,
        run: impl FnOnce() -> Result<c_int, Errno>,
    ) -> c_int {
        check_convention(call, ErrorReturn::MinusOne);
        let outcome = run_call(call, about, || (), run, |count| *count == 0);
        outcome.unwrap_or_else(|Errno(errno)| {
            set_errno(errno);
            -1
        })
    }

    /// Runs a call that returns an errno as a number; `idle` is the errno that means that it found nothing.
    #[inline]
    pub(crate) fn code(call: Call, about: CallSubject, idle: c_int, run: impl FnOnce() -> c_int) -> c_int {
        check_convention(call, ErrorReturn::Errno);
        let outcome = run_call(call, about, || (), || Ok(run()), |code| *code == idle);
        outcome.unwrap_or_else(|Errno(errno)| errno)
    }

    /// Runs a call as [`super::value`] does, if it makes no other call.
    #[inline]
    pub(crate) fn value<T>(otherwise: T, run: impl FnOnce() -> T) -> T {
        catch_panics(|| Ok(run())).unwrap_or(otherwise)
    }
}

/// Runs an attempt of a call that waits and returns a number, or -1 and errno: [`TRY_AGAIN`] if the attempt
/// ended with its slice.
pub(crate) fn attempt<T: From<i8>>(
    call: Call,
    about: CallSubject,
    run: impl FnOnce() -> Result<T, Errno>,
) -> T {
    check_convention(call, ErrorReturn::MinusOne);
    contained(call, about, run).unwrap_or_else(|errno| {
        if errno == RESTART {
            return T::from(TRY_AGAIN);
        }
        set_errno(errno.0);
        T::from(-1)
    })
}

/// Result of an [`attempt`] that has to be repeated. No call returns it.
pub(crate) const TRY_AGAIN: i8 = -2;

/// Runs a call that returns 0 or a positive errno.
#[inline]
pub(crate) fn status(call: Call, run: impl FnOnce() -> Result<(), Errno>) -> c_int {
    status_of(call, CallSubject::NOTHING, run)
}

/// Runs a call about an object as [`status`] does.
#[inline]
pub(crate) fn status_of(call: Call, about: CallSubject, run: impl FnOnce() -> Result<(), Errno>) -> c_int {
    check_convention(call, ErrorReturn::Errno);
    match contained(call, about, run) {
        Ok(()) => 0,
        Err(Errno(errno)) => {
            set_errno(errno);
            errno
        }
    }
}

/// Runs a call that returns a pointer, or NULL and errno.
pub(crate) fn pointer<T>(call: Call, run: impl FnOnce() -> Result<*mut T, Errno>) -> *mut T {
    pointer_about(call, CallSubject::NOTHING, run)
}

/// Runs a call about an object as [`pointer`] does.
pub(crate) fn pointer_about<T>(
    call: Call,
    about: CallSubject,
    run: impl FnOnce() -> Result<*mut T, Errno>,
) -> *mut T {
    check_convention(call, ErrorReturn::Null);
    contained(call, about, run).unwrap_or_else(|Errno(errno)| {
        set_errno(errno);
        std::ptr::null_mut()
    })
}

/// Runs a call that returns a number, or -1 and errno.
#[inline]
pub(crate) fn number(call: Call, run: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
    number_of(call, CallSubject::NOTHING, run)
}

/// Runs a call about an object as [`number`] does.
#[inline]
pub(crate) fn number_of(call: Call, about: CallSubject, run: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
    check_convention(call, ErrorReturn::MinusOne);
    contained(call, about, run).unwrap_or_else(|Errno(errno)| {
        set_errno(errno);
        -1
    })
}

/// Runs a call that returns a number, or a negative errno.
#[inline]
pub(crate) fn negative_of(
    call: Call,
    about: CallSubject,
    run: impl FnOnce() -> Result<c_int, Errno>,
) -> c_int {
    check_convention(call, ErrorReturn::Negative);
    contained(call, about, run).unwrap_or_else(|Errno(errno)| -errno)
}

/// Returns the errno of a call that is not implemented, which `explain` logs. Such calls are not counted.
pub(crate) fn unsupported(explain: impl FnOnce()) -> c_int {
    let _uncancelled = Uncancelled::begin();
    let Errno(errno) = refusal::refuse_vfork_child().unwrap_or_else(|| {
        // The message of `explain` is the reason: no other is given.
        let _ = catch_panics(|| {
            explain();
            Ok(())
        });
        NOT_SUPPORTED
    });
    take_logged();
    set_errno(errno);
    errno
}

/// Runs a call that cannot fail; returns `otherwise` after a panic, and in a child that may make no calls.
#[inline]
pub(crate) fn value<T>(otherwise: T, call: impl FnOnce() -> T) -> T {
    let _uncancelled = Uncancelled::begin();
    if refusal::refuse_vfork_child().is_some() {
        return otherwise;
    }
    run_internally(|| catch_panics(|| Ok(call()))).unwrap_or(otherwise)
}

/// Conventions for rsockets, whose calls end as those of sockets do. Calls made inside them do not count as
/// the program's.
pub(crate) mod sockets {
    use super::{Call, CallExit, CallSubject, Errno, ErrorReturn, TRY_AGAIN, Uncancelled};
    use super::{c_int, catch_panics, check_convention, found, gate, run_internally, set_errno};
    use crate::gate::CallEntry;
    use crate::platform::reserve;
    use crate::platform::threads::RESTART;

    /// Runs a call through the gate. Errnos of sockets are answers, and are not logged.
    fn contained<T>(
        call: Call,
        run: impl FnOnce() -> Result<T, Errno>,
        is_idle: impl FnOnce(&T) -> bool,
    ) -> Result<T, Errno> {
        check_convention(call, ErrorReturn::MinusOne);
        let _uncancelled = Uncancelled::begin();
        let call_entry = match call.is_data_path() && gate::lets_pass() {
            true => CallEntry::UNEXAMINED,
            false => gate::enter_control_path(call, CallSubject::NOTHING),
        };
        let outcome = match call_entry.refused {
            None => reserve::check(call.row()).and_then(|()| run_internally(|| catch_panics(run))),
            Some(errno) => Err(errno),
        };
        let end = || match &outcome {
            Ok(outcome) if is_idle(outcome) => CallExit::Idle,
            Err(RESTART) => CallExit::Again,
            // The number of a program's attempts depends on time.
            Err(Errno(libc::EAGAIN | libc::EINTR | libc::EALREADY)) => CallExit::Idle,
            Ok(_) | Err(Errno(libc::EINPROGRESS)) => CallExit::Done,
            Err(_) => CallExit::Failed,
        };
        gate::leave(call_entry, end, CallSubject::NOTHING);
        outcome
    }

    fn ended<T: From<i8>>(outcome: Result<T, Errno>) -> T {
        outcome.unwrap_or_else(|errno| {
            if errno == RESTART {
                return T::from(TRY_AGAIN);
            }
            set_errno(errno.0);
            T::from(-1)
        })
    }

    /// Runs an attempt as [`super::attempt`] does.
    pub(crate) fn attempt<T: From<i8>>(call: Call, run: impl FnOnce() -> Result<T, Errno>) -> T {
        ended(contained(call, run, found))
    }

    /// Runs an attempt as [`super::attempt`] does; the result 0 means that it found nothing.
    pub(crate) fn polled(call: Call, run: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
        ended(contained(call, run, |count| *count == 0))
    }

    /// Runs a call as [`super::number`] does.
    pub(crate) fn number(call: Call, run: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
        ended(contained(call, run, found))
    }

    /// Runs a call that returns a number of bytes, or -1 and errno.
    pub(crate) fn count(call: Call, run: impl FnOnce() -> Result<isize, Errno>) -> isize {
        ended(contained(call, run, found))
    }

    /// Refuses a call that the program did not make.
    pub(crate) fn refuse_library_call(Errno(errno): Errno) -> c_int {
        set_errno(errno);
        -1
    }
}

pub(crate) mod arguments;
pub(crate) mod handles;
pub(crate) mod refusals;
pub(crate) mod requests;
pub(crate) mod unsupported;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::{INVALID, errno};

    #[test]
    fn each_convention_reports_its_errno() {
        assert_eq!(status(Call::ibv_fork_init, || Err(INVALID)), libc::EINVAL);
        assert_eq!(status(Call::ibv_fork_init, || Ok(())), 0);
        assert!(pointer::<u8>(Call::ibv_get_device_list, || Err(NOT_SUPPORTED)).is_null());
        assert_eq!(errno(), libc::EOPNOTSUPP);
        assert_eq!((number(Call::rdma_create_id, || Err(INVALID)), errno()), (-1, libc::EINVAL));
        assert_eq!((unsupported(|| ()), errno()), (libc::EOPNOTSUPP, libc::EOPNOTSUPP));
    }

    #[test]
    fn a_panic_is_an_io_error() {
        assert_eq!(status(Call::ibv_fork_init, || panic!("contained on purpose")), libc::EIO);
        assert_eq!(value(7, || panic!("contained on purpose")), 7);
    }
}
