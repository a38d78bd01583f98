//! What the protocol needs from the device around it.
//!
//! The device implements [`Host`] and passes it to every call, so the protocol owns no memory, no
//! completion queue and no receive queue; a unit test passes a fake over a `Vec<u8>`.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

use crate::event::{Departure, QpEvent, Topic};
use crate::path::Path;
use crate::types::{
    Access, AsyncEventType, AtomicOperation, Cause, Fate, KeyConfiguration, MemoryFault, QpType, Sge,
    WcOpcode, WcStatus, WindowBind, WorkCompletion,
};
use crate::wire::Qpn;

pub use crate::types::{Counter, MemoryError};

/// The device's own names for what a queue pair is attached to. The protocol hands them back
/// unread; their meaning is the device's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QpContext {
    /// Number of the queue pair.
    pub qpn: Qpn,
    /// Protection domain.
    pub pd: u32,
    /// Completion queue of send requests.
    pub send_cq: u32,
    /// Completion queue of receive requests (not used by XRC targets: the SRQ has its own).
    pub recv_cq: u32,
    /// Receive queue or shared receive queue.
    pub recv_queue: u32,
    /// XRC domain of a target.
    pub xrcd: u32,
    /// How many queue pairs the device had made before this one: unlike its number, the same in every run of
    /// the program.
    pub ordinal: u32,
}

/// A receive request taken from its queue; the protocol owns it until the message ends.
/// Queue pairs keep one and let the host refill it, so no allocation happens per message.
#[derive(Debug, Clone, Default)]
pub struct RecvWqe {
    /// Of the request.
    pub wr_id: u64,
    /// Protection domain its buffers belong to (that of the SRQ, if it came from one).
    pub pd: u32,
    /// Completion queue its completion goes to.
    pub cq: u32,
    /// Buffers.
    pub sges: Vec<Sge>,
    /// Sum of the buffers' lengths in bytes.
    pub length_bytes: u64,
}

/// Why no receive request can be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoRecv {
    /// None is posted.
    Empty,
    /// The XRC SRQ number is unknown or of another domain.
    NoSuchSrq,
}

/// A remote key as a peer used it, with the domain it must belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteKey {
    /// R_Key.
    pub rkey: u32,
    /// Protection domain of the responding QP (XRC: of the SRQ named in the packet).
    pub pd: u32,
    /// Responding queue pair: a type-2 window is bound to one.
    pub qpn: Qpn,
}

/// A work request that has been carried out and is about to complete with success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// The ordinal of the queue pair's connection: how often it was reset before.
    pub connection: u32,
    /// Its transport service.
    pub qp_type: QpType,
    /// What its completion says that it did.
    pub opcode: WcOpcode,
    /// Bytes that it moved.
    pub length_bytes: u32,
    /// Whether success makes a completion.
    pub reports: bool,
    /// Requests of its work queue that ended before it on this connection.
    pub before: u64,
}

/// What is known about the process of the peer when a queue pair is about to give it up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PeerProgress {
    /// It has looked at what was sent to it, or is stopped or dead, or nothing is known: on another host, for
    /// example.
    #[default]
    Unknown,
    /// It lives on this host, is not stopped, and has not had a processor since: it cannot have answered.
    Starved,
    /// This process has not taken all that came to it since: the answer may be among that.
    Unread,
    /// No process of this host has the peer's number: it has ended, or never was.
    Absent,
}

/// What a raw packet queue pair sends: all bytes of an Ethernet frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameData<'a> {
    /// The bytes.
    Inline(&'a [u8]),
    /// Local buffers that have them.
    Buffers(&'a [Sge]),
}

/// Why a frame cannot be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameError {
    /// It is shorter than an Ethernet header, or longer than the interface carries.
    Length,
    /// Its buffers cannot be read.
    Memory(MemoryError),
}

/// The device, seen from a queue pair.
pub trait Host {
    /// Copies bytes `offset..offset + out.len()` of the list of local buffers into `out`.
    ///
    /// # Errors
    /// A key is wrong, of another domain, or the range leaves its region.
    fn gather(&mut self, pd: u32, sges: &[Sge], offset: u64, out: &mut [u8]) -> Result<(), MemoryError>;

    /// Copies `data` to bytes `offset..offset + data.len()` of the list of local buffers; the
    /// regions need `LOCAL_WRITE`. With empty `data` nothing is checked.
    ///
    /// # Errors
    /// As [`Host::gather`], or a region is read-only.
    fn scatter(&mut self, pd: u32, sges: &[Sge], offset: u64, data: &[u8]) -> Result<(), MemoryError>;

