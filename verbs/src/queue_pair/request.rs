//! Send requests, typed by transport, and memory windows.

use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use pumice_calls::Call;
use pumice_device::memory::WindowType;
use pumice_device::platform::table::Handle;
use pumice_transport::types::{
    Access, AtomicOperation, FlushRange, RemoteTarget, SendFlags, SendOpcode, SendRequest as Request,
    WindowBind,
};

use crate::buffers::{LocalSlice, RemoteSlice};
use crate::device::calls::gated_call;
use crate::error::{RequestError, Result, VerbsError};
use crate::objects::ProtectionDomain;
use crate::objects::address::UdAddress;
use crate::objects::memory::MemoryRegion;
use crate::transport::{Rc, Reliable, Requester, Transport, Ud, XrcRequester};

/// A memory window. Cheap to clone; freed, and thereby unbound, with its last clone. The memory of a region
/// that is dropped while windows are bound to it is freed after them.
#[derive(Debug, Clone)]
pub struct MemoryWindow(Arc<WindowInner>);

#[derive(Debug)]
struct WindowInner {
    domain: ProtectionDomain,
    handle: Handle,
    window: WindowType,
    rkey: AtomicU32,
}

impl ProtectionDomain {
    /// Creates a memory window. Type 1 opens memory to all queue pairs of the domain, type 2 to the one that
    /// binds it, until it is invalidated.
    ///
    /// # Errors
    /// `Refused`: the table is full.
    pub fn memory_window(&self, window: WindowType) -> Result<MemoryWindow> {
        let keys = gated_call(self.device(), Call::ibv_alloc_mw, || {
            let keys = self.device().hca().alloc_mw(self.handle(), window);
            keys.map_err(VerbsError::refused("memory window"))
        })?;
        let rkey = AtomicU32::new(keys.rkey);
        Ok(MemoryWindow(Arc::new(WindowInner { domain: self.clone(), handle: keys.handle, window, rkey })))
    }
}

impl MemoryWindow {
    /// Returns a request that opens a range of a region (by byte offsets; the region needs `MW_BIND`) with
    /// these rights, and the slice by which peers name it once the request has completed. Post it to a queue
    /// pair of the domain; each call takes a new key, so post requests in the order in which they were
    /// created.
    ///
    /// # Errors
    /// `Invalid`: the range leaves the region.
    pub fn bind<T: Requester>(
        &self,
        region: &MemoryRegion,
        range: impl RangeBounds<usize>,
        access: Access,
    ) -> Result<(SendRequest<'static, T>, RemoteSlice)> {
        let local = region.slice(range)?;
        let next = |rkey: u32| rkey & !0xff | rkey.wrapping_add(1) & 0xff;
        let update = self.0.rkey.fetch_update(Ordering::AcqRel, Ordering::Acquire, |rkey| Some(next(rkey)));
        let window_rkey = update.unwrap_or_else(|rkey| rkey);
        let rkey = next(window_rkey);
        let bind = WindowBind {
            window_rkey,
            new_rkey: rkey,
            region_lkey: local.lkey,
            address: local.address,
            length: u64::from(local.length),
            access,
        };
        let address = if access.contains(Access::ZERO_BASED) { 0 } else { local.address };
        Ok((SendRequest::bind_window(bind), RemoteSlice { address, rkey, length: local.length }))
    }

    /// Returns the type, 1 or 2.
    pub fn window_type(&self) -> WindowType {
        self.0.window
    }

    /// Returns the key of the last binding request, which invalidates a type-2 window.
    pub fn rkey(&self) -> u32 {
        self.0.rkey.load(Ordering::Acquire)
    }
}

impl Drop for WindowInner {
    fn drop(&mut self) {
        let device = self.domain.device();
        let _ = device.hca().dealloc_mw(self.handle);
        device.free_orphans();
    }
}

/// A request for the send queue of a `T` queue pair. Borrows its list of slices and its inline data until it
/// is posted; the memory itself is used until the request completes.
///
/// A request makes no completion on success unless it is [`SendRequest::signaled`] or the queue pair was
/// built with `signal_all`. A queue whose requests are never signaled fills up.
#[derive(Debug, Clone)]
#[must_use = "a request does nothing until it is posted"]
pub struct SendRequest<'a, T> {
    pub(super) request: Request<'a>,
    /// Length of the remote slice in bytes; without one, anything fits.
    remote_bytes: u64,
    problem: Option<RequestError>,
    transport: PhantomData<T>,
}

