//! The library's access to everything outside of the program: time, sleep, randomness, the numbers of
//! processes, threads, users, the environment, files, and all other questions to the operating system that
//! are not about ports or port sharing.
//!
//! Answers that decide whether two runs are the same can be replaced: a process may [`replace`] the machine
//! as a whole before it opens a device, and then every answer of [`HostSystem`] comes from the replacement.
//!
//! **Invariant**: the libraries that are loaded into programs use no other access. `tests/floors/outside.rs`
//! lists the exceptions, each with its reason.

pub mod data_watch;
pub mod environment;
pub mod event_fd;
pub mod fault_guard;
pub mod files;
pub mod fork_generation;
pub mod interface;
pub mod late_reads;
pub mod neighbour;
pub mod output_file;
pub mod process;
pub mod system_call;
pub mod thread;
pub mod time;
pub mod world;
mod world_page;

pub use process::{HostSystem, random, replace};
pub use time::{idle, monotonic_ns, now, since, since_1970, sleep, wait, wait_while};
