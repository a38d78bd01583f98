//! Ethernet frames beside RoCE, which raw packet queue pairs send and receive.
//!
//! A process that has such a queue pair has a packet socket on the interface of each port of the device
//! ([`PacketSocket`](pumice_platform::packet_socket::PacketSocket)); Linux gives one only to processes with
//! the right CAP_NET_RAW, as it gives such queue pairs. Frames leave unchanged. A frame that arrives goes to
//! the queue pairs whose rules ([`FlowRule`]) it fits, and the host's own network gets it too.

mod frames;
mod rule;
mod spread;
#[cfg(test)]
mod tests;

pub use frames::Ethernet;
pub use rule::{FlowAction, FlowKind, FlowMatch, FlowRule, Header};
pub use spread::{RSS_KEY_BYTES, RssTable};