    /// Which of the buffers cannot be used, and why; asked after [`Host::gather`] or [`Host::scatter`] (with
    /// `stores`) has failed, for the operator's sentence.
    fn find_fault(&mut self, pd: u32, sges: &[Sge], stores: bool) -> Option<MemoryFault> {
        let _ = (pd, sges, stores);
        None
    }

    /// Checks a whole remote range before its first byte is touched. The caller skips this for
    /// length 0.
    ///
    /// # Errors
    /// The key, its domain, a right in `access`, or the range is wrong.
    fn check_remote(
        &mut self,
        key: RemoteKey,
        address: u64,
        length_bytes: u64,
        access: Access,
    ) -> Result<(), MemoryError>;

    /// Stores `data` at a remote address; checks everything again (the region may be gone).
    ///
    /// # Errors
    /// As [`Host::check_remote`] with `REMOTE_WRITE`.
    fn remote_write(&mut self, key: RemoteKey, address: u64, data: &[u8]) -> Result<(), MemoryError>;

    /// Loads `out.len()` bytes from a remote address.
    ///
    /// # Errors
    /// As [`Host::check_remote`] with `REMOTE_READ`.
    fn remote_read(&mut self, key: RemoteKey, address: u64, out: &mut [u8]) -> Result<(), MemoryError>;

    /// Executes an operation on 8 aligned bytes in one piece and returns the original value, in host order.
    ///
    /// # Errors
    /// As [`Host::check_remote`] with [`AtomicOperation::access`], or the address is misaligned.
    fn remote_atomic(
        &mut self,
        key: RemoteKey,
        address: u64,
        operation: AtomicOperation,
    ) -> Result<u64, MemoryError>;

    /// FLUSH: checks the key for `access` and, when `range` is given, the range; then makes earlier
    /// writes visible (and persistent, where that means something).
    ///
    /// # Errors
    /// As [`Host::check_remote`].
    fn remote_flush(
        &mut self,
        key: RemoteKey,
        range: Option<(u64, u64)>,
        access: Access,
    ) -> Result<(), MemoryError>;

    /// Invalidates a key (LOCAL_INV).
    ///
    /// # Errors
    /// The key does not name something that can be invalidated in this domain.
    fn invalidate(&mut self, key: RemoteKey) -> Result<(), MemoryError>;

    /// The same because the peer says so (SEND with invalidate).
    ///
    /// # Errors
    /// As [`Host::invalidate`]; the key is one that only its owner invalidates.
    fn invalidate_for_peer(&mut self, key: RemoteKey) -> Result<(), MemoryError> {
        self.invalidate(key)
    }

    /// Configures an indirect memory key of the queue pair's domain. A host without such keys has none.
    ///
    /// # Errors
    /// The key is none, of another domain, or the configuration is more than it was made for.
    #[cold]
    fn configure_key(&mut self, qp: &QpContext, to: &KeyConfiguration) -> Result<(), MemoryError> {
        let _ = (qp, to);
        Err(MemoryError::UnknownKey)
    }

    /// Binds a memory window (BIND_MW).
    ///
    /// # Errors
    /// The window or region is wrong or in the wrong state.
    fn bind_window(&mut self, qp: &QpContext, bind: &WindowBind) -> Result<(), MemoryError>;

    /// A configuration of a key of the domain was posted: what is posted behind it has the lengths that it
    /// leads to.
    #[cold]
    fn key_posted(&mut self, pd: u32, to: &KeyConfiguration) {
        let _ = (pd, to);
    }

    /// Bytes that the data of these local buffers is on the wire, when all that was posted has been executed;
    /// none: the sum of their lengths.
    #[inline]
    fn wire_bytes(&mut self, sges: &[Sge]) -> Option<u64> {
        let _ = sges;
        None
    }

    /// Whether data of these local buffers, whose keys have signatures, was found not to fit them, and the
    /// program has not been told yet. Asked of queue pairs that stop then.
    #[cold]
    fn has_bad_signature(&mut self, sges: &[Sge]) -> bool {
        let _ = sges;
        false
    }

    /// Sends an Ethernet frame of `length_bytes` bytes. What the network has no room for is lost, as it may
    /// be anywhere on its way. A host without Ethernet makes no raw packet queue pairs.
    ///
    /// # Errors
    /// It cannot be a frame here, or cannot be read.
    #[cold]
    fn send_frame(
        &mut self,
        qp: &QpContext,
        data: FrameData<'_>,
        length_bytes: u32,
    ) -> Result<(), FrameError> {
        let _ = (qp, data, length_bytes);
        Ok(())
    }

    /// Takes the next receive request for this QP into `into`: from its RQ, its SRQ, or the XRC SRQ
    /// that the packet names.
    ///
    /// # Errors
    /// None is posted, or there is no such SRQ.
    fn take_recv(&mut self, qp: &QpContext, xrc_srqn: Option<u32>, into: &mut RecvWqe) -> Result<(), NoRecv>;

