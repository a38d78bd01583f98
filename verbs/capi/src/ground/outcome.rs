//! How calls end: errno conventions, and the wall that panics do not pass.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pumice_calls::{Answer, Call};
use pumice_device::outside::cancellation::Uncancelled;

use crate::ground::cancellation::RESTART;
use crate::ground::errno::{Errno, NOT_SUPPORTED, set_errno};
use crate::ground::gate::{self, About, Passage, PassageEnd, quietly};
use crate::ground::inherited;
use crate::ground::log::take_logged;
use crate::ground::settings::check_refusals;
use crate::ground::unlogged::{self, is_answer};

/// Runs something behind the wall: a panic becomes EIO. The panic itself was reported by its hook.
#[inline]
fn walled<T>(run: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    // What a panic leaves half done is behind the locks of the device, which are taken over.
    catch_unwind(AssertUnwindSafe(run)).unwrap_or(Err(Errno(libc::EIO)))
}

/// Runs a call behind the wall, past the gate. `is_idle`: that it found nothing.
#[inline]
fn passed<T>(
    call: Call,
    passage: Passage,
    about: About,
    run: impl FnOnce() -> Result<T, Errno>,
    is_idle: impl FnOnce(&T) -> bool,
) -> Result<T, Errno> {
    let outcome = match passage.refused {
        None => walled(run),
        Some(errno) => Err(errno),
    };
    if let Err(errno) = &outcome {
        unlogged::tell(call, *errno, about, passage.refused.is_some());
    }
    let end = || match &outcome {
        Ok(found) if is_idle(found) => PassageEnd::Idle,
        Ok(_) => PassageEnd::Done,
        Err(RESTART) => PassageEnd::Again,
        Err(errno) if is_answer(*errno) => PassageEnd::Idle,
        Err(_) => PassageEnd::Failed,
    };
    gate::leave(passage, end, about);
    outcome
}

/// A call that found something, or does not look for anything.
const fn found<T>(_outcome: &T) -> bool {
    false
}

/// A call ends as its row says.
#[inline]
fn ends_as(call: Call, answer: Answer) {
    debug_assert_eq!(call.row().answer, answer, "{call} ends otherwise than its row says");
}

/// Runs a call past the gate and behind the wall; the thread is not cancelled meanwhile.
fn contained<T>(call: Call, about: About, run: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    let _whole = Uncancelled::begin();
    let run = || {
        check_refusals(call)?;
        run()
    };
    passed(call, gate::enter_whole(call, about), about, run, found)
}

/// Conventions for the data path, which makes no system call that is a cancellation point.
pub(crate) mod data_path {
    use super::{About, Errno, Passage, c_int, found, gate, passed, set_errno, walled};
    use super::{Answer, Call, ends_as};

