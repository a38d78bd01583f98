//! Completion channels.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use pumice_device::objects::completion_channel::{CompletionChannel, CqEvent};
use pumice_device::outside;
use pumice_device::outside::fork_generation::Generation;

use super::context::Context;
use crate::abi::{ibv_comp_channel, ibv_context};
use crate::entry::handles::{CObject, DataPathObject, HandleIdentity, RegisteredObject, SharedStruct, shown};
use crate::platform::cancellation::{RESTART, attempt_ends};
use crate::platform::descriptors;
use crate::platform::errno::Errno;

/// A completion channel.
#[repr(C)]
pub(crate) struct CompChannel {
    c: SharedStruct<ibv_comp_channel>,
    generation: Generation,
    channel: Arc<CompletionChannel>,
}

// SAFETY: the first field is the C structure.
unsafe impl CObject for CompChannel {
    type C = ibv_comp_channel;
}

impl RegisteredObject for CompChannel {
    const KIND: &'static str = "completion channel";
    /// Its descriptor stays open, as in the kernel.
    const OUTLIVES_CONTEXT: bool = true;

    fn identity(c: &ibv_comp_channel) -> HandleIdentity {
        HandleIdentity::new(c.context, 0)
    }
}

impl DataPathObject for CompChannel {
    #[inline]
    fn generation(&self) -> Generation {
        self.generation
    }
}

impl CompChannel {
    /// Creates a channel without queues.
    ///
    /// # Errors
    /// Fails if no descriptors are available.
    pub(crate) fn new(context: *mut ibv_context) -> Result<CompChannel, Errno> {
        let channel = Arc::new(CompletionChannel::new()?);
        let c = ibv_comp_channel { context, fd: channel.as_fd().as_raw_fd(), refcnt: 0 };
        Ok(CompChannel { c: SharedStruct::new(c), generation: Generation::own(), channel })
    }

    /// Returns the descriptor that is readable when there is an event.
    pub(crate) fn descriptor(&self) -> std::ffi::c_int {
        shown!(self.c, fd)
    }

    pub(crate) const fn channel(&self) -> &Arc<CompletionChannel> {
        &self.channel
    }

    /// Returns its context.
    pub(crate) fn context(&self) -> Result<Arc<Context>, Errno> {
        Context::of(shown!(self.c, context))
    }

    /// Waits for an event for the slice of an attempt, driving the HCA meanwhile.
    ///
    /// # Errors
    /// Fails with EAGAIN if there is none and the descriptor is O_NONBLOCK, with EINTR if a signal handler
    /// ran, and with RESTART after the slice.
    pub(crate) fn next(&self) -> Result<CqEvent, Errno> {
        if let Some(event) = self.channel.try_event() {
            outside::world::waits_without_end(None);
            return Ok(event);
        }
        if descriptors::is_nonblocking(self.channel.as_fd()) {
            return Err(Errno(libc::EAGAIN));
        }
        let context = self.context()?;
        let ends = attempt_ends();
        let left = ends.map(|end| end.saturating_duration_since(outside::now()));
        let event = context.hca().wait_cq_event_or_signal(&self.channel, left);
        // If it returns too early, a signal handler ran: its program may want to do something else now.
        let over = ends.is_some_and(|end| end <= outside::now());
        if event.is_some() || !over {
            outside::world::waits_without_end(None);
        }
        event.ok_or(if over { RESTART } else { Errno(libc::EINTR) })
    }
}
