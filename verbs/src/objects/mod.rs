//! What programs make of a device, queue pairs apart.

pub(crate) mod address;
pub(crate) mod completion;
pub(crate) mod domain;
pub(crate) mod memory;
pub(crate) mod receive;
pub(crate) mod target;
