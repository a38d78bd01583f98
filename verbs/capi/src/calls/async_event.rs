//! Asynchronous events of a context.

use std::ffi::{c_int, c_void};

use pumice_calls::Call;

use crate::ground::abi::{ibv_async_event, ibv_context};
use crate::ground::arguments::{In, Out};
use crate::ground::check;
use crate::ground::errno::{INVALID, set_errno};
use crate::ground::gate::About;
use crate::ground::outcome::{number_of, value};
use crate::objects::context::Context;
use crate::objects::events::acknowledge;

unsafe extern "C-unwind" {
    fn read(fd: c_int, bytes: *mut c_void, count: usize) -> isize;
}

/// Waits for an event unless the descriptor is O_NONBLOCK. A signal ends the wait, and a thread that
/// waits can be cancelled: nothing in this frame is to be dropped.
pub(crate) extern "C-unwind" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: Out<'_, ibv_async_event>,
) -> c_int {
    if event.optional().is_none() {
        set_errno(INVALID.0);
        return -1;
    }
    loop {
        let fd = number_of(Call::ibv_get_async_event, About::on(context), || {
            Ok(Context::of(context)?.async_events().fd())
        });
        if fd < 0 {
            return -1;
        }
        let mut byte = 0_u8;
        // SAFETY: a byte of this frame is written, which stays there even if the thread is cancelled in the
        // call.
        if unsafe { read(fd, (&raw mut byte).cast(), 1) } != 1 {
            return -1;
        }
        if take_event(context, event) {
            return 0;
        }
    }
}

/// The address of what an event is about; a number if that is none.
fn about(event: &ibv_async_event) -> u64 {
    event.element.addr() as u64
}

/// False: another thread was faster, or the event's object is gone.
#[inline(never)]
extern "C" fn take_event(context: *mut ibv_context, event: Out<'_, ibv_async_event>) -> bool {
    value(false, || {
        let taken = Context::of(context).ok().and_then(|open| open.async_events().take());
        let (Some(taken), Some(target)) = (taken, event.optional()) else { return false };
        check::tell(|checker| checker.async_event_got(about(&taken)));
        target.set(taken);
        true
    })
}

pub(crate) extern "C" fn ibv_ack_async_event(event: In<'_, ibv_async_event>) {
    value((), || {
        if let Some(event) = event.optional() {
            check::tell(|checker| checker.async_event_acknowledged(about(event)));
            //= man:ibv_get_async_event
            //| Every event that a program gets has to be acknowledged.
            acknowledge(event);
        }
    });
}
