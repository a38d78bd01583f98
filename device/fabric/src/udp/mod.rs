//! The real network: one unconnected UDP socket that receives, and one for each source port that is sent
//! from.

mod config;
mod multicast;
mod port;
mod senders;

pub use config::{UdpConfig, UdpCounters};
pub use port::UdpPort;
