//! Registered memory: regions, windows onto them, and the copies in and out.
//!
//! A region makes a range of this process's memory reachable under a key. Everything is checked at use,
//! against the key, the protection domain, the right and the range, so a peer (or a mistaken application)
//! reaches nothing that is not registered.
//!
//! **Invariant**: application memory is never behind a Rust reference. Other threads of the application may
//! read and write it at any time, as they may with a hardware NIC, so it is only accessed through raw
//! pointers and atomics, all of them in `copy.rs` and `residence.rs`, by calls that a fault can end
//! (`pumice_platform::outside::fault_guard`), and in `on_demand.rs` by system calls that report a missing
//! page.

// Input from the network, from the program's arguments or from shared memory must not end the program.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

mod access;
mod advice;
mod copy;
mod device_memory;
mod file_mapping;
mod grant;
mod indirect;
mod indirect_key;
#[cfg(test)]
mod late_reads_tests;
mod mapping;
mod on_demand;
mod region;
mod region_table;
mod residence;
mod signature;
mod signed;
mod watch;
mod window;

pub use advice::{Advice, PageRange};
pub use copy::read_registered;
pub use device_memory::{DeviceMemory, DeviceMemoryPool};
pub use file_mapping::FileMapping;
pub use grant::WindowType;
pub use indirect_key::IndirectKeyInit;
pub use mapping::{check_mapped, check_pinnable, mapping_at};
pub use on_demand::{MappingCheck, fill_mapped, is_available as on_demand_is_available, read_mapped};
pub use region::{RegionChange, RegionInfo, RegionKeys};
pub use region_table::RegionTable;
pub use residence::bring_in;
pub use signature::{SignatureError, SignaturePart};
pub use watch::MappingChange;
pub use window::WindowKeys;

/// Installs handlers of SIGSEGV and SIGBUS, which turn a copy of memory that has gone into an error, and
/// forward everything that is not the fault of such a copy. Without them such a copy ends the process.
pub fn guard_copies() {
    pumice_platform::outside::fault_guard::watch_faults();
}

/// Reports whether a fault of this thread comes to the handler of [`guard_copies`]: the thread does not block
/// the signals, and the program has no handler of its own in front.
pub fn catches_faults() -> bool {
    pumice_platform::outside::fault_guard::catches_faults_now()
}
