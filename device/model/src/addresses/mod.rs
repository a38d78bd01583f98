//! The identity of a port: GIDs, partitions, multicast groups, the node's GUID.

pub mod address_handle;
pub mod address_watch;
pub mod gid_table;
pub mod guid;
pub mod multicast;
pub(crate) mod offered;
pub mod pkey_table;
pub mod ports;
