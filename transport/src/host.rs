//! The interface that the protocol needs from the device around it.
//!
//! The device implements [`Host`] and passes it to every call, so the protocol owns no memory, no
//! completion queue and no receive queue; a unit test passes a fake over a `Vec<u8>`.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

use crate::event::{OutgoingPacket, QpEvent, Topic};
use crate::path::Path;
use crate::types::{
    Access, AsyncEventType, AtomicOperation, Cause, Fate, KeyConfiguration, MemoryFault, QpType, Sge,
    WcFlags, WcOpcode, WcStatus, WindowBind, WorkCompletion,
};
use crate::wire::Qpn;

pub use crate::types::{Counter, MemoryError};

/// Numbers of the device's objects that a queue pair is attached to. The protocol hands them back without
/// interpreting them.
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
    /// Number of queue pairs that the device made before this one: unlike the queue pair number, the same in
    /// every run of the program.
    pub ordinal: u32,
    /// True if it places data out of order, and its messages take receives in any order
    /// (`MLX5DV_QP_CREATE_OOO_DP`).
    pub out_of_order: bool,
}

/// A receive request taken from its queue; the protocol owns it until the message ends. Each queue pair
/// reuses one and lets the host refill it, so no allocation happens per message.
#[derive(Debug, Clone, Default)]
pub struct RecvWqe {
    /// Identifier that the program gave the request.
    pub wr_id: u64,
    /// Protection domain of the buffers (that of the SRQ, if the request came from one).
    pub pd: u32,
    /// Completion queue of the request's completion.
    pub cq: u32,
    /// Local buffers.
    pub sges: Vec<Sge>,
    /// Sum of the buffers' lengths in bytes.
    pub length_bytes: u64,
    /// True if the queue matches tags: [`Host::match_tag`] then decides about the buffers.
    pub matches_tags: bool,
    /// The outcome of matching.
    pub tagged: Tagged,
}

/// The outcome of matching the tag of a message: the facts for its completion, and the part that is stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tagged {
    /// Number of bytes at the beginning of the message that are not stored.
    pub header_bytes: u32,
    /// Status of the completion.
    pub status: WcStatus,
    /// Flags of the completion.
    pub flags: WcFlags,
    /// The tag, and the number that the sender gave beside it; `None` for a message without a tag.
    pub tag: Option<(u64, u32)>,
}

/// The first packet of a SEND to a queue that matches tags.
#[derive(Debug, Clone, Copy)]
pub struct TaggedStart<'a> {
    /// Payload of the packet; empty if the message is no SEND.
    pub payload: &'a [u8],
    /// True if the message has only this packet.
    pub is_whole: bool,
}

/// Reason why no receive request is available.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoRecv {
    /// No receive request is posted.
    Empty,
    /// The XRC SRQ number is unknown or of another domain.
    NoSuchSrq,
}

/// A remote key that a peer used, and the domain that the key must belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteKey {
    /// R_Key.
    pub rkey: u32,
    /// Protection domain of the responding queue pair (XRC: of the SRQ named in the packet).
    pub pd: u32,
    /// Number of the responding queue pair: a type-2 window is bound to one.
    pub qpn: Qpn,
}

/// A work request that has been carried out and is about to complete with success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Ordinal of the queue pair's connection: the number of resets before it.
    pub connection: u32,
    /// Transport service of the queue pair.
    pub qp_type: QpType,
    /// Operation that its completion names.
    pub opcode: WcOpcode,
    /// Number of bytes that it moved.
    pub length_bytes: u32,
    /// True if success makes a completion.
    pub reports: bool,
    /// Requests of its work queue that ended before it on this connection.
    pub before: u64,
}

/// State of the peer's process, asked for when a queue pair is about to give the peer up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PeerProgress {
    /// The peer has read what was sent to it, or is stopped or dead, or its state is not known: for example
    /// because it is on another host.
    #[default]
    Unknown,
    /// The peer lives on this host, is not stopped, and has not had a processor since: it cannot have
    /// answered.
    Starved,
    /// The peer's answer may be among data that this process has not read yet.
    Unread,
    /// No process of this host has the peer's number: the peer has ended, or never existed.
    Absent,
}

