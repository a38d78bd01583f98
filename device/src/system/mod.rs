//! What the device asks of the operating system outside of its ports and of `share`: interfaces, neighbours,
//! capabilities, descriptors that wake threads, system calls that are no cancellation points.

pub mod cancellation;
pub mod capability;
pub(crate) mod event_fd;
pub mod event_pipe;
pub mod interface;
pub mod neighbour;
pub(crate) mod system_call;
