//! Completion queues, their channels, and completion counters.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use pumice_device::check::CqMade;
use pumice_device::hca::{CqSetup, Hca};
use pumice_device::objects::completion_channel::{CompletionChannel, CqEvent};
use pumice_device::objects::completion_counter::CompletionCounter;
use pumice_device::objects::completion_queue::CompletionQueue;
use pumice_device::outside;
use pumice_device::outside::fork_generation::Generation;
use pumice_transport::types::WorkCompletion;

use super::command_file::OwnedObject;
use super::domains::UseGuard;
use super::events::EventSource;
use super::{Context, mlx5, waits};
use crate::abi::plain::zeroed;
use crate::abi::{efadv_cq, ibv_comp_channel, ibv_comp_cntr, ibv_context, ibv_cq, ibv_cq_ex};
use crate::entry::arguments::In;
use crate::entry::handles::{
    CObject, DataPathObject, HandleIdentity, ObjectMemory, RegisteredObject, SharedStruct, hand_out_shared,
    live_or_none, show, shown,
};
use crate::platform::Errno;
use crate::platform::threads::{RESTART, TurnCell, attempt_ends};
use crate::platform::wall_clock::WallClock;
use crate::{check, platform};

/// A completion channel.
#[repr(C)]
pub(crate) struct CompChannel {
    c: SharedStruct<ibv_comp_channel>,
    generation: Generation,
    channel: Arc<CompletionChannel>,
}

// SAFETY: the first field is the C structure.
unsafe impl CObject for CompChannel {
    type C = ibv_comp_channel;
}

impl RegisteredObject for CompChannel {
    const KIND: &'static str = "completion channel";
    /// Its descriptor stays open, as in the kernel.
    const OUTLIVES_CONTEXT: bool = true;

    fn identity(c: &ibv_comp_channel) -> HandleIdentity {
        HandleIdentity::new(c.context, 0)
    }
}

impl DataPathObject for CompChannel {
    #[inline]
    fn generation(&self) -> Generation {
        self.generation
    }
}

impl CompChannel {
    /// Creates a channel without queues.
    ///
    /// # Errors
    /// Fails if no descriptors are available.
    pub(crate) fn new(context: *mut ibv_context) -> Result<CompChannel, Errno> {
        let channel = Arc::new(CompletionChannel::new()?);
        let c = ibv_comp_channel { context, fd: channel.as_fd().as_raw_fd(), refcnt: 0 };
        Ok(CompChannel { c: SharedStruct::new(c), generation: Generation::own(), channel })
    }

    /// Returns the descriptor that is readable when there is an event.
    pub(crate) fn descriptor(&self) -> std::ffi::c_int {
        shown!(self.c, fd)
    }

    pub(crate) const fn channel(&self) -> &Arc<CompletionChannel> {
        &self.channel
    }

    /// Returns its context.
    pub(crate) fn context(&self) -> Result<Arc<Context>, Errno> {
        Context::of(shown!(self.c, context))
    }

    /// Waits for an event for the slice of an attempt, driving the HCA meanwhile.
    ///
    /// # Errors
    /// Fails with EAGAIN if there is none and the descriptor is O_NONBLOCK, with EINTR if a signal handler
    /// ran, and with RESTART after the slice.
    pub(crate) fn next(&self) -> Result<CqEvent, Errno> {
        if let Some(event) = self.channel.try_event() {
            outside::world::waits_without_end(None);
            return Ok(event);
        }
        if platform::is_nonblocking(self.channel.as_fd()) {
            return Err(Errno(libc::EAGAIN));
        }
        let context = self.context()?;
        let ends = attempt_ends();
        let left = ends.map(|end| end.saturating_duration_since(outside::now()));
        let event = context.hca().wait_cq_event_or_signal(&self.channel, left);
        // If it returns too early, a signal handler ran: its program may want to do something else now.
        let over = ends.is_some_and(|end| end <= outside::now());
        if event.is_some() || !over {
            outside::world::waits_without_end(None);
        }
        event.ok_or(if over { RESTART } else { Errno(libc::EINTR) })
    }
}