/// Contents of an Ethernet frame that a raw packet queue pair sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameData<'a> {
    /// The bytes themselves.
    Inline(&'a [u8]),
    /// Local buffers that contain the bytes.
    Buffers(&'a [Sge]),
}

/// Reason why a frame cannot be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameError {
    /// The frame is shorter than an Ethernet header, or longer than the interface carries.
    Length,
    /// The buffers cannot be read.
    Memory(MemoryError),
}

/// The kinds of operations that completion counters distinguish. The numbers are those of the bits of
/// `IBV_QP_ATTACH_COMP_CNTR_OP_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum CountedOperation {
    /// Any SEND.
    Send = 0,
    /// A receive request.
    Receive = 1,
    /// RDMA READ.
    Read = 2,
    /// A peer's RDMA READ.
    RemoteRead = 3,
    /// RDMA WRITE, with or without immediate.
    Write = 4,
    /// A peer's RDMA WRITE.
    RemoteWrite = 5,
}

impl CountedOperation {
    /// Returns the kind of a request with this completion; `None` for atomics, binds and the like.
    pub const fn of(completion: WcOpcode) -> Option<CountedOperation> {
        match completion {
            WcOpcode::Send => Some(CountedOperation::Send),
            WcOpcode::Recv | WcOpcode::RecvRdmaWithImm => Some(CountedOperation::Receive),
            WcOpcode::RdmaRead => Some(CountedOperation::Read),
            WcOpcode::RdmaWrite => Some(CountedOperation::Write),
            _ => None,
        }
    }

    /// Returns the bit of the kind in a mask.
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// The device, as a queue pair uses it.
pub trait Host {
    /// Copies bytes `offset..offset + out.len()` of the list of local buffers into `out`.
    ///
    /// # Errors
    /// Fails if a key is wrong or of another domain, or if the range leaves its region.
    fn gather(&mut self, pd: u32, sges: &[Sge], offset: u64, out: &mut [u8]) -> Result<(), MemoryError>;

    /// Copies `data` to bytes `offset..offset + data.len()` of the list of local buffers; the
    /// regions need `LOCAL_WRITE`. With empty `data` nothing is checked.
    ///
    /// # Errors
    /// Fails as [`Host::gather`], and if a region is read-only.
    fn scatter(&mut self, pd: u32, sges: &[Sge], offset: u64, data: &[u8]) -> Result<(), MemoryError>;

    /// Finds the buffer that cannot be used, and the reason; called for the operator's message after
    /// [`Host::gather`] or [`Host::scatter`] (with `stores`) has failed.
    fn find_fault(&mut self, pd: u32, sges: &[Sge], stores: bool) -> Option<MemoryFault> {
        let _ = (pd, sges, stores);
        None
    }

    /// Checks a whole remote range before its first byte is accessed. The caller skips this for length 0.
    ///
    /// # Errors
    /// Fails if the key, its domain or the range is wrong, or if a right in `access` is missing.
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
    /// Fails as [`Host::check_remote`] with `REMOTE_WRITE`.
    fn remote_write(&mut self, key: RemoteKey, address: u64, data: &[u8]) -> Result<(), MemoryError>;

    /// Loads `out.len()` bytes from a remote address.
    ///
    /// # Errors
    /// Fails as [`Host::check_remote`] with `REMOTE_READ`.
    fn remote_read(&mut self, key: RemoteKey, address: u64, out: &mut [u8]) -> Result<(), MemoryError>;

    /// Executes an atomic operation on 8 aligned bytes and returns the original value, in host order.
    ///
    /// # Errors
    /// Fails as [`Host::check_remote`] with [`AtomicOperation::access`], and if the address is misaligned.
    fn remote_atomic(
        &mut self,
        key: RemoteKey,
        address: u64,
        operation: AtomicOperation,
    ) -> Result<u64, MemoryError>;

    /// Executes a FLUSH: checks the key for `access` and, when `range` is given, the range; then makes
    /// earlier writes visible (and persistent, where the memory can be).
    ///
    /// # Errors
    /// Fails as [`Host::check_remote`].
    fn remote_flush(
        &mut self,
        key: RemoteKey,
        range: Option<(u64, u64)>,
        access: Access,
    ) -> Result<(), MemoryError>;

    /// Invalidates a key (LOCAL_INV).
    ///
    /// # Errors
    /// Fails if the key does not name an object of this domain that can be invalidated.
    fn invalidate(&mut self, key: RemoteKey) -> Result<(), MemoryError>;

