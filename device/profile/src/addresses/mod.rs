//! What a port is called and what it belongs to: GIDs, partitions, multicast groups, the node's GUID.

pub mod address_watch;
pub mod gid_table;
pub mod guid;
pub mod multicast;
pub(crate) mod offered;
pub mod pkey_table;
pub mod ports;