    #[inline]
    fn enter(call: Call, about: About) -> Passage {
        if gate::lets_pass() { Passage::UNSEEN } else { gate::enter_data_path(call, about) }
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

    /// As [`super::status`].
    #[inline]
    pub(crate) fn status(call: Call, about: About, run: impl FnOnce() -> Result<(), Errno>) -> c_int {
        ends_as(call, Answer::Errno);
        returned(passed(call, enter(call, about), about, run, found))
    }

    /// As [`super::status`], of a call that has to say something else too when a fault rule refuses it.
    #[inline]
    pub(crate) fn status_or(
        call: Call,
        about: About,
        refused: impl FnOnce(),
        run: impl FnOnce() -> Result<(), Errno>,
    ) -> c_int {
        ends_as(call, Answer::Errno);
        let passage = enter(call, about);
        if passage.refused.is_some() {
            refused();
        }
        returned(passed(call, passage, about, run, found))
    }

    /// As [`super::negative`], of a call that found nothing if it returns 0.
    #[inline]
    pub(crate) fn polled(call: Call, about: About, run: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
        ends_as(call, Answer::Negative);
        let outcome = passed(call, enter(call, about), about, run, |count| *count == 0);
        outcome.unwrap_or_else(|Errno(errno)| {
            set_errno(errno);
            -errno
        })
    }

    /// For calls that return an errno as a number, of which `idle` says that there is nothing.
    #[inline]
    pub(crate) fn code(call: Call, about: About, idle: c_int, run: impl FnOnce() -> c_int) -> c_int {
        ends_as(call, Answer::Errno);
        let outcome = passed(call, enter(call, about), about, || Ok(run()), |code| *code == idle);
        outcome.unwrap_or_else(|Errno(errno)| errno)
    }

    /// As [`super::value`], of a call that makes no other.
    #[inline]
    pub(crate) fn value<T>(otherwise: T, run: impl FnOnce() -> T) -> T {
        walled(|| Ok(run())).unwrap_or(otherwise)
    }
}

/// For attempts of calls that wait and return a number, or -1 and errno: [`TRY_AGAIN`] if the attempt ended
/// with its slice.
pub(crate) fn attempt<T: From<i8>>(call: Call, about: About, run: impl FnOnce() -> Result<T, Errno>) -> T {
    ends_as(call, Answer::MinusOne);
    contained(call, about, run).unwrap_or_else(|errno| {
        if errno == RESTART {
            return T::from(TRY_AGAIN);
        }
        set_errno(errno.0);
        T::from(-1)
    })
}

/// See [`attempt`]. No call returns it.
pub(crate) const TRY_AGAIN: i8 = -2;

/// For calls that return 0 or a positive errno.
#[inline]
pub(crate) fn status(call: Call, run: impl FnOnce() -> Result<(), Errno>) -> c_int {
    status_of(call, About::NOTHING, run)
}

/// As [`status`], about an object.
#[inline]
pub(crate) fn status_of(call: Call, about: About, run: impl FnOnce() -> Result<(), Errno>) -> c_int {
    ends_as(call, Answer::Errno);
    match contained(call, about, run) {
        Ok(()) => 0,
        Err(Errno(errno)) => {
            set_errno(errno);
            errno
        }
    }
}

/// For calls that return a pointer, or NULL and errno.
pub(crate) fn pointer<T>(call: Call, run: impl FnOnce() -> Result<*mut T, Errno>) -> *mut T {
    pointer_about(call, About::NOTHING, run)
}

/// As [`pointer`], about an object.
pub(crate) fn pointer_about<T>(
    call: Call,
    about: About,
    run: impl FnOnce() -> Result<*mut T, Errno>,
) -> *mut T {
    ends_as(call, Answer::Null);
    contained(call, about, run).unwrap_or_else(|Errno(errno)| {
        set_errno(errno);
        std::ptr::null_mut()
    })
}

/// For calls that return a number, or -1 and errno.
#[inline]
pub(crate) fn number(call: Call, run: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
    number_of(call, About::NOTHING, run)
}

/// As [`number`], about an object.
#[inline]
pub(crate) fn number_of(call: Call, about: About, run: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
    ends_as(call, Answer::MinusOne);
    contained(call, about, run).unwrap_or_else(|Errno(errno)| {
        set_errno(errno);
        -1
    })
}

/// For calls that return a number, or a negative errno.
#[inline]
pub(crate) fn negative_of(call: Call, about: About, run: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
    ends_as(call, Answer::Negative);
    contained(call, about, run).unwrap_or_else(|Errno(errno)| -errno)
}

/// For calls that nothing serves, which `say` names: the errno that they end with. They are not counted.
pub(crate) fn unserved(say: impl FnOnce()) -> c_int {
    let _whole = Uncancelled::begin();
    let Errno(errno) = inherited::refuse_borrower().unwrap_or_else(|| {
        // What it says is the reason: no other is given.
        let _ = walled(|| {
            say();
            Ok(())
        });
        NOT_SUPPORTED
    });
    take_logged();
    set_errno(errno);
    errno
}

/// For calls that cannot fail; a panic gives `otherwise`, and so does a child that may make no calls.
#[inline]
pub(crate) fn value<T>(otherwise: T, call: impl FnOnce() -> T) -> T {
    let _whole = Uncancelled::begin();
    if inherited::refuse_borrower().is_some() {
        return otherwise;
    }
    quietly(|| walled(|| Ok(call()))).unwrap_or(otherwise)
}

/// Conventions for rsockets, whose calls end as those of sockets do. Calls below them are their own.
pub(crate) mod sockets {
    use super::{About, Answer, Call, Errno, PassageEnd, TRY_AGAIN, Uncancelled};
    use super::{c_int, ends_as, found, gate, quietly, set_errno, walled};
    use crate::ground::cancellation::RESTART;
    use crate::ground::gate::Passage;

