//! Memory that may go away while the device uses it: what a plain access would end the process for is
//! reported instead.
//!
//! A guarded call notes its range and its stack in a record. A fault (SIGSEGV, SIGBUS) of that stack at an
//! address of that range ends the call and nothing else; every other fault goes to the handler that was
//! there before. docs/decisions/application-memory.md says why.

mod call;
mod handler;
mod record;
mod shared;

pub use call::Guarded;
pub use handler::{sees_faults, sees_faults_now, watch_faults};
pub use record::FaultGuard;
pub use record::wait_for_calls;
pub use shared::SharedRange;

/// Takes a mapped file of numbers, which is readable and writable: it may be shortened from now on.
pub fn guard_shared(first: usize, bytes: usize) -> SharedRange {
    handler::watch_bus_errors();
    SharedRange::new(first, bytes)
}
