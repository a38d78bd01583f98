//! What the device asks of the operating system outside of its ports and of `share`: interfaces, descriptors
//! that wake threads, system calls that are no cancellation points.

pub mod cancellation;
pub(crate) mod event_fd;
pub mod event_pipe;
pub mod interface;
pub mod processors;
pub(crate) mod system_call;