/// Largest number of completion counters of a process.
pub(crate) const MAX_COUNTERS: u32 = 1 << 16;

/// Number of completion counters that exist in the process.
static COUNTERS: AtomicU32 = AtomicU32::new(0);
/// Number of completion counters that were created so far.
static MADE: AtomicU32 = AtomicU32::new(0);

/// A completion counter.
#[repr(C)]
pub(crate) struct CompCntr {
    c: SharedStruct<ibv_comp_cntr>,
    /// The counter, which is shared with the queue pairs that count in it.
    counter: Arc<CompletionCounter>,
}

// SAFETY: the first field is the C structure.
unsafe impl CObject for CompCntr {
    type C = ibv_comp_cntr;
}

impl RegisteredObject for CompCntr {
    const KIND: &'static str = "completion counter";

    fn identity(c: &ibv_comp_cntr) -> HandleIdentity {
        HandleIdentity::new(c.context, c.handle)
    }
}

impl CompCntr {
    /// Creates a counter.
    ///
    /// # Errors
    /// ENOMEM: the process has [`MAX_COUNTERS`] counters.
    pub(crate) fn new(context: *mut ibv_context) -> Result<CompCntr, Errno> {
        let more = |count: u32| (count < MAX_COUNTERS).then_some(count + 1);
        if COUNTERS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
            let sentence = || format!("the process has all of its {MAX_COUNTERS} completion counters");
            return Err(Errno(libc::ENOMEM).because(sentence));
        }
        let handle = MADE.fetch_add(1, Ordering::Relaxed);
        Ok(CompCntr { c: SharedStruct::new(ibv_comp_cntr { context, handle }), counter: Arc::default() })
    }

    /// Returns the context of the counter.
    pub(crate) fn context(&self) -> Result<Arc<Context>, Errno> {
        Context::of(shown!(self.c, context))
    }

    pub(crate) const fn counter(&self) -> &Arc<CompletionCounter> {
        &self.counter
    }

    /// Checks that no queue pair uses the counter.
    ///
    /// # Errors
    /// EBUSY: queue pairs count in the counter.
    pub(crate) fn check_unused(&self) -> Result<(), Errno> {
        let users = Arc::strong_count(&self.counter) - 1;
        if users == 0 {
            return Ok(());
        }
        Err(Errno(libc::EBUSY).because(|| {
            format!("queue pairs count in the completion counter ({users} times); destroy them first")
        }))
    }
}

