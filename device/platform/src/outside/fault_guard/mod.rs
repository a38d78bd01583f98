//! Memory that may be unmapped while the device uses it: where a plain access would end the process, the
//! error is reported instead.
//!
//! A guarded call notes its range and its stack in a record. A fault (SIGSEGV, SIGBUS) of that stack at an
//! address of that range ends only the call; every other fault goes to the previous handler.
//! docs/decisions/application-memory.md has the reasons.

mod call;
mod handler;
mod record;

pub use call::Guarded;
pub use handler::{SharedRange, catches_faults, catches_faults_now, watch_faults};
pub use record::FaultGuard;
pub use record::wait_for_calls;

/// Guards a mapped file of numbers, which is readable and writable: it may be shortened from now on.
pub fn guard_shared(first: usize, bytes: usize) -> SharedRange {
    handler::watch_bus_errors();
    SharedRange::new(first, bytes)
}