    /// Runs a call past the gate. Errnos of sockets are answers, of which nothing is said.
    fn contained<T>(
        call: Call,
        run: impl FnOnce() -> Result<T, Errno>,
        is_idle: impl FnOnce(&T) -> bool,
    ) -> Result<T, Errno> {
        ends_as(call, Answer::MinusOne);
        let _whole = Uncancelled::begin();
        let passage = match call.is_data_path() && gate::lets_pass() {
            true => Passage::UNSEEN,
            false => gate::enter_whole(call, About::NOTHING),
        };
        let outcome = match passage.refused {
            None => quietly(|| walled(run)),
            Some(errno) => Err(errno),
        };
        let end = || match &outcome {
            Ok(outcome) if is_idle(outcome) => PassageEnd::Idle,
            Err(RESTART) => PassageEnd::Again,
            // How often a program tries depends on time.
            Err(Errno(libc::EAGAIN | libc::EINTR | libc::EALREADY)) => PassageEnd::Idle,
            Ok(_) | Err(Errno(libc::EINPROGRESS)) => PassageEnd::Done,
            Err(_) => PassageEnd::Failed,
        };
        gate::leave(passage, end, About::NOTHING);
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

    /// As [`super::attempt`].
    pub(crate) fn attempt<T: From<i8>>(call: Call, run: impl FnOnce() -> Result<T, Errno>) -> T {
        ended(contained(call, run, found))
    }

    /// As [`super::attempt`], of a call that found nothing if it returns 0.
    pub(crate) fn polled(call: Call, run: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
        ended(contained(call, run, |count| *count == 0))
    }

    /// As [`super::number`].
    pub(crate) fn number(call: Call, run: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
        ended(contained(call, run, found))
    }

    /// For calls that return a number of bytes, or -1 and errno.
    pub(crate) fn count(call: Call, run: impl FnOnce() -> Result<isize, Errno>) -> isize {
        ended(contained(call, run, found))
    }

    /// A call that is none of the program's, and is refused.
    pub(crate) fn not_for_the_library(Errno(errno): Errno) -> c_int {
        set_errno(errno);
        -1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::errno::{INVALID, errno};

    #[test]
    fn each_convention_reports_its_errno() {
        assert_eq!(status(Call::ibv_fork_init, || Err(INVALID)), libc::EINVAL);
        assert_eq!(status(Call::ibv_fork_init, || Ok(())), 0);
        assert!(pointer::<u8>(Call::ibv_get_device_list, || Err(NOT_SUPPORTED)).is_null());
        assert_eq!(errno(), libc::EOPNOTSUPP);
        assert_eq!((number(Call::rdma_create_id, || Err(INVALID)), errno()), (-1, libc::EINVAL));
        assert_eq!((unserved(|| ()), errno()), (libc::EOPNOTSUPP, libc::EOPNOTSUPP));
    }

    #[test]
    fn a_panic_is_an_io_error() {
        assert_eq!(status(Call::ibv_fork_init, || panic!("contained on purpose")), libc::EIO);
        assert_eq!(value(7, || panic!("contained on purpose")), 7);
    }
}
