//! Ports: where GSO batches leave the device and come back.
//!
//! [`Port`] is what every port does. [`UdpPort`] is the real network, [`Fabric`] a simulated one in virtual
//! time. [`FaultPort`], [`FetchPort`], [`LinkPort`], [`SwitchedPort`] and [`TwoPorts`] are layers: ports
//! around a port ([`PortLayer`]). [`FrameWire`] is a wire for Ethernet frames instead, and [`PacketSocket`]
//! that of the real network. [`ProcessGroup`] has the additional methods of a port that several processes
//! share. [`RawUdp`] is the baseline of benchmarks: the same kind of socket with no protocol on top.

// A program must not be ended by data from the network, from its arguments or from shared memory.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

mod backlog;
mod files;
#[doc(hidden)]
pub mod fuzzing;
pub mod gsi;
pub(crate) mod link;
mod members;
mod queries;
mod registry;
mod relay;
mod ring;
mod same_host;
mod shared_port;
pub mod sharing;
mod simulated;
#[cfg(test)]
mod simulation;
mod steering;
mod switched;
pub(crate) mod system;
mod udp;
pub mod xrc;

pub use crate::simulated::{Fabric, FabricConfig, FabricStats, SimPort};
pub use link::{FetchPort, LinkPort, wire_bytes};
pub use pumice_faults::port::{FaultPort, FaultStats};
pub use pumice_model::network::topology::{
    QueueReport, SwitchLink, SwitchPauses, SwitchQueues, Topology, TopologyHost, TopologyKind,
};
pub use pumice_model::network::{EcnMarking, Link, LinkDirection, LinkPassage, LinkQueue, QueueFull};
pub use pumice_model::port::batch::{
    GsoBatch, PacketCost, Peer, PeerMedium, PortLimits, ReceivedBatch, TransmitError,
};
pub use pumice_model::port::directory::{DirectoryError, Occupant, ServiceDirectory, ServiceEntry};
pub use pumice_model::port::group::{
    ControlCommand, ForwardOutcome, PortCondition, ProcessGroup, SharedResources,
};
pub use pumice_model::port::two_ports::TwoPorts;
pub use pumice_model::port::{LinkChange, NullPort, Port, PortLayer};
pub use pumice_platform::outside::system_call::wait_readable;
pub use pumice_platform::packet_socket::{FrameWire, PacketSocket, PacketSocketError, SendFrameError};
pub use pumice_platform::udp::PortError;
pub use pumice_platform::udp::raw::{RawUdp, RawWait};
pub use switched::{PORT_WORDS, SwitchWords, SwitchedPort, Switching};
pub use udp::{UdpConfig, UdpCounters, UdpPort};
