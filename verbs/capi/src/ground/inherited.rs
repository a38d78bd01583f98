//! What an object does in a child that inherited it by fork(2): nothing. This is decided here, for all calls.
//!
//! The child has a copy of the parent's memory, and its descriptors; the sockets, rings and files behind them
//! are the parent's. So no call in a child looks into an object of the parent: it returns EINVAL in the form
//! that it has for errors (of sockets EBADF), a call without a result does nothing, and a sentence says so.
//! `ibv_close_device` and `rclose` succeed: the child gives up its copy. Objects are found in two ways, and
//! both ask: those of the data path know the generation of the process that made them
//! ([`OfProcess`](super::handles::OfProcess)), and others are in a register, of which each process has its
//! own.
//!
//! A child that shares its parent's memory (vfork(2)) has no copy. On the data path it acts for its parent,
//! which waits for it. Other calls would note descriptors in that memory which the parent does not have, and
//! are refused.

use pumice_device::outside::lineage::borrows_memory;
use pumice_device::settings::Log;

use crate::ground::errno::{Errno, INVALID};
use crate::ground::log::{log_always, log_at, logs};

/// A call is given something that belongs to the process that this one was forked from.
#[cold]
pub(crate) fn refuse(kind: &str) -> Errno {
    // Once, also if the child polls.
    if logs(Log::Warn) {
        log_always(&format!(
            "this {kind} belongs to the parent process, and this child process can do nothing with it: the \
             child must open the device anew (ibv_get_device_list, ibv_open_device)"
        ));
    }
    INVALID
}

/// What a call off the data path is refused with in a child that shares the memory of its parent.
pub(super) fn refuse_borrower() -> Option<Errno> {
    borrows_memory().then(|| {
        log_at(Log::Warn, || {
            "a child of vfork shares the memory of its parent, and may only execute another program or exit: \
             the call is refused"
                .to_owned()
        });
        INVALID
    })
}
