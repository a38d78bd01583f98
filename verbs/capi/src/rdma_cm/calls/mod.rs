//! The functions that programs call, one file per family. Each file has the exported functions, and the safe
//! ones that implement them, which rsockets use as well.

pub(crate) mod address_info;
pub(crate) mod bind;
pub(crate) mod channel;
pub(crate) mod connect;
pub(crate) mod devices;
pub(crate) mod endpoint;
pub(crate) mod event;
pub(crate) mod exit;
pub(crate) mod identifier;
pub(crate) mod multicast;
pub(crate) mod option;
pub(crate) mod path_option;
pub(crate) mod queue_pair;
pub(crate) mod resolve;
pub(crate) mod resolve_info;
pub(crate) mod shared_receive_queue;
