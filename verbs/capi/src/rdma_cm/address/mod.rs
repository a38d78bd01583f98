//! Addresses: their C forms ([`socket_address`], [`infiniband`]), the selection of this host's address for a
//! peer ([`local`]), and names ([`lookup`]).

pub(crate) mod lookup;
pub(crate) mod socket_address;