impl<'a, T: Transport> SendRequest<'a, T> {
    pub(super) fn new(opcode: SendOpcode, sges: &'a [LocalSlice]) -> SendRequest<'a, T> {
        let request = Request { flags: SendFlags::empty(), sges, ..Request::new(0, opcode) };
        SendRequest { request, remote_bytes: u64::MAX, problem: None, transport: PhantomData }
    }

    /// Sets the id by which the completion names this request.
    pub fn wr_id(mut self, wr_id: u64) -> Self {
        self.request.wr_id = wr_id;
        self
    }

    /// Makes a completion on success too (failures always make one).
    pub fn signaled(mut self) -> Self {
        self.request.flags |= SendFlags::SIGNALED;
        self
    }

    /// Wakes a peer that armed its completion queue for solicited events.
    pub fn solicited(mut self) -> Self {
        self.request.flags |= SendFlags::SOLICITED;
        self
    }

    /// Waits for all earlier READs and atomics of the queue pair.
    pub fn fence(mut self) -> Self {
        self.request.flags |= SendFlags::FENCE;
        self
    }

    /// Sends these bytes instead of local slices; they are copied when the request is posted. At most
    /// `inline_bytes` of the queue pair. For SEND, RDMA WRITE and ATOMIC WRITE.
    pub fn inline(mut self, data: &'a [u8]) -> Self {
        self.request.flags |= SendFlags::INLINE;
        self.request.inline_data = data;
        self.request.sges = &[];
        self
    }

    /// Adds immediate data to a SEND or RDMA WRITE: four bytes that arrive unchanged in the peer's
    /// completion. A WRITE with immediate consumes a receive at the peer.
    pub fn imm(mut self, data: [u8; 4]) -> Self {
        self.request.imm_data = data;
        match self.request.opcode {
            SendOpcode::Send => self.request.opcode = SendOpcode::SendWithImm,
            SendOpcode::RdmaWrite => self.request.opcode = SendOpcode::RdmaWriteWithImm,
            SendOpcode::SendWithImm | SendOpcode::RdmaWriteWithImm => {}
            opcode => self.problem = Some(RequestError::NoImmediate { opcode }),
        }
        self
    }

    /// Returns the request as the device takes it.
    ///
    /// # Errors
    /// `Request`: the request contradicts itself.
    #[inline]
    pub fn as_raw(&self) -> Result<&Request<'a>> {
        if let Some(problem) = self.problem {
            return Err(VerbsError::Request(problem));
        }
        let local_bytes = if self.request.flags.contains(SendFlags::INLINE) {
            self.request.inline_data.len() as u64
        } else {
            self.request.sges.iter().map(|sge| u64::from(sge.length)).sum()
        };
        if local_bytes > self.remote_bytes {
            let remote_bytes = self.remote_bytes;
            return Err(VerbsError::Request(RequestError::RemoteTooShort { local_bytes, remote_bytes }));
        }
        Ok(&self.request)
    }

    pub(super) fn remote(mut self, remote: RemoteSlice) -> Self {
        self.request.remote = RemoteTarget { address: remote.address, rkey: remote.rkey };
        self.remote_bytes = u64::from(remote.length);
        self
    }

    /// Creates an atomic on the 8 remote bytes.
    pub(super) fn atomic(local: &'a [LocalSlice], remote: RemoteSlice, operation: AtomicOperation) -> Self {
        let mut this = Self::new(operation.opcode(), local).remote(remote);
        this.request.atomic = Some(operation);
        this
    }
}

impl<'a, T: Requester> SendRequest<'a, T> {
    /// Creates a SEND of the slices' bytes, one after the other, to the peer's next receive.
    pub fn send(local: &'a [LocalSlice]) -> Self {
        Self::new(SendOpcode::Send, local)
    }

    /// Creates an RDMA WRITE of the slices' bytes to the start of the remote slice.
    pub fn write(local: &'a [LocalSlice], remote: RemoteSlice) -> Self {
        Self::new(SendOpcode::RdmaWrite, local).remote(remote)
    }

    /// Creates a request that invalidates the key of a type-2 memory window of this queue pair, on this side.
    pub fn local_invalidate(rkey: u32) -> Self {
        let mut this = Self::new(SendOpcode::LocalInvalidate, &[]);
        this.request.invalidate_rkey = rkey;
        this
    }

    fn bind_window(bind: WindowBind) -> Self {
        let mut this = Self::new(SendOpcode::BindWindow, &[]);
        this.request.bind = Some(bind);
        this
    }
}

impl<'a, T: Reliable> SendRequest<'a, T> {
    /// Creates an RDMA READ of as many bytes as the local slices have, from the start of the remote slice.
    pub fn read(local: &'a [LocalSlice], remote: RemoteSlice) -> Self {
        Self::new(SendOpcode::RdmaRead, local).remote(remote)
    }

    /// Creates an atomic that stores `swap` in the 8 remote bytes if they equal `compare`; the original value
    /// arrives in the local 8 bytes. Values are in host order; the remote address is a multiple of 8.
    pub fn compare_swap(local: &'a [LocalSlice], remote: RemoteSlice, compare: u64, swap: u64) -> Self {
        Self::atomic(local, remote, AtomicOperation::CompareSwap { compare, swap })
    }

