//! Memory that the program unmaps, moves or replaces while it is registered.
//!
//! An adapter would have pinned it. Here the device must know, or it would write into what comes to the
//! address. The C library's functions are the one place through which nearly all such changes go, those of
//! its own `free` and `realloc` too, whose place no library can take by name. So their first instruction
//! becomes a jump to functions here ([`patch`]), which tell the device before and after the system call
//! ([`calls`]). UCX and Open MPI do the same for their caches of registrations.
//!
//! What is not seen: system calls that a program makes by itself, as Go's runtime does. Copies to memory
//! that is gone fail then too; but memory that came in its place is taken for the region's.

mod calls;
mod patch;

use std::sync::Once;

use pumice_device::memory::guard_copies;
use pumice_device::outside::lineage::{PerProcess, once};
use pumice_device::settings::Log;

use super::log::log_at;

/// From now on the device knows what the program does to registered memory.
pub(crate) fn watch_mappings() {
    static WATCHED: PerProcess<Once> = PerProcess::new(once);
    WATCHED.call_once(|| {
        guard_copies();
        if let Err(refused) = patch::redirect(&calls::FUNCTIONS) {
            log_at(Log::Debug, || {
                format!(
                    "memory that is unmapped while it is registered is not noticed ({refused}): data may \
                    land in what comes to its address"
                )
            });
        }
    });
}