    /// Invalidates a key because the peer asks for it (SEND with invalidate).
    ///
    /// # Errors
    /// Fails as [`Host::invalidate`], and if only the owner may invalidate the key.
    fn invalidate_for_peer(&mut self, key: RemoteKey) -> Result<(), MemoryError> {
        self.invalidate(key)
    }

    /// Configures an indirect memory key of the queue pair's domain. The default is for a host without such
    /// keys.
    ///
    /// # Errors
    /// Fails if the key does not exist or is of another domain, or if the configuration has more entries than
    /// the key was made for.
    #[cold]
    fn configure_key(&mut self, qp: &QpContext, to: &KeyConfiguration) -> Result<(), MemoryError> {
        let _ = (qp, to);
        Err(MemoryError::UnknownKey)
    }

    /// Binds a memory window (BIND_MW).
    ///
    /// # Errors
    /// Fails if the window or the region is wrong or in the wrong state.
    fn bind_window(&mut self, qp: &QpContext, bind: &WindowBind) -> Result<(), MemoryError>;

    /// Reports that a configuration of a key of the domain was posted: requests posted after it have the
    /// lengths that result from it.
    #[cold]
    fn key_posted(&mut self, pd: u32, to: &KeyConfiguration) {
        let _ = (pd, to);
    }

    /// Returns the number of bytes that the data of these local buffers has on the wire when all that was
    /// posted has been executed; `None` stands for the sum of their lengths.
    #[inline]
    fn wire_bytes(&mut self, sges: &[Sge]) -> Option<u64> {
        let _ = sges;
        None
    }

    /// Reports whether data of these local buffers, whose keys have signatures, was found not to fit them
    /// while the program has not been notified yet. Called for queue pairs that stop in that case.
    #[cold]
    fn has_bad_signature(&mut self, sges: &[Sge]) -> bool {
        let _ = sges;
        false
    }

    /// Sends an Ethernet frame of `length_bytes` bytes. A frame that the network has no room for is lost, as
    /// it may be anywhere on its way. A host without Ethernet makes no raw packet queue pairs.
    ///
    /// # Errors
    /// Fails if this cannot be a frame here, or cannot be read.
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

    /// Takes the next receive request for this queue pair into `into`: from its RQ, its SRQ, or the XRC SRQ
    /// that the packet names.
    ///
    /// # Errors
    /// Fails if no receive request is posted, or if there is no such SRQ.
    fn take_recv(&mut self, qp: &QpContext, xrc_srqn: Option<u32>, into: &mut RecvWqe) -> Result<(), NoRecv>;

    /// Decides which buffers a message gets whose queue matches tags, and puts them into `into`; called if
    /// [`Host::take_recv`] has said so. The default is for a host without such queues.
    ///
    /// # Errors
    /// Fails if no buffer has the tag, and no receive request is posted.
    #[cold]
    fn match_tag(
        &mut self,
        qp: &QpContext,
        start: TaggedStart<'_>,
        into: &mut RecvWqe,
    ) -> Result<(), NoRecv> {
        let _ = (qp, start, into);
        Err(NoRecv::Empty)
    }

    /// Returns the protection domain of the XRC SRQ that a packet names: the domain its R_Keys must belong
    /// to.
    ///
    /// # Errors
    /// Fails if there is no such SRQ in the queue pair's XRC domain.
    fn srq_protection_domain(&mut self, qp: &QpContext, xrc_srqn: u32) -> Result<u32, NoRecv>;

    /// Returns the number of an address handle of the domain that leads to an address, if there is one.
    #[cold]
    fn address_handle(&mut self, pd: u32, peer: IpAddr) -> Option<u16> {
        let _ = (pd, peer);
        None
    }

    /// Flushes all receive requests in the queue pair's own RQ with `WR_FLUSH_ERR` (an SRQ's stay).
    fn flush_recv_queue(&mut self, qp: &QpContext);

    /// Completes a send request. `released` is the number of send queue entries that this completion frees
    /// when it is polled (its own and those of the unsignaled requests before it).
    fn complete_send(&mut self, qp: &QpContext, completion: WorkCompletion, released: u32);

    /// Completes a receive request, on completion queue `cq` (from [`RecvWqe::cq`]). `solicited` is the
    /// solicited-event bit of its last packet.
    fn complete_recv(&mut self, qp: &QpContext, cq: u32, completion: WorkCompletion, solicited: bool);

