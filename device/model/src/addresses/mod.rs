//! The identity of a port: GIDs, partitions, multicast groups, the node's GUID.

pub mod address_handle;
pub mod gid_table;
pub mod multicast;
pub mod ports;
