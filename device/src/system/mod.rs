//! What the device asks of the operating system outside of its ports and of `share`: interfaces, descriptors
//! that wake threads, system calls that are no cancellation points, and forks.

pub mod cancellation;
pub(crate) mod event_fd;
pub mod event_pipe;
pub mod interface;
pub mod lineage;
pub(crate) mod system_call;
