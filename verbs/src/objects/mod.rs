//! The objects that programs create on a device, except queue pairs.

pub(crate) mod address;
pub(crate) mod completion;
pub(crate) mod domain;
pub(crate) mod memory;
pub(crate) mod receive;
