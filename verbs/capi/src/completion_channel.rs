//! Completion channels and their events.

use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

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

    /// Waits for an event for a while, driving the HCA meanwhile.
    fn next(&self) -> Result<Option<CqEvent>, Errno> {
        if let Some(event) = self.channel.try_event() {
            return Ok(Some(event));
        }
        if self.is_nonblocking() {
            return Err(Errno(libc::EAGAIN));
        }
        // SAFETY: a field of our own structure; a context outlives its objects.
        let context = unsafe { Context::of((*self.c.as_ptr()).context) }?;
        let begin = Instant::now();
        let event = context.hca().wait_cq_event_or_signal(&self.channel, Some(WAIT));
        if event.is_none() && begin.elapsed() < WAIT {
            // A signal handler ran: its program may have something else to do now.
            return Err(Errno(libc::EINTR));
        }
        Ok(event)
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
/// ends the wait (EINTR). A thread that waits can be cancelled.
pub(crate) unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    loop {
        // SAFETY: the caller's promise.
        let outcome = unsafe { wait_a_while(channel, cq, cq_context) };
        if outcome != NOTHING_YET {
            return outcome;
        }
        // Cancellation unwinds from here: nothing in this frame is to be dropped, and no Rust function
        // that could panic is called from it, so that it has no landing pad for the unwinding to hit.
        // SAFETY: no argument.
        unsafe { pthread_testcancel() };
    }
}

/// How long a wait lasts before it looks whether the thread was cancelled.
const WAIT: Duration = Duration::from_millis(250);
/// Of [`wait_a_while`]: no event came.
const NOTHING_YET: c_int = 1;
/// `PTHREAD_CANCEL_DISABLE`.
const CANCEL_DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
    fn pthread_testcancel();
}

#[inline(never)]
unsafe extern "C" fn wait_a_while(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    let mut cancel_state = 0;
    // The wait holds locks and counts, which a cancellation inside would leave behind.
    // SAFETY: a live variable.
    unsafe { pthread_setcancelstate(CANCEL_DISABLE, &mut cancel_state) };
    let outcome = number(|| {
        if cq.is_null() || cq_context.is_null() {
            return Err(INVALID);
        }
        // SAFETY: null or live.
        let Some(event) = unsafe { held::<Channel>(channel) }?.next()? else { return Ok(NOTHING_YET) };
        let fired: *mut ibv_cq = ptr::with_exposed_provenance_mut(event.cookie as usize);
        // SAFETY: a queue with an unacknowledged event is not gone; the caller's variables.
        unsafe {
            cq.write(fired);
            cq_context.write((*fired).cq_context);
        }
        Ok(0)
    });
    // SAFETY: the state that it was; the old one is not wanted.
    unsafe { pthread_setcancelstate(cancel_state, &mut 0) };
    outcome
}

pub(crate) unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, nevents: c_uint) {
    value((), || {
        // SAFETY: null or live.
        if let Some(queue) = unsafe { held_or_none::<Cq>(cq) } {
            queue.queue().ack_events(nevents.into());
        }
    });
}
