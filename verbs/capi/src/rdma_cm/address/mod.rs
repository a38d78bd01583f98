//! Addresses: their C forms ([`socket_address`], [`infiniband`]), which of this host's a peer is reached from
//! ([`local`]), and names ([`lookup`]).

pub(crate) mod infiniband;
pub(crate) mod local;
pub(crate) mod lookup;
pub(crate) mod socket_address;