    /// Creates an atomic that adds `add`, wrapping, to the 8 remote bytes; the original value arrives in the
    /// local 8 bytes. Values and address are as for [`SendRequest::compare_swap`].
    pub fn fetch_add(local: &'a [LocalSlice], remote: RemoteSlice, add: u64) -> Self {
        Self::atomic(local, remote, AtomicOperation::FetchAdd { add })
    }

    /// Creates a SEND that also invalidates a key at the peer: a type-2 memory window of the peer's queue
    /// pair.
    pub fn send_with_invalidate(local: &'a [LocalSlice], rkey: u32) -> Self {
        let mut this = Self::new(SendOpcode::SendWithInvalidate, local);
        this.request.invalidate_rkey = rkey;
        this
    }
}

/// The condition that a FLUSH waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// Earlier writes are visible to the peer's process.
    GlobalVisibility,
    /// Earlier writes are in the file that the memory is mapped from.
    Persistence,
}

impl<'a> SendRequest<'a, Rc> {
    /// Creates a request that stores 8 local bytes (or [`SendRequest::inline`] ones) in one piece at a remote
    /// address that is a multiple of 8.
    pub fn atomic_write(local: &'a [LocalSlice], remote: RemoteSlice) -> Self {
        Self::new(SendOpcode::AtomicWrite, local).remote(remote)
    }

    /// Creates a request that completes once earlier writes to the remote slice are placed. The remote region
    /// needs the right `FLUSH_GLOBAL` or `FLUSH_PERSISTENT`.
    pub fn flush(remote: RemoteSlice, placement: Placement) -> Self {
        let mut this = Self::new(SendOpcode::Flush, &[]).remote(remote);
        let placement = match placement {
            Placement::GlobalVisibility => 1,
            Placement::Persistence => 2,
        };
        this.request.flush = Some(FlushRange { placement, selectivity: 0, length: remote.length });
        this
    }
}

impl<T: XrcRequester> SendRequest<'_, T> {
    /// Sets the remote shared receive queue, by its number: for everything that consumes a receive or names
    /// remote memory (which must belong to that queue's protection domain).
    pub fn remote_srq(mut self, number: u32) -> Self {
        self.request.xrc_srqn = number;
        self
    }
}

impl<'a> SendRequest<'a, Ud> {
    /// Creates a datagram of the slices' bytes to a queue pair or multicast group; at most the path MTU. The
    /// receiver finds it 40 bytes into its buffer.
    pub fn send_to(to: &UdAddress, local: &'a [LocalSlice]) -> Self {
        let mut this = Self::new(SendOpcode::Send, local);
        this.request.ud = Some(to.destination());
        this
    }
}

/// A list of requests that are posted together, in one call to the device. Posting allocates nothing; a list
/// that is posted repeatedly costs its allocation once.
#[derive(Debug, Clone)]
pub struct SendList<'a, T> {
    requests: Vec<Request<'a>>,
    transport: PhantomData<T>,
}

impl<'a, T: Transport> SendList<'a, T> {
    /// Returns an empty list.
    pub const fn new() -> SendList<'a, T> {
        SendList { requests: Vec::new(), transport: PhantomData }
    }

    /// Returns an empty list with room for `count` requests.
    pub fn with_capacity(count: usize) -> SendList<'a, T> {
        SendList { requests: Vec::with_capacity(count), transport: PhantomData }
    }

    /// Returns a list of these requests, in order.
    ///
    /// # Errors
    /// The errors of [`SendList::push`].
    pub fn of(requests: impl IntoIterator<Item = SendRequest<'a, T>>) -> Result<SendList<'a, T>> {
        let requests = requests.into_iter();
        let mut list = SendList::with_capacity(requests.size_hint().0);
        for request in requests {
            list.push(request)?;
        }
        Ok(list)
    }

    /// Adds a request at the end.
    ///
    /// # Errors
    /// `Request`: the request contradicts itself; the list is unchanged.
    pub fn push(&mut self, request: SendRequest<'a, T>) -> Result<()> {
        request.as_raw()?;
        self.requests.push(request.request);
        Ok(())
    }

    /// Empties the list; its capacity stays.
    pub fn clear(&mut self) {
        self.requests.clear();
    }

    /// Returns the number of requests.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Reports whether the list has no requests.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Returns the requests as the device takes them.
    pub fn as_raw(&self) -> &[Request<'a>] {
        &self.requests
    }

    /// Returns the requests as the device takes them, to change ids, flags and addresses between two posts.
    /// The device checks them again at every post.
    pub fn as_raw_mut(&mut self) -> &mut [Request<'a>] {
        &mut self.requests
    }
}

impl<T: Transport> Default for SendList<'_, T> {
    fn default() -> Self {
        SendList::new()
    }
}
