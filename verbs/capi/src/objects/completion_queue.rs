//! Completion queues.

use std::ffi::{c_int, c_void};
use std::sync::{Arc, OnceLock};

use pumice_device::check::CqMade;
use pumice_device::hca::{CqSetup, Hca};
use pumice_device::objects::completion_queue::CompletionQueue;
use pumice_device::outside::lineage::Generation;
use pumice_transport::types::WorkCompletion;

use super::command_file::Owned;
use super::completion_channel::Channel;
use super::context::Context;
use super::events::EventSource;
use super::queue_memory;
use super::usage::Use;
use super::waits;
use crate::ground::abi::{efadv_cq, ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_ex};
use crate::ground::arguments::In;
use crate::ground::check;
use crate::ground::errno::Errno;
use crate::ground::handles::{
    Held, Identity, Listed, OfProcess, Room, Shown, hand_out_shared, live_or_none, show, shown,
};
use crate::ground::turn::Turn;
use crate::ground::wall_clock::WallClock;
use crate::ground::zeroed::zeroed;

/// A completion queue; all have room for the extended structure.
#[repr(C)]
pub(crate) struct Cq {
    c: Shown<ibv_cq_ex>,
    generation: Generation,
    queue: Arc<CompletionQueue>,
    hca: Arc<Hca>,
    events: Arc<EventSource>,
    stamps: bool,
    /// Of the thread that is between start_poll and end_poll.
    turn: Turn<Polled>,
    /// What `efadv_cq_from_ibv_cq_ex` gives.
    efa: OnceLock<Box<EfaCq>>,
    /// Of the parent domain that it was made in.
    _domain_use: Option<Use>,
}

/// What programs of EFA read completions by, beside `ibv_cq_ex`.
#[repr(C)]
pub(crate) struct EfaCq {
    c: efadv_cq,
    /// The queue that it is of.
    cq: *mut ibv_cq,
}

// SAFETY: nothing in it changes once it is made, and its pointers are followed by calls only.
unsafe impl Send for EfaCq {}
// SAFETY: as above.
unsafe impl Sync for EfaCq {}

impl EfaCq {
    /// The queue of what a program got.
    pub(crate) fn queue_of(efa: In<'_, efadv_cq>) -> Option<*mut ibv_cq> {
        let c: *const efadv_cq = efa.optional()?;
        // SAFETY: the program passes on what `Cq::efa` gave it, which is the first field of an `EfaCq`.
        Some(unsafe { (*c.cast::<EfaCq>()).cq })
    }
}

/// The completion that the extended calls read.
pub(crate) struct Polled {
    pub(crate) completion: WorkCompletion,
    /// When it was made, in ns of the device's clock, if the queue stamps.
    pub(crate) at_ns: u64,
    /// The same on the system's clock, if the program wants to read that.
    pub(crate) wall_ns: u64,
    pub(crate) wall_clock: Option<WallClock>,
}

// SAFETY: the first field begins with the C structure.
unsafe impl Held for Cq {
    type C = ibv_cq;
}

impl Listed for Cq {
    const KIND: &'static str = "completion queue";

    fn identity(c: &ibv_cq) -> Identity {
        Identity::new(c.context, c.handle)
    }
}

/// Everything that makes a completion queue.
pub(crate) struct Wanted {
    pub(crate) cqe: u32,
    pub(crate) cq_context: *mut c_void,
    pub(crate) channel: *mut ibv_comp_channel,
    pub(crate) comp_vector: u32,
    /// Whether completions are stamped.
    pub(crate) stamps: bool,
    /// Whether the program reads the stamps on the system's clock.
    pub(crate) wall_clock: bool,
    /// Whether the oldest completion of a full queue is overwritten: else the queue fails.
    pub(crate) overwrites: bool,
    pub(crate) domain_use: Option<Use>,
    /// Sets the operations of an extended one.
    pub(crate) set_operations: fn(&mut ibv_cq_ex),
}

