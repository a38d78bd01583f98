//! The functions that programs call, one file per family. Each file has the exported functions, and the safe
//! ones that implement them, which rsockets use as well.

pub(crate) mod connect;
pub(crate) mod endpoint;
pub(crate) mod identifier;
pub(crate) mod queue_pair;
pub(crate) mod resolve;
