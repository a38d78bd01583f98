//! Safe Rust verbs on a software HCA.
//!
//! * **Types know the transport.** A [`QueuePair`] is an [`RcQueuePair`], [`UcQueuePair`], [`UdQueuePair`] or
//!   one of the XRC halves; operations that a service does not have (a READ on UC, an ACK timeout on UD)
//!   do not compile.
//! * **Registered memory is owned.** A [`MemoryRegion`] frees its memory after it is deregistered. As peers
//!   write it at any time there are no references to its bytes, but copies and atomics.
//! * **Nothing is closed in the wrong order.** Every object is a cheap clone that keeps alive what it needs,
//!   and is destroyed with its last clone.
//! * **Errors name the object, the attribute and the remedy.** See [`VerbsError`].
//!
//! * **One rule for waiting.** A call that takes a `timeout` looks at least once, also with
//!   `Duration::ZERO`, returns as soon as there is what it waits for, and fails with
//!   [`VerbsError::TimedOut`] when the time is over; `Duration::MAX` is for ever. [`CompletionQueue::poll`]
//!   and calls that begin with `try_` do not wait.
//! * **Options are written alike.** They begin with `new()` and are set one after the other, such as
//!   `ConnectionParams::new().retry_count(3)`; `Default::default()` is the same as `new()`.
//!
//! The thread that polls drives the device: [`CompletionQueue::poll`], [`CompletionQueue::wait`] and
//! [`CompletionChannel::wait`] receive and send packets in the calling thread. A background thread of the
//! device takes over when no thread of the application does, so peers' READs and WRITEs are answered while
//! the application is busy elsewhere.
//!
//! [`Device::open`] opens a device on this machine's network: UDP port 4791, no privileges. A [`Simulation`]
//! gives devices on a simulated network in virtual time, for tests that are the same in every run:
//!
//! ```
//! use std::time::Duration;
//! use pumice_verbs::{
//!     Access, FabricConfig, Fault, WirePlan, RcQueuePair, RecvRequest, Result, SendRequest, Simulation,
//! };
//!
//! # fn main() -> Result<()> {
//! const SECOND: Duration = Duration::from_secs(1);
//! let simulation = Simulation::new(FabricConfig {
//!     faults: WirePlan::seeded(1).by_chance(10_000, Fault::Drop),
//!     ..FabricConfig::default()
//! });
//! let side = |address: &str| -> Result<_> {
//!     let device = simulation.device(address.parse().unwrap())?;
//!     let domain = device.protection_domain()?;
//!     let cq = device.completion_queue(16)?;
//!     let memory = domain.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
//!     let qp = RcQueuePair::builder(&domain, &cq, &cq).build()?;
//!     Ok((qp, cq, memory))
//! };
//! let (ping, ping_cq, ping_memory) = side("10.0.0.1")?;
//! let (pong, pong_cq, pong_memory) = side("10.0.0.2")?;
//!
//! // Endpoints travel out of band, for instance as the 24 bytes of `to_bytes`.
//! ping.connect(&pong.endpoint(), &Default::default())?;
//! pong.connect(&ping.endpoint(), &Default::default())?;
//!
//! pong.post_recv(&RecvRequest { wr_id: 1, sges: &[pong_memory.slice(..64)?] })?;
//! ping_memory.write(0, b"ping")?;
//! ping.post_send(&SendRequest::send(&[ping_memory.slice(..4)?]).signaled())?;
//! assert_eq!(pong_cq.wait_success(SECOND)?.byte_len, 4);
//! assert_eq!(pong_memory.to_vec(0, 4)?, b"ping");
//!
//! // The answer is written into the memory of the other side, which is notified by immediate data.
//! ping.post_recv(&RecvRequest { wr_id: 2, sges: &[] })?;
//! let target = ping_memory.remote_slice(100..200)?;
//! pong.post_send(&SendRequest::write(&[], target).inline(b"pong").imm([0, 0, 0, 7]).signaled())?;
//! ping_cq.wait_success(SECOND)?; // of the SEND
//! let arrived = ping_cq.wait_success(SECOND)?;
//! assert_eq!((arrived.wr_id, arrived.imm_data), (2, [0, 0, 0, 7]));
//! assert_eq!(ping_memory.to_vec(100, 4)?, b"pong");
//! # Ok(())
//! # }
//! ```
//!
//! [`asynchronous`] has futures for programs that await instead of blocking.
//!
//! With [`rdma_cm`] queue pairs are connected by IP address and port instead, and nothing travels out of
//! band:
//!
//! ```
//! use std::time::Duration;
//! use pumice_verbs::{
//!     Access, Connection, ConnectionParams, FabricConfig, RcQueuePair, RemoteSlice, Result, SendRequest,
//!     Simulation,
//! };
//!
//! # fn main() -> Result<()> {
//! const SECOND: Duration = Duration::from_secs(1);
//! let simulation = Simulation::new(FabricConfig::default());
//! let side = |address: &str| -> Result<_> {
//!     let device = simulation.device(address.parse().unwrap())?;
//!     let domain = device.protection_domain()?;
//!     let cq = device.completion_queue(16)?;
//!     let memory = domain.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
//!     let qp = RcQueuePair::builder(&domain, &cq, &cq).build()?;
//!     Ok((device, qp, cq, memory))
//! };
//! let (server, server_qp, _, server_memory) = side("10.0.0.1")?;
//! let (_client, client_qp, client_cq, _) = side("10.0.0.2")?;
//!
//! let listener = server.listen(7471)?;
//! let params = ConnectionParams::new().retry_count(3);
//! // Both sides are in this thread, so it does not wait here; `Connection::connect` returns connected.
//! let client = Connection::start(&client_qp, ([10, 0, 0, 1], 7471).into(), &params, b"hello")?;
//!
//! // The server says where its memory is when it accepts. `request.reject(&())` would refuse.
//! let request = listener.request(SECOND)?;
//! assert_eq!(request.private_data::<[u8; 5]>()?, *b"hello");
//! let server = request.accept(&server_qp, &params, &server_memory.remote())?;
//!
//! client.established(SECOND)?;
//! server.established(SECOND)?;
//! let remote: RemoteSlice = client.private_data()?;
//! client_qp.post_send(&SendRequest::write(&[], remote).inline(b"stone").signaled())?;
//! client_cq.wait_success(SECOND)?;
//! assert_eq!(server_memory.to_vec(0, 5)?, b"stone");
//!
//! client.disconnect()?;
//! server.disconnected(SECOND)?;
//! # Ok(())
//! # }
//! ```
#![deny(unsafe_code)]

