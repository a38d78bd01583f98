//! Completion channels and their events, and completion counters.

use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::Arc;
use std::time::Duration;

use pumice_calls::Call;
use pumice_device::outside;
use pumice_device::profile::Vendor;
use pumice_transport::host::CountedOperation;

use crate::abi::{
    ibv_comp_channel, ibv_comp_cntr, ibv_comp_cntr_caps, ibv_comp_cntr_init_attr, ibv_context, ibv_cq,
    ibv_qp, ibv_qp_attach_comp_cntr_attr,
};
use crate::check;
use crate::entry::arguments::{In, Out, Trusted};
use crate::entry::data_path::value;
use crate::entry::handles::{hand_out, live, pointer_of, take_back};
use crate::entry::{TRY_AGAIN, attempt, pointer_about, status_of};
use crate::gate::CallSubject;
use crate::log::refusal::check_mask;
use crate::objects::Context;
use crate::objects::completion_queue::{CompChannel, CompCntr, Cq, MAX_COUNTERS};
use crate::objects::queue_pair::Qp;
use crate::platform::threads::{RESTART, begun, blocking};
use crate::platform::{Errno, INVALID, NOT_SUPPORTED};
use crate::waits::{self, ThreadWait};

pub(crate) extern "C" fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    pointer_about(Call::ibv_create_comp_channel, CallSubject::on(context), || create(context))
}

/// Creates a channel on a context.
pub(super) fn create(context: *mut ibv_context) -> Result<*mut ibv_comp_channel, Errno> {
    Context::of(context)?;
    let channel = CompChannel::new(context)?;
    let descriptor = channel.channel().as_fd().as_raw_fd();
    let pointer = hand_out(channel);
    check::with_checker(|checker| checker.channel_made(pointer.addr() as u64, descriptor));
    Ok(pointer)
}

pub(crate) extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    status_of(Call::ibv_destroy_comp_channel, CallSubject::of(channel), || destroy(channel))
}

/// Destroys a channel that no completion queue uses.
pub(super) fn destroy(channel: *mut ibv_comp_channel) -> Result<(), Errno> {
    live::<CompChannel>(channel)?.channel().check_unused()?;
    take_back::<CompChannel>(channel);
    check::with_checker(|checker| checker.channel_destroyed(channel.addr() as u64));
    Ok(())
}

/// Duration of a sleep that may last for ever.
const LONG: Duration = Duration::from_secs(1);

/// Returns the next event of a channel: waits for it unless the descriptor is O_NONBLOCK (EAGAIN). A signal
/// ends the wait (EINTR). A waiting thread can be cancelled.
pub(crate) extern "C-unwind" fn ibv_get_cq_event(
    channel: Trusted<'_, ibv_comp_channel>,
    cq: Out<'_, *mut ibv_cq>,
    cq_context: Out<'_, *mut c_void>,
) -> c_int {
    next_cq_event(Call::ibv_get_cq_event, channel, cq, cq_context)
}

/// Returns the next event for a call, as [`ibv_get_cq_event`] does.
#[inline(always)]
pub(super) fn next_cq_event(
    call: Call,
    channel: Trusted<'_, ibv_comp_channel>,
    cq: Out<'_, *mut ibv_cq>,
    cq_context: Out<'_, *mut c_void>,
) -> c_int {
    blocking(c_int::from(TRY_AGAIN), || {
        attempt(call, CallSubject::on(channel.as_ptr()), || {
            let (cq, cq_context) = (cq.required()?, cq_context.required()?);
            let event = channel.held::<CompChannel>()?.next().inspect_err(|errno| {
                if *errno == RESTART {
                    waits::note_sleep(|| ThreadWait::SleepsOn(channel.as_ptr().addr()));
                }
                if *errno == RESTART && check::is_on() {
                    let (address, is_long) =
                        (channel.as_ptr().addr() as u64, outside::since(begun()) >= LONG);
                    check::with_checker(|checker| checker.sleeps(address, is_long));
                }
            })?;
            let fired: *mut ibv_cq = pointer_of(event.cookie);
            // SAFETY: the cookie is the address of the queue, which is not freed while an event is not
            // acknowledged.
            let queue = unsafe { Trusted::new(fired) }.held::<Cq>()?;
            //= man:ibv_get_cq_event
            //| The call tells which completion queue got the event, and its context.
            cq.set(fired);
            cq_context.set(queue.cq_context());
            Ok(0)
        })
    })
}

