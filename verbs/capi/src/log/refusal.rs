//! Refusals and their reasons, and objects that a child inherited by fork(2), on which calls have no effect.
//!
//! Objects that a child inherited by fork(2): calls on them have no effect. This is decided here, for all
//! calls.
//!
//! The child has a copy of the parent's memory, and its descriptors; the sockets, rings and files behind them
//! are the parent's. So no call in a child accesses an object of the parent: it returns EINVAL in the form
//! that it has for errors (of sockets EBADF), a call without a result has no effect, and a message is logged.
//! `ibv_close_device` and `rclose` succeed: the child gives up its copy. Objects are found in two ways, and
//! both check: those of the data path have the generation of the process that made them
//! ([`DataPathObject`](crate::entry::handles::DataPathObject)), and others are in a register, of which each
//! process has its own.
//!
//! A child that shares its parent's memory (vfork(2)) has no copy. On the data path it acts for its parent,
//! which waits for it. Other calls would record descriptors in that memory which the parent does not have,
//! and are refused.

use pumice_calls::Call;
use pumice_device::hca::HcaError;
use pumice_device::outside::fork_generation::shares_parent_memory;
use pumice_device::platform::error::ResourceError;
use pumice_device::settings::{LogLevel, SettingError};

use crate::log::{log_always, log_at, log_warning, logs};
use crate::platform::{Errno, INVALID, NOT_SUPPORTED};

impl Errno {
    /// Logs the reason of an error for the operator, and returns the error.
    pub(crate) fn because(self, reason: impl FnOnce() -> String) -> Errno {
        log_warning(reason);
        self
    }
}

/// Refuses bits of a mask that this library does not know, because their meaning is not known either.
///
/// # Errors
/// Fails with EOPNOTSUPP.
pub(crate) fn check_mask(call: Call, mask: u32, known: u32) -> Result<(), Errno> {
    if mask & !known == 0 {
        return Ok(());
    }
    Err(NOT_SUPPORTED.because(|| format!("{call} refused: comp_mask {mask:#x} has bits that are not known")))
}

impl From<HcaError> for Errno {
    #[cold]
    fn from(error: HcaError) -> Errno {
        log_warning(|| error.to_string());
        Errno(error.errno())
    }
}

impl From<ResourceError> for Errno {
    #[cold]
    fn from(error: ResourceError) -> Errno {
        log_warning(|| error.to_string());
        Errno(error.errno())
    }
}

impl From<SettingError> for Errno {
    #[cold]
    fn from(error: SettingError) -> Errno {
        log_always(&error.to_string());
        Errno(error.errno)
    }
}

/// Refuses a call on an object that belongs to the process that this one was forked from.
#[cold]
pub(crate) fn refuse(kind: &str) -> Errno {
    // The message is logged once, even if the child polls.
    if logs(LogLevel::Warn) {
        log_always(&format!(
            "this {kind} belongs to the parent process, and this child process can do nothing with it: the \
             child must open the device anew (ibv_get_device_list, ibv_open_device)"
        ));
    }
    INVALID
}

/// Returns the error with which a call off the data path is refused in a child that shares the memory of its
/// parent.
pub(crate) fn refuse_vfork_child() -> Option<Errno> {
    shares_parent_memory().then(|| {
        log_at(LogLevel::Warn, || {
            "a child of vfork shares the memory of its parent, and may only execute another program or exit: \
             the call is refused"
                .to_owned()
        });
        INVALID
    })
}
