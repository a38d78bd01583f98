//! The real network: one unconnected UDP socket that receives, and one for each source port that is sent
//! from.

mod config;
mod message;
mod multicast;
mod port;
mod raw;
mod scope;
mod senders;
mod socket;
mod unread;

pub use config::{UdpConfig, UdpCounters};
pub use port::UdpPort;
pub use raw::{RawUdp, RawWait};
pub use socket::PortError;