pub(crate) extern "C" fn ibv_ack_cq_events(cq: Trusted<'_, ibv_cq>, nevents: c_uint) {
    value((), || {
        if let Some(queue) = cq.optional::<Cq>() {
            //= man:ibv_get_cq_event
            //| One call may acknowledge several events.
            queue.queue().ack_events(nevents.into());
            let handle = queue.queue().handle().index;
            let address = cq.as_ptr().addr();
            check::with_checker_of(address, |checker| checker.events_acknowledged(handle, nevents.into()));
        }
    });
}

/// `IBV_COMP_CNTR_TYPE_WRS`: the counter counts requests, not bytes.
const TYPE_REQUESTS: u32 = 0;

/// Returns the operations that a device counts (`IBV_QP_ATTACH_COMP_CNTR_OP_*`). SRD requests each part of a
/// READ separately and repeatedly, so its peer cannot count READs.
fn operations_of(context: &Context) -> u32 {
    let all = [
        CountedOperation::Send,
        CountedOperation::Receive,
        CountedOperation::Read,
        CountedOperation::RemoteRead,
        CountedOperation::Write,
        CountedOperation::RemoteWrite,
    ];
    let has = |operation: &CountedOperation| {
        *operation != CountedOperation::RemoteRead || !context.is_of(Vendor::Amazon)
    };
    all.into_iter().filter(has).fold(0, |mask, operation| mask | operation.bit())
}

pub(crate) extern "C" fn _ibv_query_comp_cntr_caps(
    context: *mut ibv_context,
    caps: Out<'_, ibv_comp_cntr_caps>,
    size: usize,
) -> c_int {
    status_of(Call::ibv_query_comp_cntr_caps, CallSubject::on(context), || {
        let context = Context::of(context)?;
        let all = ibv_comp_cntr_caps {
            max_value: u64::MAX,
            max_counters: MAX_COUNTERS,
            supported_qp_attach_ops: operations_of(&context),
        };
        caps.required()?.set_within(&all, size);
        Ok(())
    })
}