impl OfProcess for Cq {
    #[inline]
    fn generation(&self) -> Generation {
        self.generation
    }
}

impl Cq {
    /// Makes a completion queue: the program's pointer.
    ///
    /// # Errors
    /// Those of the context, of the channel, and of the HCA.
    pub(crate) fn create(context: *mut ibv_context, wanted: Wanted) -> Result<*mut ibv_cq, Errno> {
        let Wanted { cqe, cq_context, channel, comp_vector, stamps, wall_clock, .. } = wanted;
        let Wanted { overwrites, domain_use, set_operations, .. } = wanted;
        let (open, reports) = (Context::of(context)?, live_or_none::<Channel>(channel)?);
        queue_memory::check(&open, queue_memory::OF_COMPLETION_QUEUES)?;
        if let Some(reports) = &reports {
            open.check_same("completion channel", &*reports.context()?)?;
        }
        let (hca, room) = (open.hca(), Room::<Cq>::new());
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
        open.own_cq(Owned::CompletionQueue(queue.handle().pack()), Some(Arc::clone(&queue)));
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
        // One that ignores overruns is as large as the program wants it to be.
        let depth = if overwrites { u32::MAX } else { queue.depth() };
        let (handle, known) = (queue.handle().index, Arc::clone(&queue));
        let pointer = hand_out_shared(&room.fill(Cq {
            c: Shown::new(c),
            generation: Generation::own(),
            queue,
            hca: Arc::clone(hca),
            events,
            stamps,
            turn: Turn::new(polled),
            efa: OnceLock::new(),
            _domain_use: domain_use,
        }));
        waits::cq_made(open.device().index(), pointer.addr(), channel.addr(), &known);
        let (address, channel) = (pointer.addr() as u64, channel.addr() as u64);
        check::tell_of(pointer.addr(), |checker| {
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

    /// What its asynchronous events are about.
    pub(crate) fn events(&self) -> &EventSource {
        &self.events
    }

    /// Whether completions are stamped.
    pub(crate) const fn stamps(&self) -> bool {
        self.stamps
    }

    /// Of the thread that polls by the extended calls.
    #[inline]
    pub(crate) const fn turn(&self) -> &Turn<Polled> {
        &self.turn
    }

    /// What programs of EFA read completions by; `make` makes it at the first call. `cq`: what the program
    /// calls this queue.
    pub(crate) fn efa(&self, cq: *mut ibv_cq, make: impl FnOnce() -> efadv_cq) -> *mut efadv_cq {
        let efa = self.efa.get_or_init(|| Box::new(EfaCq { c: make(), cq }));
        std::ptr::from_ref(&**efa).cast_mut().cast()
    }

    /// The program's pointer to its context.
    #[inline]
    pub(crate) fn context_pointer(&self) -> *mut ibv_context {
        shown!(self.c, base.context)
    }

    /// Its context.
    pub(crate) fn context(&self) -> Result<Arc<Context>, Errno> {
        Context::of(self.context_pointer())
    }

    /// What the program named it by.
    pub(crate) fn cq_context(&self) -> *mut c_void {
        shown!(self.c, base.cq_context)
    }

    /// Shows how many completions it has room for.
    pub(crate) fn show_depth(&self) {
        show!(self.c, base.cqe = self.queue.depth() as c_int);
    }

    /// Shows what programs read of a completion without a call.
    #[inline]
    pub(crate) fn show_completion(&self, completion: &WorkCompletion) {
        show!(self.c, status = completion.status as u32);
        show!(self.c, wr_id = completion.wr_id);
    }

    /// Whether the structure still has the handle that it was made with: adapters arm by it.
    ///
    /// # Errors
    /// ENOENT: it has another one.
    pub(crate) fn check_handle(&self) -> Result<(), Errno> {
        let handle = shown!(self.c, base.handle);
        if handle == self.queue.handle().index {
            return Ok(());
        }
        Err(Errno(libc::ENOENT).because(|| format!("there is no completion queue with handle {handle:#x}")))
    }
}
