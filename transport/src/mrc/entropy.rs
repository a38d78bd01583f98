//! Entropy values, planes and traffic classes, which decide the path of a packet.

use super::wire::MrcOpcode;
use crate::host::{Host, QpContext};
use crate::wire::Psn;

/// An entropy value (EV): 32 bits by which switches choose the path of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Entropy(pub u32);

impl Entropy {
    /// Returns the value of a packet with this flow label and UDP source port. IPv4 has no flow label: pass
    /// 0.
    pub const fn of(flow_label: u32, source_port: u16) -> Entropy {
        Entropy((flow_label & 0xffff) << 16 | source_port as u32)
    }

    /// Returns the UDP source port, which is the low half.
    pub const fn source_port(self) -> u16 {
        self.0 as u16
    }

    /// Returns the flow label of IPv6, which is the high half. The top four bits of the label are 0.
    pub const fn flow_label(self) -> u32 {
        self.0 >> 16
    }
}

/// A plane: one port of the adapter and the network behind it, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Plane(pub u8);

/// A set of planes, as port status updates carry it: bit n is plane n, which is port n + 1 of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Planes(pub u32);

impl Planes {
    /// The set of all planes.
    pub const ALL: Planes = Planes(u32::MAX);

    /// Reports whether the plane is in the set. Planes beyond 31 are in no set.
    pub const fn has(self, plane: Plane) -> bool {
        plane.0 < 32 && self.0 >> plane.0 & 1 == 1
    }

    /// Returns the planes that are in both sets.
    pub const fn and(self, other: Planes) -> Planes {
        Planes(self.0 & other.0)
    }

    /// Returns the set without a plane.
    pub const fn without(self, plane: Plane) -> Planes {
        if plane.0 < 32 { Planes(self.0 & !(1 << plane.0)) } else { self }
    }
}

/// A traffic class, which the DSCP of a packet signals to switches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TrafficClass {
    /// Data that switches must not trim.
    NoTrim,
    /// Data that switches may trim.
    Trimmable,
    /// Retransmitted data that switches may trim.
    TrimmableRetransmission,
    /// Data that a switch before the last one has trimmed.
    Trimmed,
    /// Data that the last switch has trimmed.
    TrimmedLastHop,
    /// SACK, NACK, ACK, endpoint responses and port status updates.
    Control,
}

/// The DSCPs of the traffic classes, which an operator chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DscpTable {
    /// DSCP of [`TrafficClass::NoTrim`].
    pub no_trim: u8,
    /// DSCP of [`TrafficClass::Trimmable`].
    pub trimmable: u8,
    /// DSCP of [`TrafficClass::TrimmableRetransmission`].
    pub trimmable_retransmission: u8,
    /// DSCP of [`TrafficClass::Trimmed`].
    pub trimmed: u8,
    /// DSCP of [`TrafficClass::TrimmedLastHop`].
    pub trimmed_last_hop: u8,
    /// DSCP of [`TrafficClass::Control`].
    pub control: u8,
}

impl DscpTable {
    /// Returns the DSCP of a class.
    pub const fn dscp(&self, class: TrafficClass) -> u8 {
        match class {
            TrafficClass::NoTrim => self.no_trim,
            TrafficClass::Trimmable => self.trimmable,
            TrafficClass::TrimmableRetransmission => self.trimmable_retransmission,
            TrafficClass::Trimmed => self.trimmed,
            TrafficClass::TrimmedLastHop => self.trimmed_last_hop,
            TrafficClass::Control => self.control,
        }
    }

    /// Returns at which hop a packet with this DSCP was trimmed; `None` if it was not trimmed.
    pub const fn trim(&self, dscp: u8) -> Option<Trim> {
        if dscp == self.trimmed {
            Some(Trim::EarlierHop)
        } else if dscp == self.trimmed_last_hop {
            Some(Trim::LastHop)
        } else {
            None
        }
    }
}

/// The hop at which a switch cut off the data of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Trim {
    /// A switch before the last one.
    EarlierHop,
    /// The last switch.
    LastHop,
}

/// Path and marks of a packet that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MrcArrival {
    /// Entropy value of the packet.
    pub entropy: Entropy,
    /// Port at which the packet arrived.
    pub plane: Plane,
    /// True if a switch marked the packet (ECN CE).
    pub congested: bool,
    /// Hop at which the packet was trimmed; `None` if it was not.
    pub trim: Option<Trim>,
}

/// Path and traffic class of a packet to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MrcOutgoingPacket {
    /// Entropy value of the packet.
    pub entropy: Entropy,
    /// Port through which the packet leaves.
    pub plane: Plane,
    /// Traffic class of the packet. Data and probes are sent as ECN-capable.
    pub class: TrafficClass,
}

/// A packet that was sealed, as described to the network that it is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MrcSent {
    /// Opcode of the packet.
    pub opcode: MrcOpcode,
    /// PSN of the packet.
    pub psn: Psn,
    /// Position among all transmissions of data of the queue pair; 0 for other packets.
    pub order: u64,
    /// Ordinal of the message that the data is of, from 0; 0 for other packets.
    pub message: u64,
    /// Number of this transmission of the PSN, from 1.
    pub transmission: u32,
    /// Bytes from the BTH to the ICRC.
    pub length_bytes: usize,
    /// Bytes of data.
    pub payload_bytes: usize,
}

impl MrcSent {
    /// Describes a packet without data.
    pub(crate) const fn control(opcode: MrcOpcode, psn: Psn, length_bytes: usize) -> MrcSent {
        MrcSent { opcode, psn, order: 0, message: 0, transmission: 1, length_bytes, payload_bytes: 0 }
    }
}

/// The network that packets of MRC are sent to.
pub trait MrcNetwork {
    /// Returns the buffer for a packet of `length_bytes`, from BTH to ICRC; `None` if there is no room now.
    /// The caller writes all but the ICRC and then calls [`MrcNetwork::seal`].
    fn begin(&mut self, departure: &MrcOutgoingPacket, length_bytes: usize) -> Option<&mut [u8]>;

    /// Completes the packet begun last with its ICRC, and sends it.
    fn seal(&mut self);

    /// Discards the packet begun last.
    fn abandon(&mut self);

    /// Describes the packet sealed last, so that the network can report it, or do with it what a fault plan
    /// of the host says.
    fn sent<H: Host>(&mut self, context: &QpContext, sent: &MrcSent, host: &mut H) {
        let _ = (context, sent, host);
    }
}
