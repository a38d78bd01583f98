//! Ports: where trains of packets leave the device and come back.
//!
//! [`UdpPort`] is the real network, [`Fabric`] a simulated one in virtual time. [`FaultPort`] and
//! [`CapturePort`] are ports around a port. [`RawUdp`] is the yardstick for benchmarks: the same kind of
//! socket with no protocol on top.
//!
//! A *train* is a run of packets of equal size for one path, given to the kernel in one call. It is the unit
//! because the cost of UDP is one traversal of the network stack per call, whatever the call carries.

mod capture;
mod fabric;
mod fault;
mod fault_script;
mod pcapng;
pub(crate) mod random;
mod raw;
mod segments;
mod sim;
mod udp;
mod udp_message;
mod udp_multicast;
mod udp_scope;
mod udp_socket;
mod wait;

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::Arc;

use pumice_transport::host::PeerProgress;
use pumice_transport::path::{Flow, Path};

use crate::counters::Counters;
use crate::gsi::ServiceDirectory;

pub use capture::CapturePort;
pub use fabric::{Fabric, FabricConfig, FabricStats};
pub use fault::{FaultConfig, FaultPort, FaultStats};
pub(crate) use random::Random;

pub use fault_script::{Fault, FaultScript, ScriptedFault};
pub use raw::{RawUdp, RawWait};
pub use sim::SimPort;
pub use udp::{UdpConfig, UdpCounters, UdpPort};
pub use udp_socket::PortError;
pub use wait::wait_readable;

/// Packets of one path and of one size, sent together.
#[derive(Debug, Clone, Copy)]
pub struct Train<'a> {
    /// Where all of them go.
    pub path: &'a Path,
    /// Bytes of every packet (BTH to ICRC) but the last, which may be shorter.
    pub segment_bytes: usize,
    /// The packets, one after the other, not empty. The ICRC of the k-th (from 0) is made with IP ID k.
    pub bytes: &'a [u8],
}

impl<'a> Train<'a> {
    /// The packets of the train, in order. A `segment_bytes` of zero makes one packet of everything.
    pub fn segments(&self) -> impl ExactSizeIterator<Item = &'a [u8]> {
        self.bytes.chunks(if self.segment_bytes == 0 { self.bytes.len().max(1) } else { self.segment_bytes })
    }
}

/// Packets of one flow that arrived together.
#[derive(Debug, Clone, Copy)]
pub struct Received<'a> {
    /// Addresses and ports as they were on the wire: `source` is the sender.
    pub flow: Flow,
    /// TOS byte / IPv6 traffic class; the low two bits are ECN.
    pub traffic_class: u8,
    /// TTL / hop limit on arrival.
    pub hop_limit: u8,
    /// Bytes of every packet but the last, which may be shorter; at least 1.
    pub segment_bytes: usize,
    /// The packets, one after the other, not empty.
    pub bytes: &'a [u8],
}

/// Why a train was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransmitError {
    /// The queue below is full: nothing was sent; try again later.
    Busy,
    /// The train or one of its packets is longer than the port or the way to the destination carries.
    TooLong {
        /// What was asked: bytes of a packet (or of the train, when `limit_bytes` is the train's).
        bytes: usize,
        /// The most that fits, when known, else 0.
        limit_bytes: usize,
    },
    /// There is no route to the destination.
    Unreachable,
    /// The operating system refused with this errno. `EADDRNOTAVAIL` is also the answer to a path whose
    /// source address or source port is not this port's.
    Refused(i32),
}

impl fmt::Display for TransmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Busy => f.write_str("the send queue is full"),
            Self::TooLong { bytes, limit_bytes: 0 } => {
                write!(f, "a packet of {bytes} bytes is longer than the MTU of the way to the destination")
            }
            Self::TooLong { bytes, limit_bytes } => {
                write!(f, "{bytes} bytes are more than the {limit_bytes} that fit")
            }
            Self::Unreachable => f.write_str("no route to the destination"),
            Self::Refused(errno) => {
                write!(f, "sending was refused: {}", io::Error::from_raw_os_error(errno))
            }
        }
    }
}

impl std::error::Error for TransmitError {}

/// What a port can take. May shrink while the port lives (a device that cannot segment): ask before each train.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortLimits {
    /// Packets per train, at least 1.
    pub max_segments: usize,
    /// Bytes per train.
    pub max_train_bytes: usize,
    /// Receive buffer as the kernel accounts it, shared by all queue pairs behind the port: the kernel
    /// charges about 8.5 KiB for a lone 4 KiB packet.
    pub receive_buffer_bytes: usize,
}

/// What the processes of a user who share a port have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commons {
    /// Folder of this user's own for what they share, or why there is none.
    pub folder: Result<PathBuf, &'static str>,
    /// What the names of its files begin with.
    pub name: String,
    /// This process's slot.
    pub slot: u8,
}

