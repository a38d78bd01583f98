//! Completion queues: create, destroy, resize, arm, poll.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pumice_device::hca::{CqSetup, Hca};
use pumice_device::objects::completion_queue::CompletionQueue;
use pumice_transport::types::{WcFlags, WcStatus, WorkCompletion};

use crate::calls::completion_channel::Channel;
use crate::calls::protection_domain::Use;
use crate::calls::window_bind::show_refused;
use crate::ground::abi::{ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_ex, ibv_wc};
use crate::ground::errno::{Errno, INVALID};
use crate::ground::handles::{
    Held, Identity, Listed, Shown, hand_out_box, held, live, live_or_none, take_back, zeroed,
};
use crate::ground::outcome::{data_path, pointer, status};
use crate::ground::settings::profile;
use crate::ground::wall_clock::WallClock;
use crate::objects::async_event::Unacknowledged;
use crate::objects::command_file::Owned;
use crate::objects::context::Context;

/// A completion queue; all have room for the extended structure.
#[repr(C)]
pub(crate) struct Cq {
    c: Shown<ibv_cq_ex>,
    queue: Arc<CompletionQueue>,
    hca: *const Hca,
    unacknowledged: Unacknowledged,
    /// The completion that the extended calls read, between start_poll and end_poll.
    pub(crate) current: Shown<WorkCompletion>,
    /// When it was made, in ns of the device's clock, if the queue stamps.
    pub(crate) current_at_ns: Shown<u64>,
    pub(crate) stamps: bool,
    /// The same on the system's clock, if the program wants to read that.
    pub(crate) current_wall_ns: Shown<u64>,
    pub(crate) wall_clock: Option<WallClock>,
    /// A thread is between start_poll and end_poll.
    pub(crate) polling: AtomicBool,
    /// Of the parent domain that it was made in.
    pub(crate) _domain_use: Option<Use>,
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

impl Cq {
    #[inline]
    pub(crate) const fn queue(&self) -> &Arc<CompletionQueue> {
        &self.queue
    }

    #[inline]
    pub(crate) fn hca(&self) -> &Hca {
        // SAFETY: the context keeps the HCA open, and outlives its objects.
        unsafe { &*self.hca }
    }

    pub(crate) const fn unacknowledged(&self) -> &Unacknowledged {
        &self.unacknowledged
    }

    /// Whether the structure still has the handle that it was made with: adapters arm by it.
    ///
    /// # Errors
    /// ENOENT: it has another one.
    fn check_handle(&self) -> Result<(), Errno> {
        // SAFETY: a field of our own structure.
        let handle = unsafe { (*self.c.as_ptr()).base.handle };
        if handle == self.queue.handle().index {
            return Ok(());
        }
        Err(Errno(libc::ENOENT).because(|| format!("there is no completion queue with handle {handle:#x}")))
    }

    /// The structure that the program sees.
    pub(crate) const fn as_ptr(&self) -> *mut ibv_cq_ex {
        self.c.as_ptr()
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
    pub(crate) domain_use: Option<Use>,
}

/// Makes a completion queue.
///
/// # Safety
/// The pointers are null or live.
pub(crate) unsafe fn create(context: *mut ibv_context, wanted: Wanted) -> Result<*mut ibv_cq_ex, Errno> {
    let Wanted { cqe, cq_context, channel, comp_vector, stamps, wall_clock, domain_use } = wanted;
    // SAFETY: the caller's promise.
    let (open, reports) = unsafe { (Context::of(context)?, live_or_none::<Channel>(channel)?) };
    let place = Box::<Cq>::new_uninit();
    let cookie = place.as_ptr().expose_provenance() as u64;
    let queue = open.hca().create_cq(CqSetup {
        depth: cqe,
        comp_vector,
        cookie,
        channel: reports.map(|channel| Arc::clone(channel.channel())),
        clock: stamps.then(|| open.hca().clock().clone()),
        fires_late: profile()?.fires_late,
    })?;
    open.own_cq(Owned::CompletionQueue(queue.handle().pack()), Some(Arc::clone(&queue)));
    // SAFETY: numbers, pointers and locks for which zero is the initial state.
    let mut c: ibv_cq_ex = unsafe { zeroed() };
    c.base.context = context;
    c.base.channel = channel;
    c.base.cq_context = cq_context;
    c.base.handle = queue.handle().index;
    c.base.cqe = queue.depth() as c_int;
    let cq = Box::write(
        place,
        Cq {
            c: Shown::new(c),
            queue,
            hca: open.hca(),
            unacknowledged: Unacknowledged::default(),
            current: Shown::new(WorkCompletion::default()),
            current_at_ns: Shown::new(0),
            stamps,
            current_wall_ns: Shown::new(0),
            wall_clock: wall_clock.then(|| WallClock::new(open.hca().clock())),
            polling: AtomicBool::new(false),
            _domain_use: domain_use,
        },
    );
    Ok(hand_out_box(cq).cast())
}

pub(crate) unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    pointer(|| {
        let cqe = u32::try_from(cqe).map_err(|_| INVALID)?;
        let comp_vector = u32::try_from(comp_vector).map_err(|_| INVALID)?;
        let wanted = Wanted {
            cqe,
            cq_context,
            channel,
            comp_vector,
            stamps: false,
            wall_clock: false,
            domain_use: None,
        };
        // SAFETY: the caller's promise.
        unsafe { create(context, wanted) }.map(<*mut ibv_cq_ex>::cast)
    })
}

pub(crate) unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    status(|| {
        // SAFETY: null or live.
        let held = unsafe { live::<Cq>(cq) }?;
        held.hca().resize_cq(held.queue.handle(), u32::try_from(cqe).map_err(|_| INVALID)?)?;
        // SAFETY: a field of our own structure.
        unsafe { (*cq).cqe = held.queue.depth() as c_int };
        Ok(())
    })
}