pub mod asynchronous;
pub(crate) mod buffers;
mod check;
mod device;
pub(crate) mod error;
pub(crate) mod objects;
mod queue_pair;
pub mod rdma_cm;
pub(crate) mod setters;
pub mod transport;
pub mod world;

pub use crate::buffers::{LocalSlice, RemoteSlice};
pub use crate::error::{ListError, RequestError, Result, VerbsError};
pub use check::CheckOptions;
pub use device::options::DeviceOptions;
pub use device::simulation::Simulation;
pub use device::{AsyncEvent, Device, DeviceInfo};
pub use objects::address::{AddressHandle, UdAddress, UdEndpoint};
pub use objects::completion::{CompletionChannel, CompletionEvent, CompletionQueue, Notify};
pub use objects::memory::MemoryRegion;
pub use objects::receive::SharedReceiveQueue;
pub use objects::{OpenedTarget, ProtectionDomain, XrcDomain, XrcDomainOpening};
pub use queue_pair::request::{MemoryWindow, Placement, SendList, SendRequest};
pub use queue_pair::{DcAddress, DcEndpoint, Endpoint, QueuePair, QueuePairBuilder};
pub use rdma_cm::{Connection, ConnectionEvent, ConnectionParams, ConnectionRequest, Listener};
pub use transport::{
    ConnectOptions, PathOptions, RcConnectOptions, UcConnectOptions, XrcTargetConnectOptions,
};

// Types of the field that the lower crates define.
pub use pumice_device::addresses::gid_table::GidEntry;
pub use pumice_device::check::recorded::{Frame, ReportEntry};
pub use pumice_device::counters::{CounterInfo, Counters};
pub use pumice_device::event::async_event::AsyncElement;
pub use pumice_device::faults::{Fault, FaultPlan, WirePlan};
pub use pumice_device::gsi::ConnectionError;
pub use pumice_device::hca::{Hca, HcaError};
pub use pumice_device::memory::WindowType;
pub use pumice_device::objects::srq::SrqAttributes;
pub use pumice_device::platform::limits::Limits;
pub use pumice_device::platform::table::Handle;
pub use pumice_device::port::{
    EcnMarking, Fabric, FabricConfig, FabricStats, Link, LinkDirection, PortError, Topology,
};
pub use pumice_device::settings::{CopyMode, Wire};
pub use pumice_transport::host::Counter;
pub use pumice_transport::mad::RejectReason;
pub use pumice_transport::qp::{AttributeMask, ModifyError, PostError, QpAttributes};
pub use pumice_transport::qp::{Congestion, CongestionAlgorithm, DcqcnParameters, NotificationParameters};
pub use pumice_transport::types::{
    Access, AddressVector, AsyncEventType, Cause, CompletionError, Gid, Mtu, QpCapacity, QpState, QpType,
    RecvRequest, WcFlags, WcOpcode, WcStatus, WorkCompletion,
};
pub use pumice_transport::wire::Qpn;

/// Reliable connection.
pub type RcQueuePair = QueuePair<transport::Rc>;
/// Unreliable connection.
pub type UcQueuePair = QueuePair<transport::Uc>;
/// Unreliable datagram.
pub type UdQueuePair = QueuePair<transport::Ud>;
/// XRC initiator.
pub type XrcInitiatorQueuePair = QueuePair<transport::XrcInitiator>;
/// XRC initiator and target in one, as OFED 1.x had it.
pub type XrcDuplexQueuePair = QueuePair<transport::XrcDuplex>;
/// XRC target.
pub type XrcTargetQueuePair = QueuePair<transport::XrcTarget>;
/// Reliable datagrams without order, as EFA has them.
pub type SrdQueuePair = QueuePair<transport::Srd>;
/// Initiator of DC, as mlx5 has it.
pub type DcInitiator = QueuePair<transport::Dci>;
/// Target of DC.
pub type DcTarget = QueuePair<transport::Dct>;
/// The data that the peer of an RC queue pair needs to connect.
pub type RcEndpoint = Endpoint<transport::Rc>;
/// The data that the peer of a UC queue pair needs to connect.
pub type UcEndpoint = Endpoint<transport::Uc>;
