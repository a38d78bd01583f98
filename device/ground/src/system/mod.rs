//! What the device asks of the operating system outside of its ports and of `share`: interfaces, neighbours,
//! capabilities, forks, descriptors that wake threads, system calls that are no cancellation points, files
//! that people ask for.

pub mod cancellation;
pub mod capability;
pub mod event_fd;
pub mod event_pipe;
pub mod fault_guard;
pub mod interface;
pub mod late_reads;
pub mod limits;
pub mod lineage;
pub mod neighbour;
pub mod output_file;
pub mod processors;
pub mod system_call;
pub mod unsignalled;
pub mod wait;