/// Blocks until all events of the queue are acknowledged.
pub(crate) unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    status(|| {
        // SAFETY: null or live; a context outlives its objects.
        let (held, context) = unsafe { (live::<Cq>(cq)?, Context::of((*cq).context)?) };
        context.hca().destroy_cq(held.queue.handle())?;
        context.disown(Owned::CompletionQueue(held.queue.handle().pack()));
        context.adapter.distributor.forget_cq(&context.async_events, cq);
        held.unacknowledged.wait();
        // SAFETY: the program gives it back.
        unsafe { take_back::<Cq>(cq) };
        Ok(())
    })
}

/// Of a queue that overran: it cannot be used any more.
const OVERRAN: Errno = Errno(libc::EIO);

/// Asks for one event. EIO: the queue overran, and no completion will ever come.
pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    data_path::status(|| {
        // SAFETY: null or live.
        let cq = unsafe { held::<Cq>(cq) }?;
        cq.check_handle()?;
        if cq.queue.is_failed() {
            return Err(OVERRAN);
        }
        cq.hca().req_notify_cq(&cq.queue, solicited_only != 0);
        Ok(())
    })
}

/// Completions that are copied at a time.
const BATCH: usize = 8;

/// Takes at most `num_entries` completions: their number, or a negative errno. EINVAL: no queue, one without
/// a context, a negative number, no place for completions. EIO: the queue overran, and what it held has been
/// polled.
pub(crate) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
    data_path::negative(|| {
        // SAFETY: null or live.
        let cq = unsafe { held::<Cq>(cq) }?;
        // SAFETY: a field of our own structure.
        if unsafe { (*cq.as_ptr()).base.context.is_null() } {
            return Err(INVALID);
        }
        let wanted = usize::try_from(num_entries).map_err(|_| INVALID)?;
        if wanted == 0 {
            return Ok(0);
        }
        if wc.is_null() {
            return Err(INVALID);
        }
        // One place is all that an empty queue needs, and most polls find an empty queue.
        let mut one = [WorkCompletion::default()];
        if cq.hca().poll_cq(&cq.queue, &mut one) == 0 {
            return if cq.queue.is_failed() { Err(OVERRAN) } else { Ok(0) };
        }
        // SAFETY: the caller's array has room for `wanted`.
        unsafe { wc.write(to_c(&one[0])) };
        let mut taken = 1;
        while taken < wanted && !cq.queue.is_empty() {
            let mut batch = [WorkCompletion::default(); BATCH];
            let most = BATCH.min(wanted - taken);
            let count = cq.queue.poll(batch.get_mut(..most).unwrap_or_default());
            for completion in batch.iter().take(count) {
                // SAFETY: at most `wanted` in all.
                unsafe { wc.add(taken).write(to_c(completion)) };
                taken += 1;
            }
            if count == 0 {
                break;
            }
        }
        Ok(taken as c_int)
    })
}

/// Immediate data and the invalidated key share a place.
pub(crate) fn imm_or_key(completion: &WorkCompletion) -> u32 {
    if completion.flags.contains(WcFlags::WITH_INV) {
        completion.invalidated_rkey
    } else {
        u32::from_ne_bytes(completion.imm_data)
    }
}

#[inline]
fn to_c(completion: &WorkCompletion) -> ibv_wc {
    if completion.status != WcStatus::Success {
        show_refused(completion.qp_num);
    }
    ibv_wc {
        wr_id: completion.wr_id,
        status: completion.status as u32,
        opcode: completion.opcode as u32,
        vendor_err: completion.vendor_err,
        byte_len: completion.byte_len,
        imm_data: imm_or_key(completion),
        qp_num: completion.qp_num,
        src_qp: completion.src_qp,
        wc_flags: completion.flags.bits(),
        pkey_index: completion.pkey_index,
        slid: completion.slid,
        sl: completion.sl,
        dlid_path_bits: completion.dlid_path_bits,
    }
}