pub(crate) extern "C" fn ibv_create_comp_cntr(
    context: *mut ibv_context,
    attributes: In<'_, ibv_comp_cntr_init_attr>,
) -> *mut ibv_comp_cntr {
    pointer_about(Call::ibv_create_comp_cntr, CallSubject::on(context), || {
        Context::of(context)?;
        let ibv_comp_cntr_init_attr { comp_mask, r#type: kind, flags } = attributes.copied()?;
        check_mask(Call::ibv_create_comp_cntr, comp_mask, 0)?;
        if flags != 0 {
            return Err(NOT_SUPPORTED.because(|| {
                format!("ibv_create_comp_cntr refused: flags {flags:#x}, of which there are none")
            }));
        }
        if kind != TYPE_REQUESTS {
            return Err(NOT_SUPPORTED.because(|| {
                format!("ibv_create_comp_cntr refused: type {kind}; the device counts requests only (type 0)")
            }));
        }
        Ok(hand_out(CompCntr::new(context)?))
    })
}

pub(crate) extern "C" fn ibv_destroy_comp_cntr(counter: *mut ibv_comp_cntr) -> c_int {
    status_of(Call::ibv_destroy_comp_cntr, CallSubject::of(counter), || {
        live::<CompCntr>(counter)?.check_unused()?;
        take_back::<CompCntr>(counter);
        Ok(())
    })
}

pub(crate) extern "C" fn ibv_set_comp_cntr(counter: *mut ibv_comp_cntr, value: u64) -> c_int {
    status_of(Call::ibv_set_comp_cntr, CallSubject::of(counter), || {
        live::<CompCntr>(counter)?.counter().set(true, value);
        Ok(())
    })
}

pub(crate) extern "C" fn ibv_set_err_comp_cntr(counter: *mut ibv_comp_cntr, value: u64) -> c_int {
    status_of(Call::ibv_set_err_comp_cntr, CallSubject::of(counter), || {
        live::<CompCntr>(counter)?.counter().set(false, value);
        Ok(())
    })
}

pub(crate) extern "C" fn ibv_inc_comp_cntr(counter: *mut ibv_comp_cntr, amount: u64) -> c_int {
    status_of(Call::ibv_inc_comp_cntr, CallSubject::of(counter), || {
        live::<CompCntr>(counter)?.counter().add(true, amount);
        Ok(())
    })
}

pub(crate) extern "C" fn ibv_inc_err_comp_cntr(counter: *mut ibv_comp_cntr, amount: u64) -> c_int {
    status_of(Call::ibv_inc_err_comp_cntr, CallSubject::of(counter), || {
        live::<CompCntr>(counter)?.counter().add(false, amount);
        Ok(())
    })
}

/// Reads a number of the counter after driving the device, because programs that wait for a counter poll
/// nothing else.
fn read(counter: *mut ibv_comp_cntr, succeeded: bool, value: Out<'_, u64>) -> Result<(), Errno> {
    let counter = live::<CompCntr>(counter)?;
    let target = value.required()?;
    counter.context()?.drive();
    target.set(counter.counter().read(succeeded));
    Ok(())
}

pub(crate) extern "C" fn ibv_read_comp_cntr(counter: *mut ibv_comp_cntr, value: Out<'_, u64>) -> c_int {
    status_of(Call::ibv_read_comp_cntr, CallSubject::of(counter), || read(counter, true, value))
}

pub(crate) extern "C" fn ibv_read_err_comp_cntr(counter: *mut ibv_comp_cntr, value: Out<'_, u64>) -> c_int {
    status_of(Call::ibv_read_err_comp_cntr, CallSubject::of(counter), || read(counter, false, value))
}

pub(crate) extern "C" fn ibv_qp_attach_comp_cntr(
    qp: *mut ibv_qp,
    counter: *mut ibv_comp_cntr,
    attributes: In<'_, ibv_qp_attach_comp_cntr_attr>,
) -> c_int {
    status_of(Call::ibv_qp_attach_comp_cntr, Qp::about(qp), || {
        let (queue_pair, counter) = (live::<Qp>(qp)?, live::<CompCntr>(counter)?);
        let ibv_qp_attach_comp_cntr_attr { comp_mask, op_mask } = attributes.copied()?;
        check_mask(Call::ibv_qp_attach_comp_cntr, comp_mask, 0)?;
        if op_mask == 0 {
            return Err(
                INVALID.because(|| "ibv_qp_attach_comp_cntr refused: op_mask names nothing".to_owned())
            );
        }
        let context = counter.context()?;
        let counted = operations_of(&context);
        if op_mask & !counted != 0 {
            return Err(NOT_SUPPORTED.because(|| {
                format!(
                    "ibv_qp_attach_comp_cntr refused: op_mask {op_mask:#x}; the device counts {counted:#x}"
                )
            }));
        }
        if !Arc::ptr_eq(context.hca(), queue_pair.hca()) {
            return Err(INVALID.because(|| "the counter and the queue pair are of two devices".to_owned()));
        }
        queue_pair.hca().attach_counter(queue_pair.number(), Arc::clone(counter.counter()), op_mask)?;
        Ok(())
    })
}
