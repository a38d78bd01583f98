//! Ports: where GSO batches leave the device and come back.
//!
//! [`Port`] is what every port does. [`UdpPort`] is the real network, [`Fabric`] a simulated one in virtual
//! time. [`FaultPort`], [`TapPort`], [`LinkPort`], [`SwitchedPort`] and [`TwoPorts`] are layers: ports around
//! a port ([`PortLayer`]).
//! [`FrameWire`] is a way for Ethernet frames instead, and [`PacketSocket`] that of the real network.
//! [`ProcessGroup`] is what a port that several processes share does besides. [`RawUdp`] is the yardstick for
//! benchmarks: the same kind of socket with no protocol on top.

// A program must not be ended by what comes from the network, from its arguments or from shared memory.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

mod batch;
mod damage;
mod directory;
pub mod ethernet;
mod fabric;
mod fault;
mod frame_wire;
mod group;
pub mod gsi;
mod limits;
pub(crate) mod link;
mod nowhere;
mod packet_socket;
pub mod segments;
mod switched;
mod tap;
pub(crate) mod topology;
mod traits;
mod two_ports;
mod udp;

pub use batch::{GsoBatch, Received, TransmitError};
pub use directory::{DirectoryError, Occupant, ServiceDirectory, ServiceEntry};
pub use fabric::{Fabric, FabricConfig, FabricStats, SimPort};
pub use fault::{FaultPort, FaultStats};
pub use frame_wire::{FrameWire, SendFrameError};
pub use group::{Commons, Forwarded, Order, PortCondition, ProcessGroup};
pub use limits::{PacketCost, Peer, PeerMedium, PortLimits};
pub use link::{EcnMarking, Link, LinkDirection, LinkPort, LinkQueue, Passage, QueueFull, wire_bytes};
pub use nowhere::Nowhere;
pub use packet_socket::{PacketSocket, PacketSocketError};
pub use pumice_ground::outside::wait::wait_readable;
pub use switched::{PORT_WORDS, SwitchWords, SwitchedPort, Switching};
pub use tap::TapPort;
pub use topology::{
    QueueReport, SwitchLink, SwitchPauses, SwitchQueues, Topology, TopologyHost, TopologyKind,
};
pub use traits::{LinkChange, Port, PortLayer};
pub use two_ports::TwoPorts;
pub use udp::{PortError, RawUdp, RawWait, UdpConfig, UdpCounters, UdpPort};
