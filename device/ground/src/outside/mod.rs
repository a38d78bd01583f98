//! The gate to the outside: everything that the library learns from outside of the program comes through
//! here. Time, sleep, chance, the numbers of processes, threads, users, the environment, files, and what else
//! the operating system is asked outside of ports and of `share`.
//!
//! What decides whether two runs are the same can be answered otherwise: a process may [`replace`] the
//! machine as a whole before it opens a device, and then every answer of [`Outside`] comes from there.
//!
//! **Invariant**: what is loaded into programs asks nothing else. `tests/floors/outside.rs` lists the
//! exceptions, each with its reason.

mod answers;
pub mod cancellation;
pub mod capability;
mod clocks;
pub mod data_watch;
pub mod environment;
pub mod event_fd;
pub mod event_pipe;
pub mod fault_guard;
pub mod files;
pub mod interface;
mod interface_list;
pub mod late_reads;
pub mod limits;
pub mod lineage;
pub mod neighbour;
pub mod output_file;
pub mod process;
pub mod processors;
pub mod system_call;
pub mod thread;
pub mod thread_name;
pub mod time;
pub mod unsignalled;
pub mod wait;
pub mod world;
mod world_page;

pub use answers::{Outside, random, replace};
pub use time::{idle, monotonic_ns, now, since, since_1970, sleep, wait, wait_while};