    /// Protection domain of the XRC SRQ that a packet names: the domain its R_Keys must belong to.
    ///
    /// # Errors
    /// There is no such SRQ in the QP's XRC domain.
    fn srq_protection_domain(&mut self, qp: &QpContext, xrc_srqn: u32) -> Result<u32, NoRecv>;

    /// The number of an address handle of the domain that leads to an address, if it has one.
    #[cold]
    fn address_handle(&mut self, pd: u32, peer: IpAddr) -> Option<u16> {
        let _ = (pd, peer);
        None
    }

    /// Flushes all receive requests still in the QP's own RQ with `WR_FLUSH_ERR` (an SRQ's stay).
    fn flush_recv_queue(&mut self, qp: &QpContext);

    /// A send request completed. `released` is how many send queue entries this completion frees when
    /// it is polled (itself and the unsignaled requests before it).
    fn complete_send(&mut self, qp: &QpContext, completion: WorkCompletion, released: u32);

    /// A receive request completed, on completion queue `cq` (from [`RecvWqe::cq`]). `solicited` is
    /// the solicited-event bit of its last packet.
    fn complete_recv(&mut self, qp: &QpContext, cq: u32, completion: WorkCompletion, solicited: bool);

    /// Whether the host judges work requests that have been carried out: asked before each completes.
    #[inline]
    fn judges(&self) -> bool {
        false
    }

    /// Asked of each work request that is about to complete with success, in their order on its work queue:
    /// the status that it ends with instead, if any. The queue pair then fails as by a fault of that request.
    fn judge(&mut self, qp: &QpContext, ended: &Ended) -> Option<WcStatus> {
        let _ = (qp, ended);
        None
    }

    /// An asynchronous event of this QP.
    fn event(&mut self, qp: &QpContext, event: AsyncEventType);

    /// Whether the host listens to events of this topic: asked before a frequent event is put together.
    #[inline]
    fn listens(&self, topic: Topic) -> bool {
        let _ = topic;
        false
    }

    /// Whether the host decides about packets on their way: only then [`Host::fate`] is asked.
    #[inline]
    fn decides(&self) -> bool {
        true
    }

    /// What is to happen to a packet on its way. Asked only if the host listens to packets: of a packet that
    /// is in the sink, and of an ACK when the message that it acknowledges has been executed.
    fn fate(&mut self, qp: &QpContext, departure: &Departure<'_>) -> Fate {
        let _ = (qp, departure);
        Fate::default()
    }

    /// The QP stands still before the packet to which the host gave a fate with `halted`: all before it is
    /// acknowledged. It goes on with [`QueuePair::go_on`](crate::qp::QueuePair::go_on).
    #[cold]
    fn halted(&mut self, qp: &QpContext) {
        let _ = qp;
    }

    /// Something happened to this QP. The host counts what [`QpEvent::counter`] says, whether it listens or
    /// not.
    fn emit(&mut self, qp: &QpContext, event: QpEvent<'_>);

    /// As [`Host::emit`], of an event to whose topic the host listens and for which it counts nothing.
    #[inline]
    fn tell(&mut self, qp: &QpContext, event: &QpEvent<'_>) {
        debug_assert!(event.counter().is_none(), "{event} is counted");
        self.emit(qp, *event);
    }

    /// Why something just went wrong, for the operator's log.
    #[cold]
    fn log(&mut self, qp: &QpContext, cause: Cause) {
        self.emit(qp, QpEvent::Logged(&cause));
    }
}

/// Where a queue pair puts the packets it sends.
pub trait Transmit {
    /// Room for one packet of `length_bytes` (BTH … pad and 4 bytes of ICRC) on `path`; the caller
    /// writes everything but the ICRC and then calls [`Transmit::seal`]. `None`: no more now; ask
    /// again later. The bytes handed out have arbitrary contents. The path is one that the sink may keep, so
    /// that it knows the path of the next packet without reading it.
    fn begin(&mut self, path: &Arc<Path>, destination: Qpn, length_bytes: usize) -> Option<&mut [u8]>;

    /// The packet begun last is complete: compute its ICRC and queue it.
    fn seal(&mut self);

    /// The packet begun last is not to be sent after all.
    fn abandon(&mut self);

    /// This happens to the packet sealed last. A sink whose host decides no fates ignores it.
    fn harm(&mut self, fate: Fate) {
        let _ = fate;
    }
}

/// Which element of a list could not be used, and why.
#[cold]
pub(crate) fn fault_of<H: Host>(
    pd: u32,
    sges: &[Sge],
    error: MemoryError,
    stores: bool,
    host: &mut H,
) -> MemoryFault {
    host.find_fault(pd, sges, stores).unwrap_or(MemoryFault::of_error(error, stores))
}
