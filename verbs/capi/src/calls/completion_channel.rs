//! Completion channels and their events.

use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::time::Duration;

use pumice_calls::Call;
use pumice_device::outside;

use crate::abi::{ibv_comp_channel, ibv_context, ibv_cq};
use crate::check;
use crate::entry::arguments::{Out, Trusted};
use crate::entry::handles::{hand_out, live, pointer_of, take_back};
use crate::entry::outcome::data_path::value;
use crate::entry::outcome::{TRY_AGAIN, attempt, pointer_about, status_of};
use crate::gate::CallSubject;
use crate::objects::completion_channel::CompChannel;
use crate::objects::completion_queue::Cq;
use crate::objects::context::Context;
use crate::platform::cancellation::{RESTART, begun, blocking};
use crate::platform::errno::Errno;
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
