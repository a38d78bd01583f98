//! The configuration of a UDP port, and its counters.

use std::net::IpAddr;

use pumice_transport::path::ROCE_PORT;

/// Configuration of a [`UdpPort`](super::UdpPort).
#[derive(Debug, Clone)]
pub struct UdpConfig {
    /// Local address, or a wildcard: `::` takes IPv6 and IPv4, `0.0.0.0` IPv4 only.
    pub address: IpAddr,
    /// UDP port, 4791 unless in tests; 0 lets the system choose.
    pub port: u16,
    /// The UDP port is shared with other processes of the same user (SO_REUSEPORT).
    pub reuse_port: bool,
    /// Size asked for SO_RCVBUF and SO_SNDBUF, in bytes; the system may give less (net.core.rmem_max).
    pub buffer_bytes: usize,
}

impl UdpConfig {
    /// Returns the configuration of port 4791 of `address`, for this process alone, with buffers of 4 MiB.
    pub fn new(address: IpAddr) -> UdpConfig {
        UdpConfig { address, port: ROCE_PORT, reuse_port: false, buffer_bytes: 4 << 20 }
    }
}

/// Counters of a UDP port, besides what its callers are returned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UdpCounters {
    /// Received batches dropped because they were longer than 64 KiB.
    pub truncated: u64,
    /// Datagrams without a byte in them, dropped.
    pub empty: u64,
    /// Sends repeated because an earlier packet's ICMP error was reported in their place.
    pub repeated_sends: u64,
    /// Batches that left from the RoCE port, because another program had taken the source port of their flow.
    pub source_ports_lost: u64,
    /// Packets lost because the queue filled up while a batch was sent one packet at a time.
    pub cut_batches_lost: u64,
}
