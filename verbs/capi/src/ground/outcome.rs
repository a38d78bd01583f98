//! How calls end: errno conventions, and the wall that panics do not pass.

use std::any::type_name;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pumice_device::system::cancellation::Uncancelled;

use crate::ground::cancellation::RESTART;
use crate::ground::errno::{Errno, set_errno};
use crate::ground::gate::{self, About, End, Passage, quietly};
use crate::ground::inherited;
use crate::ground::unlogged::{self, is_answer};

/// Runs `call` behind the wall: a panic becomes EIO. The panic itself was reported by its hook.
#[inline]
fn walled<T, C: FnOnce() -> Result<T, Errno>>(call: C) -> Result<T, Errno> {
    // What a panic leaves half done is behind the locks of the device, which are taken over.
    catch_unwind(AssertUnwindSafe(call)).unwrap_or(Err(Errno(libc::EIO)))
}

/// Runs `call` behind the wall, past the gate. `is_idle`: that it found nothing.
#[inline]
fn passed<T, C: FnOnce() -> Result<T, Errno>>(
    passage: Passage,
    about: About,
    call: C,
    is_idle: impl FnOnce(&T) -> bool,
) -> Result<T, Errno> {
    let outcome = match passage.refused {
        None => walled(call),
        Some(errno) => Err(errno),
    };
    if let Err(errno) = &outcome {
        unlogged::tell::<C>(*errno, about);
    }
    let end = || match &outcome {
        Ok(found) if is_idle(found) => End::Idle,
        Ok(_) => End::Done,
        Err(RESTART) => End::Again,
        Err(errno) if is_answer(*errno) => End::Idle,
        Err(_) => End::Failed,
    };
    gate::leave(passage, end, about);
    outcome
}

/// A call that found something, or does not look for anything.
const fn found<T>(_outcome: &T) -> bool {
    false
}

/// Runs `call` past the gate and behind the wall; the thread is not cancelled meanwhile.
fn contained<T, C: FnOnce() -> Result<T, Errno>>(about: About, call: C) -> Result<T, Errno> {
    let _whole = Uncancelled::begin();
    passed(gate::enter_whole(type_name::<C>(), about), about, call, found)
}

/// Conventions for the data path, which makes no system call that is a cancellation point.
pub(crate) mod data_path {
    use super::{About, Errno, Passage, c_int, found, gate, passed, set_errno, type_name, walled};

