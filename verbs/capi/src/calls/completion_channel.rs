//! Completion channels and their events.

use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::sync::Arc;
use std::time::Instant;

use pumice_device::objects::completion_channel::{CompletionChannel, CqEvent};

use crate::calls::completion_queue::Cq;
use crate::ground::abi::{ibv_comp_channel, ibv_context, ibv_cq};
use crate::ground::cancellation::{RESTART, attempt_ends, blocking};
use crate::ground::errno::{Errno, INVALID};
use crate::ground::handles::{Held, Identity, Listed, Shown, hand_out, held, held_or_none, live, take_back};
use crate::ground::outcome::data_path::value;
use crate::ground::outcome::{TRY_AGAIN, attempt, pointer, status};
use crate::objects::context::Context;

/// A completion channel.
#[repr(C)]
pub(crate) struct Channel {
    c: Shown<ibv_comp_channel>,
    channel: Arc<CompletionChannel>,
}

// SAFETY: the first field is the C structure.
unsafe impl Held for Channel {
    type C = ibv_comp_channel;
}

impl Listed for Channel {
    const KIND: &'static str = "completion channel";

    fn identity(c: &ibv_comp_channel) -> Identity {
        Identity::new(c.context, 0)
    }
}

impl Channel {
    pub(crate) const fn channel(&self) -> &Arc<CompletionChannel> {
        &self.channel
    }

    fn is_nonblocking(&self) -> bool {
        // SAFETY: no memory is involved.
        unsafe { libc::fcntl(self.channel.as_fd().as_raw_fd(), libc::F_GETFL) & libc::O_NONBLOCK != 0 }
    }

    /// Waits for an event for the slice of an attempt, driving the HCA meanwhile.
    fn next(&self) -> Result<CqEvent, Errno> {
        if let Some(event) = self.channel.try_event() {
            return Ok(event);
        }
        if self.is_nonblocking() {
            return Err(Errno(libc::EAGAIN));
        }
        // SAFETY: a field of our own structure; a context outlives its objects.
        let context = unsafe { Context::of((*self.c.as_ptr()).context) }?;
        let ends = attempt_ends();
        let left = ends.map(|end| end.saturating_duration_since(Instant::now()));
        let event = context.hca().wait_cq_event_or_signal(&self.channel, left);
        // A signal handler ran, if it is too early: its program may have something else to do now.
        let over = ends.is_some_and(|end| end <= Instant::now());
        event.ok_or(if over { RESTART } else { Errno(libc::EINTR) })
    }
}

pub(crate) unsafe extern "C" fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    pointer(|| {
        // SAFETY: null or an open context.
        unsafe { Context::of(context) }?;
        let channel = Arc::new(CompletionChannel::new()?);
        let c = ibv_comp_channel { context, fd: channel.as_fd().as_raw_fd(), refcnt: 0 };
        Ok(hand_out(Channel { c: Shown::new(c), channel }))
    })
}

pub(crate) unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    status(|| {
        // SAFETY: null or live.
        unsafe { live::<Channel>(channel) }?.channel.check_unused()?;
        // SAFETY: the program gives it back.
        unsafe { take_back::<Channel>(channel) };
        Ok(())
    })
}

/// The next event of a channel: waits for it unless the descriptor is O_NONBLOCK (EAGAIN). A signal
/// ends the wait (EINTR). A thread that waits can be cancelled.
pub(crate) unsafe extern "C-unwind" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    blocking(c_int::from(TRY_AGAIN), || {
        attempt(|| {
            if cq.is_null() || cq_context.is_null() {
                return Err(INVALID);
            }
            // SAFETY: null or live.
            let event = unsafe { held::<Channel>(channel) }?.next()?;
            let fired: *mut ibv_cq = ptr::with_exposed_provenance_mut(event.cookie as usize);
            // SAFETY: a queue with an unacknowledged event is not gone; the caller's variables.
            unsafe {
                cq.write(fired);
                cq_context.write((*fired).cq_context);
            }
            Ok(0)
        })
    })
}

pub(crate) unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, nevents: c_uint) {
    value((), || {
        // SAFETY: null or live.
        if let Some(queue) = unsafe { held_or_none::<Cq>(cq) } {
            queue.queue().ack_events(nevents.into());
        }
    });
}
