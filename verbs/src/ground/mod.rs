//! Errors, slices of memory, memory that is owned.

pub(crate) mod buffer;
pub(crate) mod error;
pub(crate) mod rejection;
pub(crate) mod slice;
