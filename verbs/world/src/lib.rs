//! Runs a tree of processes in a world of its own, so that the run can be repeated exactly.
//!
//! A supervisor traces the processes (ptrace, with a seccomp filter). It lets one thread run at a time; at
//! each system call it decides, by a seed, which thread is next. All that a program can learn of time and
//! chance comes from the supervisor: one virtual clock for all processes, which jumps when all of them wait.
//! The supervisor knows processes, threads, descriptors and clocks, and nothing of the purpose of the
//! programs.
//!
//! **Invariant**: between two stops exactly one thread of the world runs, and it never waits in the kernel: a
//! call that would wait is not made until what it waits for is there.

use std::path::Path;

#[cfg_attr(not(all(target_os = "linux", target_arch = "x86_64")), allow(dead_code))]
mod certificate;
mod error;
pub mod options;
mod recording;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod supervised;

pub use certificate::{Certificate, Doubt};
pub use error::{CodeLocation, Ended, Exit, WorldError};
pub use options::{Departure, Draws, POINT, WorldOptions};
pub use recording::{Header, Recording};

/// Reports whether a folder is in one that is empty in each world, where the world makes it.
pub fn is_in_empty_folder(folder: &Path) -> bool {
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    return supervised::is_in_empty_folder(folder);
    #[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
    return folder.as_os_str().is_empty();
}

/// Runs a program, and all that it starts, in a world of its own.
///
/// A process has one world at a time: a second call waits for the end of the first.
///
/// # Errors
/// The program cannot be started or traced, all threads wait for ever, the run was to be strict and is not
/// certain to repeat, or this machine is not x86-64 with Linux.
pub fn run(options: &WorldOptions) -> Result<Ended, WorldError> {
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    return supervised::run(options);
    #[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
    return Err(WorldError::machine(options));
}