impl Drop for CompCntr {
    fn drop(&mut self) {
        COUNTERS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A completion queue; all have room for the extended structure.
#[repr(C)]
pub(crate) struct Cq {
    c: SharedStruct<ibv_cq_ex>,
    generation: Generation,
    queue: Arc<CompletionQueue>,
    hca: Arc<Hca>,
    events: Arc<EventSource>,
    stamps: bool,
    /// Completion of the thread that is between start_poll and end_poll.
    turn: TurnCell<Polled>,
    /// Interface that `efadv_cq_from_ibv_cq_ex` returns.
    efa: OnceLock<Box<EfaCq>>,
    /// Bytes of an event of entropy values, if MRC's controller made the queue for them.
    event_bytes: OnceLock<usize>,
    /// Use of the parent domain that it was made in.
    _domain_use: Option<UseGuard>,
}

/// The interface with which programs of EFA read further fields of completions, beside `ibv_cq_ex`.
#[repr(C)]
pub(crate) struct EfaCq {
    c: efadv_cq,
    /// Completion queue that the interface belongs to.
    cq: *mut ibv_cq,
}

// SAFETY: its fields do not change once it is made, and its pointers are followed by calls only.
unsafe impl Send for EfaCq {}
// SAFETY: as for `Send`.
unsafe impl Sync for EfaCq {}

impl EfaCq {
    /// Returns the queue of an interface that a program got.
    pub(crate) fn queue_of(efa: In<'_, efadv_cq>) -> Option<*mut ibv_cq> {
        let c: *const efadv_cq = efa.optional()?;
        // SAFETY: the program passes on what `Cq::efa` gave it, which is the first field of an `EfaCq`.
        Some(unsafe { (*c.cast::<EfaCq>()).cq })
    }
}

/// The completion that the extended calls read.
pub(crate) struct Polled {
    pub(crate) completion: WorkCompletion,
    /// Time of the completion, in ns of the device's clock, if the queue records timestamps.
    pub(crate) at_ns: u64,
    /// The same time on the system's clock, if the program wants to read that.
    pub(crate) wall_ns: u64,
    pub(crate) wall_clock: Option<WallClock>,
}

// SAFETY: the first field begins with the C structure.
unsafe impl CObject for Cq {
    type C = ibv_cq;
}

impl RegisteredObject for Cq {
    const KIND: &'static str = "completion queue";

    fn identity(c: &ibv_cq) -> HandleIdentity {
        HandleIdentity::new(c.context, c.handle)
    }
}

/// Parameters of a completion queue.
pub(crate) struct CqCreateParameters {
    pub(crate) cqe: u32,
    pub(crate) cq_context: *mut c_void,
    pub(crate) channel: *mut ibv_comp_channel,
    pub(crate) comp_vector: u32,
    /// True if completions get timestamps.
    pub(crate) stamps: bool,
    /// True if the program reads the timestamps on the system's clock.
    pub(crate) wall_clock: bool,
    /// True if the oldest completion of a full queue is overwritten; otherwise the queue fails.
    pub(crate) overwrites: bool,
    pub(crate) domain_use: Option<UseGuard>,
    /// Function that sets the operations of an extended queue.
    pub(crate) set_operations: fn(&mut ibv_cq_ex),
}

impl DataPathObject for Cq {
    #[inline]
    fn generation(&self) -> Generation {
        self.generation
    }
}

impl Cq {
    /// Creates a completion queue, and returns the program's pointer.
    ///
    /// # Errors
    /// Fails with the errors of the context, of the channel, and of the HCA.
    pub(crate) fn create(
        context: *mut ibv_context,
        parameters: CqCreateParameters,
    ) -> Result<*mut ibv_cq, Errno> {
        let CqCreateParameters { cqe, cq_context, channel, comp_vector, stamps, wall_clock, .. } = parameters;
        let CqCreateParameters { overwrites, domain_use, set_operations, .. } = parameters;
        let (open, reports) = (Context::of(context)?, live_or_none::<CompChannel>(channel)?);
        mlx5::check(&open, mlx5::OF_COMPLETION_QUEUES)?;
        if let Some(reports) = &reports {
            open.check_same("completion channel", &*reports.context()?)?;
        }
        let (hca, room) = (open.hca(), ObjectMemory::<Cq>::new());
        let events = EventSource::of_object(context, room.cookie());
        let queue = hca.create_cq(CqSetup {
            depth: cqe,
            comp_vector,
            cookie: room.cookie(),
            channel: reports.map(|channel| Arc::clone(channel.channel())),
            clock: stamps.then(|| hca.clock().clone()),
            fires_late: open.device().profile().fires_late,
            overwrites,
            uncounted: false,
        })?;
        open.own_cq(OwnedObject::CompletionQueue(queue.handle().pack()), Some(Arc::clone(&queue)));
        let mut c: ibv_cq_ex = zeroed();
        c.base.context = context;
        c.base.channel = channel;
        c.base.cq_context = cq_context;
        c.base.handle = queue.handle().index;
        c.base.cqe = queue.depth() as c_int;
        set_operations(&mut c);
        let polled = Polled {
            completion: WorkCompletion::default(),
            at_ns: 0,
            wall_ns: 0,
            wall_clock: wall_clock.then(|| WallClock::new(hca.clock())),
        };
        // A queue that ignores overruns may be as large as the program wants.
        let depth = if overwrites { u32::MAX } else { queue.depth() };
        let (handle, known) = (queue.handle().index, Arc::clone(&queue));
        let pointer = hand_out_shared(&room.fill(Cq {
            c: SharedStruct::new(c),
            generation: Generation::own(),
            queue,
            hca: Arc::clone(hca),
            events,
            stamps,
            turn: TurnCell::new(polled),
            efa: OnceLock::new(),
            event_bytes: OnceLock::new(),
            _domain_use: domain_use,
        }));
        waits::cq_made(open.device().index(), pointer.addr(), channel.addr(), &known);
        let (address, channel) = (pointer.addr() as u64, channel.addr() as u64);
        check::with_checker_of(pointer.addr(), |checker| {
            checker.cq_made(&CqMade { address, handle, depth, channel });
        });
        Ok(pointer)
    }

    #[inline]
    pub(crate) const fn queue(&self) -> &Arc<CompletionQueue> {
        &self.queue
    }

    #[inline]
    pub(crate) fn hca(&self) -> &Hca {
        &self.hca
    }

    /// Makes it a queue of events of entropy values, which have this length.
    pub(crate) fn set_event_bytes(&self, bytes: usize) {
        let _ = self.event_bytes.set(bytes);
    }

    /// Returns the length of an event of entropy values; `None` if the queue has none.
    pub(crate) fn event_bytes(&self) -> Option<usize> {
        self.event_bytes.get().copied()
    }

    /// Returns the source of its asynchronous events.
    pub(crate) fn events(&self) -> &EventSource {
        &self.events
    }

    /// Reports whether completions have timestamps.
    pub(crate) const fn stamps(&self) -> bool {
        self.stamps
    }

    /// Returns the completion of the thread that polls with the extended calls.
    #[inline]
    pub(crate) const fn turn(&self) -> &TurnCell<Polled> {
        &self.turn
    }

    /// Returns the interface with which programs of EFA read completions; `make` makes it at the first call.
    /// `cq` is the program's pointer to this queue.
    pub(crate) fn efa(&self, cq: *mut ibv_cq, make: impl FnOnce() -> efadv_cq) -> *mut efadv_cq {
        let efa = self.efa.get_or_init(|| Box::new(EfaCq { c: make(), cq }));
        std::ptr::from_ref(&**efa).cast_mut().cast()
    }

    /// Returns the program's pointer to its context.
    #[inline]
    pub(crate) fn context_pointer(&self) -> *mut ibv_context {
        shown!(self.c, base.context)
    }

    /// Returns its context.
    pub(crate) fn context(&self) -> Result<Arc<Context>, Errno> {
        Context::of(self.context_pointer())
    }

    /// Returns the value by which the program named it.
    pub(crate) fn cq_context(&self) -> *mut c_void {
        shown!(self.c, base.cq_context)
    }

    /// Writes the number of completions that it has room for into its structure.
    pub(crate) fn show_depth(&self) {
        show!(self.c, base.cqe = self.queue.depth() as c_int);
    }

    /// Writes the fields of a completion that programs read without a call into its structure.
    #[inline]
    pub(crate) fn show_completion(&self, completion: &WorkCompletion) {
        show!(self.c, status = completion.status as u32);
        show!(self.c, wr_id = completion.wr_id);
    }

    /// Checks that the structure still has the handle that it was made with: adapters use it to arm the
    /// queue.
    ///
    /// # Errors
    /// Fails with ENOENT if it has another one.
    pub(crate) fn check_handle(&self) -> Result<(), Errno> {
        let handle = shown!(self.c, base.handle);
        if handle == self.queue.handle().index {
            return Ok(());
        }
        Err(Errno(libc::ENOENT).because(|| format!("there is no completion queue with handle {handle:#x}")))
    }
}
