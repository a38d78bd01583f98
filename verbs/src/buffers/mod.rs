//! Memory that programs give to requests: slices of regions, and buffers that are owned.

pub(crate) mod buffer;
pub(crate) mod slice;