    #[inline]
    fn enter<C>(about: About) -> Passage {
        if gate::lets_pass() { Passage::UNSEEN } else { gate::enter(type_name::<C>(), about) }
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
    pub(crate) fn status<C: FnOnce() -> Result<(), Errno>>(about: About, call: C) -> c_int {
        returned(passed(enter::<C>(about), about, call, found))
    }

    /// As [`super::status`], of a call that has to say something else too when a fault rule refuses it.
    #[inline]
    pub(crate) fn status_or<C: FnOnce() -> Result<(), Errno>>(
        about: About,
        refused: impl FnOnce(),
        call: C,
    ) -> c_int {
        let passage = enter::<C>(about);
        if passage.refused.is_some() {
            refused();
        }
        returned(passed(passage, about, call, found))
    }

    /// As [`super::negative`], of a call that found nothing if it returns 0.
    #[inline]
    pub(crate) fn polled<C: FnOnce() -> Result<c_int, Errno>>(about: About, call: C) -> c_int {
        let outcome = passed(enter::<C>(about), about, call, |count| *count == 0);
        outcome.unwrap_or_else(|Errno(errno)| {
            set_errno(errno);
            -errno
        })
    }

    /// For calls that return an errno as a number, of which `idle` says that there is nothing.
    #[inline]
    pub(crate) fn code<C: FnOnce() -> c_int>(about: About, idle: c_int, call: C) -> c_int {
        let outcome = passed(enter::<C>(about), about, || Ok(call()), |code| *code == idle);
        outcome.unwrap_or_else(|Errno(errno)| errno)
    }

    /// As [`super::value`], of a call that makes no other.
    #[inline]
    pub(crate) fn value<T>(otherwise: T, call: impl FnOnce() -> T) -> T {
        walled(|| Ok(call())).unwrap_or(otherwise)
    }
}

/// For attempts of calls that wait and return a number, or -1 and errno: [`TRY_AGAIN`] if the attempt ended
/// with its slice.
pub(crate) fn attempt<T: From<i8>>(about: About, call: impl FnOnce() -> Result<T, Errno>) -> T {
    contained(about, call).unwrap_or_else(|errno| {
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
pub(crate) fn status(call: impl FnOnce() -> Result<(), Errno>) -> c_int {
    status_of(About::NOTHING, call)
}

/// As [`status`], about an object.
#[inline]
pub(crate) fn status_of(about: About, call: impl FnOnce() -> Result<(), Errno>) -> c_int {
    match contained(about, call) {
        Ok(()) => 0,
        Err(Errno(errno)) => {
            set_errno(errno);
            errno
        }
    }
}

/// For calls that return a pointer, or NULL and errno.
pub(crate) fn pointer<T>(call: impl FnOnce() -> Result<*mut T, Errno>) -> *mut T {
    pointer_about(About::NOTHING, call)
}

/// As [`pointer`], about an object.
pub(crate) fn pointer_about<T>(about: About, call: impl FnOnce() -> Result<*mut T, Errno>) -> *mut T {
    contained(about, call).unwrap_or_else(|Errno(errno)| {
        set_errno(errno);
        std::ptr::null_mut()
    })
}

/// For calls that return a number, or -1 and errno.
#[inline]
pub(crate) fn number(call: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
    number_of(About::NOTHING, call)
}

/// As [`number`], about an object.
#[inline]
pub(crate) fn number_of(about: About, call: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
    contained(about, call).unwrap_or_else(|Errno(errno)| {
        set_errno(errno);
        -1
    })
}

/// For calls that return a number, or a negative errno.
#[inline]
pub(crate) fn negative(call: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
    contained(About::NOTHING, call).unwrap_or_else(|Errno(errno)| {
        set_errno(errno);
        -errno
    })
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
    use super::{About, End, Errno, Passage, TRY_AGAIN, Uncancelled};
    use super::{c_int, found, gate, quietly, set_errno, type_name, walled};
    use crate::ground::cancellation::RESTART;

    /// A call of this name enters.
    fn enter(name: &'static str) -> Passage {
        gate::enter_whole(name, About::NOTHING)
    }

    /// As `enter`, of the data path.
    fn enter_data_path(name: &'static str) -> Passage {
        if gate::lets_pass() { Passage::UNSEEN } else { gate::enter(name, About::NOTHING) }
    }

    /// Runs a call past the gate. Errnos of sockets are answers, of which nothing is said.
    fn contained<T>(
        entered: impl FnOnce() -> Passage,
        call: impl FnOnce() -> Result<T, Errno>,
        is_idle: impl FnOnce(&T) -> bool,
    ) -> Result<T, Errno> {
        let _whole = Uncancelled::begin();
        let passage = entered();
        let outcome = match passage.refused {
            None => quietly(|| walled(call)),
            Some(errno) => Err(errno),
        };
        let end = || match &outcome {
            Ok(outcome) if is_idle(outcome) => End::Idle,
            Err(RESTART) => End::Again,
            // How often a program tries depends on time.
            Err(Errno(libc::EAGAIN | libc::EINTR | libc::EALREADY)) => End::Idle,
            Ok(_) | Err(Errno(libc::EINPROGRESS)) => End::Done,
            Err(_) => End::Failed,
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

    /// As [`super::attempt`], of the call of the data path with this name, which its closure does not know.
    pub(crate) fn attempt_of<T: From<i8>>(name: &'static str, call: impl FnOnce() -> Result<T, Errno>) -> T {
        ended(contained(|| enter_data_path(name), call, found))
    }

    /// As [`super::attempt`].
    pub(crate) fn attempt<T: From<i8>, C: FnOnce() -> Result<T, Errno>>(call: C) -> T {
        ended(contained(|| enter(type_name::<C>()), call, found))
    }

    /// As [`super::attempt`], of a call that found nothing if it returns 0.
    pub(crate) fn polled<C: FnOnce() -> Result<c_int, Errno>>(call: C) -> c_int {
        ended(contained(|| enter_data_path(type_name::<C>()), call, |count| *count == 0))
    }

    /// As [`super::number`].
    pub(crate) fn number<C: FnOnce() -> Result<c_int, Errno>>(call: C) -> c_int {
        ended(contained(|| enter(type_name::<C>()), call, found))
    }

    /// For calls that return a number of bytes, or -1 and errno.
    pub(crate) fn count<C: FnOnce() -> Result<isize, Errno>>(call: C) -> isize {
        ended(contained(|| enter(type_name::<C>()), call, found))
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
    use crate::ground::errno::{INVALID, NOT_SUPPORTED, errno};

    #[test]
    fn each_convention_reports_its_errno() {
        assert_eq!(status(|| Err(INVALID)), libc::EINVAL);
        assert_eq!(status(|| Ok(())), 0);
        assert!(pointer::<u8>(|| Err(NOT_SUPPORTED)).is_null());
        assert_eq!(errno(), libc::EOPNOTSUPP);
        assert_eq!((number(|| Err(INVALID)), errno()), (-1, libc::EINVAL));
        assert_eq!((negative(|| Err(NOT_SUPPORTED)), errno()), (-libc::EOPNOTSUPP, libc::EOPNOTSUPP));
    }

    #[test]
    fn a_panic_is_an_io_error() {
        assert_eq!(status(|| panic!("contained on purpose")), libc::EIO);
        assert_eq!(value(7, || panic!("contained on purpose")), 7);
    }
}