    /// Reports whether the host wants [`Host::judge`] to be called before a work request completes.
    #[inline]
    fn judges(&self) -> bool {
        false
    }

    /// Returns the status that a work request ends with instead of success, if any; called for each one that
    /// is about to succeed, in their order on its work queue. The queue pair then fails as by a fault of that
    /// request.
    fn judge(&mut self, qp: &QpContext, ended: &Ended) -> Option<WcStatus> {
        let _ = (qp, ended);
        None
    }

    /// Reports whether the host counts requests that end ([`Host::ended`]).
    #[inline]
    fn counts(&self) -> bool {
        false
    }

    /// Called for a host that counts when a send request ends, and when a peer has read or written here;
    /// before the completion, if there is one. Receive requests are counted by their completions.
    fn ended(&mut self, qp: &QpContext, operation: CountedOperation, succeeded: bool) {
        let _ = (qp, operation, succeeded);
    }

    /// Raises an asynchronous event of this queue pair.
    fn event(&mut self, qp: &QpContext, event: AsyncEventType);

    /// Reports whether the host has a subscriber to this topic: asked before a frequent event is put
    /// together.
    #[inline]
    fn listens(&self, topic: Topic) -> bool {
        let _ = topic;
        false
    }

    /// Reports whether the host decides the fates of packets: [`Host::fate`] is called only then.
    #[inline]
    fn decides(&self) -> bool {
        true
    }

    /// Decides the fate of a packet. Called only if the host subscribes to packets: for a packet that is in
    /// the sink, and for an ACK when the message that it acknowledges has been executed.
    fn fate(&mut self, qp: &QpContext, departure: &OutgoingPacket<'_>) -> Fate {
        let _ = (qp, departure);
        Fate::default()
    }

    /// Reports that the queue pair has stopped before the packet to which the host gave a fate with `halted`:
    /// all packets before it are acknowledged. [`QueuePair::go_on`](crate::qp::QueuePair::go_on) continues
    /// it.
    #[cold]
    fn halted(&mut self, qp: &QpContext) {
        let _ = qp;
    }

    /// Emits an event of this queue pair. The host adds to [`QpEvent::counter`] whether or not there is a
    /// subscriber.
    fn emit(&mut self, qp: &QpContext, event: QpEvent<'_>);

    /// Emits an event, as [`Host::emit`] does, that has a subscriber and no counter.
    #[inline]
    fn emit_uncounted(&mut self, qp: &QpContext, event: &QpEvent<'_>) {
        debug_assert!(event.counter().is_none(), "{event} is counted");
        self.emit(qp, *event);
    }

    /// Reports the cause of an error for the operator's log.
    #[cold]
    fn log(&mut self, qp: &QpContext, cause: Cause) {
        self.emit(qp, QpEvent::Logged(&cause));
    }
}

/// The sink for the packets that a queue pair sends.
pub trait Transmit {
    /// Returns room for one packet of `length_bytes` (from the BTH to the pad, and 4 bytes of ICRC) on
    /// `path`; the caller writes everything but the ICRC and then calls [`Transmit::seal`]. `None` means that
    /// there is no room now and the caller has to ask again later. The bytes handed out have arbitrary
    /// contents. The sink may store the path, so that it recognises the path of the next packet without
    /// reading it.
    fn begin(&mut self, path: &Arc<Path>, destination: Qpn, length_bytes: usize) -> Option<&mut [u8]>;

    /// Completes the packet begun last: computes its ICRC and queues it.
    fn seal(&mut self);

    /// Discards the packet begun last.
    fn abandon(&mut self);

    /// Notes that an adapter reads the payload of the packet sealed last from the program's memory, because
    /// the request does not carry it (inline data). A sink that does not tell the two apart ignores it.
    fn note_fetch(&mut self) {}

    /// Applies a fate to the packet sealed last. A sink whose host decides no fates ignores it.
    fn apply_fate(&mut self, fate: Fate) {
        let _ = fate;
    }
}

/// Reports to a host that counts how a send request ended.
#[inline]
pub(crate) fn count_ended<H: Host>(qp: &QpContext, completion: WcOpcode, status: WcStatus, host: &mut H) {
    if host.counts()
        && let Some(operation) = CountedOperation::of(completion)
    {
        host.ended(qp, operation, status == WcStatus::Success);
    }
}

/// Returns the element of a list that could not be used, and the reason.
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
