//! Memory that the program unmaps, moves or replaces while it is registered.
//!
//! An adapter would have pinned it. Here the device must be notified, or it would write into the memory that
//! is mapped there next. Nearly all such changes go through the C library's functions, even those of its own
//! `free` and `realloc`, which no library can replace by name. So their first instruction is replaced by a
//! jump to functions here ([`patch`]), which notify the device before and after the system call ([`calls`]).
//! UCX and Open MPI do the same for their caches of registrations.
//!
//! The heap that shrinks and grows again comes back to its regions, and the next registration warns of it.
//! Open MPI with UCX and libfabric needs it: UCX's `sbrk` passes by the `brk` that libfabric has replaced, so
//! that libfabric's cache keeps registrations that an adapter would use with the old pages.
//!
//! Calls that do not go through these functions are watched one by one ([`own_calls`]).
//!
//! Some calls are not noticed: those in code that belongs to no loaded object (of a compiler at run time),
//! that was loaded after the last registration, or whose instructions leave no room for a jump. Copies to
//! memory that was unmapped fail then too; but memory that was mapped in its place is taken for the region's.

mod calls;
#[cfg(target_arch = "x86_64")]
mod own_calls;
mod patch;

use std::sync::Once;

use pumice_device::memory::{MappingChange, guard_copies};
use pumice_device::outside::fork_generation::{PerProcess, once};
use pumice_device::settings::LogLevel;

use super::log::{log_at, log_warning};

/// Makes the device follow the program's changes to registered memory from now on.
pub(crate) fn watch_mappings() {
    static WATCHED: PerProcess<Once> = PerProcess::new(once);
    WATCHED.call_once(|| {
        guard_copies();
        if let Err(refused) = patch::redirect(&calls::FUNCTIONS) {
            log_at(LogLevel::Debug, || {
                format!(
                    "memory that is unmapped while it is registered is not noticed ({refused}): data may \
                    land in what comes to its address"
                )
            });
        }
    });
    watch_own_calls();
    if let Some(region) = MappingChange::take_given_back() {
        log_warning(|| {
            format!(
                "the program gave back heap memory of its region at {region:#x} (brk), and the heap has \
                grown again over it: requests reach that memory here, but an adapter would use the old \
                pages, and data would be lost. Deregister before free; a library that keeps registrations \
                was not told (libfabric is not told where UCX is loaded too: set UCX_MEM_EVENTS=n)"
            )
        });
    }
}

/// Watches system calls that objects make by themselves.
#[cfg(target_arch = "x86_64")]
fn watch_own_calls() {
    let why = match own_calls::watch() {
        Ok(left) if left.is_empty() => return,
        Ok(left) => left.join(", "),
        Err(error) => format!("any object: /proc/self/mem cannot be written: {error}"),
    };
    log_at(LogLevel::Debug, || {
        format!(
            "memory that is unmapped while it is registered, past the C library, is not noticed if that is \
            done by {why}: data may land in what comes to its address"
        )
    });
}

/// Does nothing: on this processor only the C library's functions are watched.
#[cfg(not(target_arch = "x86_64"))]
fn watch_own_calls() {}
