//! Completion queues: create, destroy, resize, arm, poll.

use std::ffi::{c_int, c_void};

use pumice_calls::Call;
use pumice_transport::types::{WcFlags, WcStatus, WorkCompletion};

use crate::ground::abi::{ibv_comp_channel, ibv_context, ibv_cq, ibv_wc};
use crate::ground::acknowledgements::Acknowledgements;
use crate::ground::arguments::{OutArray, Trusted};
use crate::ground::check;
use crate::ground::errno::{Errno, INVALID};
use crate::ground::gate::About;
use crate::ground::handles::{live, take_back};
use crate::ground::outcome::{data_path, pointer_about, status_of};
use crate::objects::command_file::Owned;
use crate::objects::completion_queue::{Cq, Wanted};
use crate::objects::memory_window::show_refused;

pub(crate) extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    pointer_about(Call::ibv_create_cq, About::on(context), || {
        let cqe = u32::try_from(cqe).map_err(|_| INVALID)?;
        let comp_vector = u32::try_from(comp_vector).map_err(|_| INVALID)?;
        let wanted = Wanted {
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
        Cq::create(context, wanted)
    })
}

pub(crate) extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    status_of(Call::ibv_resize_cq, About::on(cq), || {
        let held = live::<Cq>(cq)?;
        held.hca().resize_cq(held.queue().handle(), u32::try_from(cqe).map_err(|_| INVALID)?)?;
        //= man:ibv_resize_cq
        //| The queue shows the size that it has after the change.
        held.show_depth();
        let queue = held.queue();
        check::tell_of(cq.addr(), |checker| checker.cq_resized(queue.handle().index, queue.depth()));
        Ok(())
    })
}

/// Blocks until all events of the queue are acknowledged.
pub(crate) extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    status_of(Call::ibv_destroy_cq, About::of(cq), || {
        let held = live::<Cq>(cq)?;
        let context = held.context()?;
        let (queue, events) = (held.queue(), held.events());
        check::waits_for_acknowledgements(cq.addr(), "completion events", Call::ibv_ack_cq_events, || {
            queue.unacked_events()
        });
        check::waits_for_acknowledgements(
            cq.addr(),
            "asynchronous events",
            Call::ibv_ack_async_event,
            || events.unacknowledged(),
        );
        let queue = context.hca().remove_cq(queue.handle())?;
        let waits = Acknowledgements {
            call: Call::ibv_destroy_cq,
            by: Call::ibv_ack_cq_events,
            address: cq.addr(),
            left: &|| queue.unacked_events(),
            wait_for: &|patience| queue.wait_acked_for(patience),
        };
        waits.wait(|| queue.wait_all_acked());
        check::tell_of(cq.addr(), |checker| checker.cq_destroyed(queue.handle().index));
        context.disown(Owned::CompletionQueue(held.queue().handle().pack()));
        context.forget_events(held.events());
        //= statement:35
        //| The call that destroys the queue waits until its events are acknowledged.
        held.events().wait_acknowledged(Call::ibv_destroy_cq, cq.addr());
        take_back::<Cq>(cq);
        Ok(())
    })
}

/// Of a queue that overran: it cannot be used any more.
const OVERRAN: Errno = Errno(libc::EIO);

/// Asks for one event. EIO: the queue overran, and no completion will ever come.
pub(crate) extern "C" fn req_notify_cq(cq: Trusted<'_, ibv_cq>, solicited_only: c_int) -> c_int {
    data_path::status(Call::ibv_req_notify_cq, About::of(cq.as_ptr()), || {
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

/// Completions that are copied at a time.
const BATCH: usize = 8;

/// Takes at most `num_entries` completions: their number, or a negative errno. EINVAL: no queue, one without
/// a context, a negative number, no room for completions. EIO: the queue overran, and what it held has been
/// polled.
pub(crate) extern "C" fn poll_cq(
    cq: Trusted<'_, ibv_cq>,
    num_entries: c_int,
    wc: OutArray<'_, ibv_wc>,
) -> c_int {
    data_path::polled(Call::ibv_poll_cq, About::of(cq.as_ptr()), || {
        let cq = cq.held::<Cq>()?;
        if cq.context_pointer().is_null() {
            return Err(INVALID);
        }
        let wanted = usize::try_from(num_entries).map_err(|_| INVALID)?;
        if wanted == 0 {
            return Ok(0);
        }
        let wanted = cq.queue().most_of(wanted);
        let mut elements = wc.elements(wanted)?;
        // Room for one is all that an empty queue needs, and most polls find an empty queue.
        let mut one = [WorkCompletion::default()];
        if cq.hca().poll_cq(cq.queue(), &mut one) == 0 {
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
        Ok((wanted - elements.left()) as c_int)
    })
}

/// Immediate data and the invalidated key share a field.
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
        if check::is_on() {
            return failed_to_c(completion);
        }
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

/// What checked programs find in the fields that a failed completion does not have. Adapters leave there what
/// was there before.
const NO_FIELD: u32 = 0xdead_beef;

/// A failed completion, as checked programs get it.
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
