//! Programs that fork. No memory is pinned here, so a child may write to its copy of registered memory
//! without harm to the parent, and no range needs protection.

use std::ffi::{c_int, c_void};

use pumice_calls::Call;
use pumice_device::check::Checker;

use crate::check;
use crate::entry::outcome::status;

/// The value `IBV_FORK_UNNEEDED`.
const UNNEEDED: c_int = 2;

pub(crate) extern "C" fn ibv_fork_init() -> c_int {
    status(Call::ibv_fork_init, || Ok(()))
}

pub(crate) extern "C" fn ibv_is_fork_initialized() -> c_int {
    check::with_checker(Checker::prepared_for_forks);
    UNNEEDED
}

pub(crate) extern "C" fn ibv_dontfork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

pub(crate) extern "C" fn ibv_dofork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}
