//! Asynchronous events of a context.

use std::ffi::{c_int, c_void};

use pumice_calls::Call;

use crate::abi::{ibv_async_event, ibv_context};
use crate::check;
use crate::entry::arguments::{In, Out};
use crate::entry::outcome::{number_of, value};
use crate::gate::CallSubject;
use crate::objects::context::Context;
use crate::objects::events::acknowledge;
use crate::platform::errno::{INVALID, set_errno};

unsafe extern "C-unwind" {
    fn read(fd: c_int, bytes: *mut c_void, count: usize) -> isize;
}

/// Waits for an event unless the descriptor is O_NONBLOCK. A signal ends the wait, and a waiting thread can
/// be cancelled: no value in this frame may need dropping.
pub(crate) extern "C-unwind" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: Out<'_, ibv_async_event>,
) -> c_int {
    next_event(Call::ibv_get_async_event, context, event)
}

/// Waits for an event for a call, as [`ibv_get_async_event`] does.
#[inline(always)]
pub(super) fn next_event(call: Call, context: *mut ibv_context, event: Out<'_, ibv_async_event>) -> c_int {
    if event.optional().is_none() {
        set_errno(INVALID.0);
        return -1;
    }
    loop {
        let fd = number_of(call, CallSubject::on(context), || Ok(Context::of(context)?.async_events().fd()));
        if fd < 0 {
            return -1;
        }
        let mut byte = 0_u8;
        // SAFETY: a byte of this frame is written, which stays valid even if the thread is cancelled in the
        // call.
        if unsafe { read(fd, (&raw mut byte).cast(), 1) } != 1 {
            return -1;
        }
        if take_event(context, event) {
            return 0;
        }
    }
}

/// Returns the address of an event's object, or the number in its place.
fn about(event: &ibv_async_event) -> u64 {
    event.element.addr() as u64
}

/// Takes an event. Returns false if another thread was faster, or the event's object is gone.
#[inline(never)]
extern "C" fn take_event(context: *mut ibv_context, event: Out<'_, ibv_async_event>) -> bool {
    value(false, || {
        let taken = Context::of(context).ok().and_then(|open| open.async_events().take());
        let (Some(taken), Some(target)) = (taken, event.optional()) else { return false };
        check::with_checker(|checker| checker.async_event_got(about(&taken)));
        target.set(taken);
        true
    })
}

pub(crate) extern "C" fn ibv_ack_async_event(event: In<'_, ibv_async_event>) {
    value((), || {
        if let Some(event) = event.optional() {
            check::with_checker(|checker| checker.async_event_acknowledged(about(event)));
            //= man:ibv_get_async_event
            //| Every event that a program gets has to be acknowledged.
            acknowledge(event);
        }
    });
}
