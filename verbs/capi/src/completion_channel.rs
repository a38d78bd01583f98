//! Completion channels and their events.

use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::sync::Arc;

use pumice_device::completion_channel::{CompletionChannel, CqEvent};

use crate::abi::{ibv_comp_channel, ibv_context, ibv_cq};
use crate::completion_queue::Cq;
use crate::context::Context;
use crate::object::{Held, Shown, hand_out, held, held_or_none, take_back};
use crate::outcome::{Errno, INVALID, number, pointer, status, value};

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

impl Channel {
    pub(crate) const fn channel(&self) -> &Arc<CompletionChannel> {
        &self.channel
    }

    fn is_nonblocking(&self) -> bool {
        // SAFETY: no memory is involved.
        unsafe { libc::fcntl(self.channel.as_fd().as_raw_fd(), libc::F_GETFL) & libc::O_NONBLOCK != 0 }
    }

    /// Waits for an event, driving the HCA meanwhile.
    fn next(&self) -> Result<CqEvent, Errno> {
        if let Some(event) = self.channel.try_event() {
            return Ok(event);
        }
        if self.is_nonblocking() {
            return Err(Errno(libc::EAGAIN));
        }
        // SAFETY: a field of our own structure; a context outlives its objects.
        let context = unsafe { Context::of((*self.c.as_ptr()).context) }?;
        context.hca().wait_cq_event(&self.channel, None).ok_or(Errno(libc::EINTR))
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
        unsafe { held::<Channel>(channel) }?.channel.check_unused()?;
        // SAFETY: the program gives it back.
        unsafe { take_back::<Channel>(channel) };
        Ok(())
    })
}

/// The next event of a channel: waits for it unless the descriptor is O_NONBLOCK (EAGAIN). A signal
/// ends the wait (EINTR).
pub(crate) unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    number(|| {
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
}

pub(crate) unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, nevents: c_uint) {
    value((), || {
        // SAFETY: null or live.
        if let Some(queue) = unsafe { held_or_none::<Cq>(cq) } {
            queue.queue().ack_events(nevents.into());
        }
    });
}
