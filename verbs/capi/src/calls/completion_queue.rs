//! Completion queues: create, destroy, resize, arm, poll.

use std::ffi::{c_int, c_void};

use pumice_calls::Call;
use pumice_transport::types::{WcFlags, WcStatus, WorkCompletion};

use crate::abi::{ibv_comp_channel, ibv_context, ibv_cq, ibv_wc};
use crate::check;
use crate::entry::arguments::{OutArray, Trusted};
use crate::entry::handles::{live, take_back};
use crate::entry::{data_path, pointer_about, status_of};
use crate::gate::CallSubject;
use crate::objects::command_file::OwnedObject;
use crate::objects::completion_queue::{Cq, CqCreateParameters};
use crate::objects::memory_region::show_refused;
use crate::platform::{Errno, INVALID};
use crate::waits::AcknowledgementWait;

pub(crate) extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    pointer_about(Call::ibv_create_cq, CallSubject::on(context), || {
        create(context, cqe, cq_context, channel, comp_vector)
    })
}

/// Creates a completion queue on a context.
pub(super) fn create(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> Result<*mut ibv_cq, Errno> {
    let cqe = u32::try_from(cqe).map_err(|_| INVALID)?;
    let comp_vector = u32::try_from(comp_vector).map_err(|_| INVALID)?;
    let parameters = CqCreateParameters {
        cqe,
        cq_context,
        channel,
        comp_vector,
        stamps: false,
        wall_clock: false,
        overwrites: false,
        domain_use: None,
        set_operations: |_| {},
    };
    Cq::create(context, parameters)
}

pub(crate) extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    status_of(Call::ibv_resize_cq, CallSubject::on(cq), || {
        let held = live::<Cq>(cq)?;
        held.hca().resize_cq(held.queue().handle(), u32::try_from(cqe).map_err(|_| INVALID)?)?;
        //= man:ibv_resize_cq
        //| The queue shows the size that it has after the change.
        held.show_depth();
        let queue = held.queue();
        check::with_checker_of(cq.addr(), |checker| checker.cq_resized(queue.handle().index, queue.depth()));
        Ok(())
    })
}

/// Destroys a completion queue; blocks until all events of the queue are acknowledged.
pub(crate) extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    status_of(Call::ibv_destroy_cq, CallSubject::of(cq), || destroy(Call::ibv_destroy_cq, cq))
}

/// Destroys a completion queue for a call; blocks until all events of the queue are acknowledged.
pub(super) fn destroy(call: Call, cq: *mut ibv_cq) -> Result<(), Errno> {
    let held = live::<Cq>(cq)?;
    let context = held.context()?;
    let (queue, events) = (held.queue(), held.events());
    check::waits_for_acknowledgements(cq.addr(), "completion events", Call::ibv_ack_cq_events, || {
        queue.unacked_events()
    });
    check::waits_for_acknowledgements(cq.addr(), "asynchronous events", Call::ibv_ack_async_event, || {
        events.unacknowledged()
    });
    if held.event_bytes().is_some() {
        context.hca().forget_mrc_events(queue.handle());
    }
    let queue = context.hca().remove_cq(queue.handle())?;
    let waits = AcknowledgementWait {
        call,
        by: Call::ibv_ack_cq_events,
        address: cq.addr(),
        left: &|| queue.unacked_events(),
        wait_for: &|patience| queue.wait_acked_for(patience),
    };
    waits.wait(|| queue.wait_all_acked());
    check::with_checker_of(cq.addr(), |checker| checker.cq_destroyed(queue.handle().index));
    context.disown(OwnedObject::CompletionQueue(held.queue().handle().pack()));
    context.forget_events(held.events());
    //= statement:35
    //| The call that destroys the queue waits until its events are acknowledged.
    held.events().wait_acknowledged(call, cq.addr());
    take_back::<Cq>(cq);
    Ok(())
}

/// The error of a queue that overran and cannot be used any more.
const OVERRAN: Errno = Errno(libc::EIO);

/// Requests one event. Fails with EIO if the queue overran, because no completion will ever arrive.
pub(crate) extern "C" fn req_notify_cq(cq: Trusted<'_, ibv_cq>, solicited_only: c_int) -> c_int {
    notify(Call::ibv_req_notify_cq, cq, solicited_only)
}