/// A way to the network. The caller gives the time; only the simulated port and middleware look at it.
pub trait Port: Send {
    /// Sends a train, all of it or nothing.
    ///
    /// # Errors
    /// See [`TransmitError`]; only `Busy` is worth repeating unchanged.
    fn transmit(&mut self, now_ns: u64, train: &Train<'_>) -> Result<(), TransmitError>;

    /// Whether an unreliable train (UC, UD) for the process of `slot` at `destination` may be sent now. False: that
    /// process is known not to keep up, so the train would be lost; ask again soon. Ask before a train is made, and
    /// send it next.
    fn admits(&mut self, now_ns: u64, destination: IpAddr, slot: u8) -> bool {
        let _ = (now_ns, destination, slot);
        true
    }

    /// Whether the process of `slot` at `destination` is known to have had no processor since `since_ns`.
    /// Asked when a queue pair is about to give it up. The port may also let that process know that it is
    /// missed.
    fn peer_progress(&mut self, now_ns: u64, destination: IpAddr, slot: u8, since_ns: u64) -> PeerProgress {
        let _ = (now_ns, destination, slot, since_ns);
        PeerProgress::Unknown
    }

    /// Receives at most one train and hands it to `handler`; true if something was taken from the port,
    /// even when it was not fit for the handler.
    fn receive(&mut self, now_ns: u64, handler: &mut dyn FnMut(&Received<'_>)) -> bool;

    /// What fits in a train, and the receive buffer.
    fn limits(&self) -> PortLimits;

    /// What to poll(2) for readability; empty for simulated ports. Changes on `join` and `leave`.
    fn descriptors(&self) -> Vec<RawFd>;

    /// Starts receiving what is sent to a multicast group. A group joined twice must be left twice.
    ///
    /// # Errors
    /// Not a multicast address, or what the operating system says.
    fn join(&mut self, group: IpAddr) -> io::Result<()>;

    /// Undoes one [`join`](Port::join).
    ///
    /// # Errors
    /// The group was not joined.
    fn leave(&mut self, group: IpAddr) -> io::Result<()>;

    /// When the port wants `transmit` or `receive` to be called though nothing arrived: middleware that holds
    /// packets back.
    fn next_event_ns(&self) -> Option<u64> {
        None
    }

    /// The UDP source port of everything sent, when the port allows only one.
    fn source_port(&self) -> Option<u16> {
        None
    }

    /// The caller waited on the descriptors and something is readable: the next calls of `receive` look
    /// everywhere.
    fn woken(&mut self) {}

    /// The device behind the port counts here: for ports that tell others.
    fn observe(&mut self, counters: &Arc<Counters>) {
        let _ = counters;
    }

    /// Hands packets to another process that shares the port; false if that is not possible. `slot` is the
    /// top byte of that process's queue pair numbers.
    fn forward(&mut self, slot: u8, received: &Received<'_>) -> bool {
        let _ = (slot, received);
        false
    }

    /// What this port has in common with those of other processes, if it is shared.
    fn commons(&self) -> Option<Commons> {
        None
    }

    /// Keeps another process's slot from being given to a newcomer when that process has gone: queue pairs
    /// with its numbers live on.
    fn reserve_slot(&mut self, slot: u8) {
        let _ = slot;
    }

    /// Takes the packets of a reserved slot if its process has gone. True: this process has them now.
    fn adopt_slot(&mut self, slot: u8) -> bool {
        let _ = slot;
        false
    }

    /// Ends [`reserve_slot`](Port::reserve_slot) and [`adopt_slot`](Port::adopt_slot).
    fn release_slot(&mut self, slot: u8) {
        let _ = slot;
    }

    /// The services that the processes which share the port have bound; `None` when nobody shares it.
    fn services(&mut self) -> Option<&mut dyn ServiceDirectory> {
        None
    }
}

impl<P: Port + ?Sized> Port for Box<P> {
    fn transmit(&mut self, now_ns: u64, train: &Train<'_>) -> Result<(), TransmitError> {
        (**self).transmit(now_ns, train)
    }
    fn admits(&mut self, now_ns: u64, destination: IpAddr, slot: u8) -> bool {
        (**self).admits(now_ns, destination, slot)
    }
    fn peer_progress(&mut self, now_ns: u64, destination: IpAddr, slot: u8, since_ns: u64) -> PeerProgress {
        (**self).peer_progress(now_ns, destination, slot, since_ns)
    }
    fn receive(&mut self, now_ns: u64, handler: &mut dyn FnMut(&Received<'_>)) -> bool {
        (**self).receive(now_ns, handler)
    }
    fn limits(&self) -> PortLimits {
        (**self).limits()
    }
    fn descriptors(&self) -> Vec<RawFd> {
        (**self).descriptors()
    }
    fn join(&mut self, group: IpAddr) -> io::Result<()> {
        (**self).join(group)
    }
    fn leave(&mut self, group: IpAddr) -> io::Result<()> {
        (**self).leave(group)
    }
    fn next_event_ns(&self) -> Option<u64> {
        (**self).next_event_ns()
    }
    fn source_port(&self) -> Option<u16> {
        (**self).source_port()
    }
    fn woken(&mut self) {
        (**self).woken();
    }
    fn observe(&mut self, counters: &Arc<Counters>) {
        (**self).observe(counters);
    }
    fn forward(&mut self, slot: u8, received: &Received<'_>) -> bool {
        (**self).forward(slot, received)
    }
    fn commons(&self) -> Option<Commons> {
        (**self).commons()
    }
    fn reserve_slot(&mut self, slot: u8) {
        (**self).reserve_slot(slot);
    }
    fn adopt_slot(&mut self, slot: u8) -> bool {
        (**self).adopt_slot(slot)
    }
    fn release_slot(&mut self, slot: u8) {
        (**self).release_slot(slot);
    }
    fn services(&mut self) -> Option<&mut dyn ServiceDirectory> {
        (**self).services()
    }
}
