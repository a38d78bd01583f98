//! What this library asks of the operating system and of the C library.

pub(crate) mod allocation;
pub(crate) mod cancellation;
pub(crate) mod descriptors;
pub(crate) mod environment;
pub(crate) mod errno;
pub(crate) mod process;
pub(crate) mod process_file;
pub(crate) mod reserve;
pub(crate) mod system_call;
pub(crate) mod thread_calls;
#[cfg(not(test))]
pub(crate) mod thread_destructors;
pub(crate) mod turn;
pub(crate) mod wall_clock;