/// Requests one event for a call, as [`req_notify_cq`] does.
#[inline(always)]
pub(super) fn notify(call: Call, cq: Trusted<'_, ibv_cq>, solicited_only: c_int) -> c_int {
    data_path::status(call, CallSubject::of(cq.as_ptr()), || {
        let cq = cq.held::<Cq>()?;
        cq.check_handle()?;
        //= man:ibv_poll_cq
        //| A queue that has overrun cannot be used.
        if cq.queue().is_failed() {
            return Err(OVERRAN);
        }
        cq.hca().req_notify_cq(cq.queue(), solicited_only != 0);
        Ok(())
    })
}

/// Number of completions that are copied at a time.
const BATCH: usize = 8;

/// Takes at most `num_entries` completions: returns their number, or a negative errno. EINVAL means no queue,
/// one without a context, a negative number, or no room for completions; EIO that the queue overran, and its
/// completions have been polled.
pub(crate) extern "C" fn poll_cq(
    cq: Trusted<'_, ibv_cq>,
    num_entries: c_int,
    wc: OutArray<'_, ibv_wc>,
) -> c_int {
    data_path::polled(Call::ibv_poll_cq, CallSubject::of(cq.as_ptr()), || take(cq, num_entries, wc))
}

/// Takes completions as [`poll_cq`] does.
#[inline(always)]
pub(super) fn take(
    cq: Trusted<'_, ibv_cq>,
    num_entries: c_int,
    wc: OutArray<'_, ibv_wc>,
) -> Result<c_int, Errno> {
    let cq = cq.held::<Cq>()?;
    if cq.context_pointer().is_null() {
        return Err(INVALID);
    }
    let parameters = usize::try_from(num_entries).map_err(|_| INVALID)?;
    if parameters == 0 {
        return Ok(0);
    }
    let parameters = cq.queue().max_returned(parameters);
    let mut elements = wc.elements(parameters)?;
    // An empty queue needs room for only one, and most polls find an empty queue.
    let mut one = [WorkCompletion::default()];
    if cq.hca().poll_cq_of(cq.queue(), &mut one, parameters) == 0 {
        return if cq.queue().is_failed() { Err(OVERRAN) } else { Ok(0) };
    }
    let [first] = &one;
    elements.put(to_c(first));
    while elements.left() > 0 && !cq.queue().is_empty() {
        let mut batch = [WorkCompletion::default(); BATCH];
        let most = BATCH.min(elements.left());
        let count = cq.queue().poll(batch.get_mut(..most).unwrap_or_default());
        for completion in batch.iter().take(count) {
            elements.put(to_c(completion));
        }
        if count == 0 {
            break;
        }
    }
    //= man:ibv_poll_cq
    //| The call returns the number of completions that it found.
    Ok((parameters - elements.left()) as c_int)
}

/// Returns the immediate data or the invalidated key, which share a field.
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
        return if check::is_on() {
            failed_to_c(completion)
        } else {
            //= linux:rxe_comp.c#make_send_cqe
            //| A request that failed has no length.
            ibv_wc { byte_len: 0, ..with_all_fields(completion) }
        };
    }
    with_all_fields(completion)
}

#[inline]
fn with_all_fields(completion: &WorkCompletion) -> ibv_wc {
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

/// Value that checked programs find in the fields that a failed completion does not have. Adapters do not
/// change those fields.
const NO_FIELD: u32 = 0xdead_beef;

/// Converts a failed completion for checked programs.
#[cold]
fn failed_to_c(completion: &WorkCompletion) -> ibv_wc {
    ibv_wc {
        wr_id: completion.wr_id,
        status: completion.status as u32,
        opcode: NO_FIELD,
        vendor_err: completion.vendor_err,
        byte_len: NO_FIELD,
        imm_data: NO_FIELD,
        qp_num: completion.qp_num,
        src_qp: NO_FIELD,
        wc_flags: NO_FIELD,
        pkey_index: NO_FIELD as u16,
        slid: NO_FIELD as u16,
        sl: NO_FIELD as u8,
        dlid_path_bits: NO_FIELD as u8,
    }
}
