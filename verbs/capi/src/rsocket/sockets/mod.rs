//! Sockets, their table, and waiting for them.
//!
//! A stream ([`stream`]) sends with [`pieces`] and [`mapping`], both directions of data are in [`transfer`],
//! and [`connecting`] has its life from bind to close. Datagrams ([`datagram`]) go over UD queue pairs, and
//! over UDP until those are known.

pub(crate) mod connecting;
pub(crate) mod datagram;
pub(crate) mod stream;
pub(crate) mod transfer;
pub(crate) mod waiting;
