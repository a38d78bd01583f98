//! Addresses and packet marks of a flow.

use core::net::IpAddr;

/// UDP destination port of RoCEv2.
//= statement:5
//| Requests and answers go to the UDP port 4791.
pub const ROCE_PORT: u16 = 4791;

/// Addresses and ports of a flow: what the ICRC's pseudo header covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Flow {
    /// IP source address.
    pub source: IpAddr,
    /// IP destination address, of the same family as `source`.
    pub destination: IpAddr,
    /// UDP source port: any value is legal.
    pub source_port: u16,
    /// UDP destination port.
    pub destination_port: u16,
}

/// A flow and the marks of its packets: a resolved address vector.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Path {
    /// Addresses and ports.
    pub flow: Flow,
    /// TOS byte / IPv6 traffic class; the low two bits are ECN.
    pub traffic_class: u8,
    /// TTL / hop limit.
    pub hop_limit: u8,
    /// IPv6 flow label (20 bits).
    pub flow_label: u32,
}

/// Fields of the IP and UDP headers that a packet arrived with.
#[derive(Debug, Clone, Copy)]
pub struct Arrival<'a> {
    /// Addresses and ports.
    pub flow: &'a Flow,
    /// TOS / traffic class; the low two bits are ECN.
    pub traffic_class: u8,
    /// TTL / hop limit.
    pub hop_limit: u8,
}
