//! The real network: one unconnected UDP socket.

mod config;
mod message;
mod multicast;
mod port;
mod raw;
mod scope;
mod socket;

pub use config::{UdpConfig, UdpCounters};
pub use port::UdpPort;
pub use raw::{RawUdp, RawWait};
pub use socket::PortError;
