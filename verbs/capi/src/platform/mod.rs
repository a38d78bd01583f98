//! What this library asks of the operating system and of the C library.

pub(crate) mod errno;
pub(crate) mod process;
pub(crate) mod reserve;
pub(crate) mod system_call;
#[cfg(not(test))]
pub(crate) mod thread_destructors;
pub(crate) mod threads;
pub(crate) mod wall_clock;
