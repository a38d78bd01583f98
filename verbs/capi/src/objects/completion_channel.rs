//! Completion channels.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use pumice_device::objects::completion_channel::{CompletionChannel, CqEvent};
use pumice_device::outside;
use pumice_device::outside::lineage::Generation;

use super::context::Context;
use crate::ground::abi::{ibv_comp_channel, ibv_context};
use crate::ground::cancellation::{RESTART, attempt_ends};
use crate::ground::descriptors;
use crate::ground::errno::Errno;
use crate::ground::handles::{Held, Identity, Listed, OfProcess, Shown, shown};

/// A completion channel.
#[repr(C)]
pub(crate) struct Channel {
    c: Shown<ibv_comp_channel>,
    generation: Generation,
    channel: Arc<CompletionChannel>,
}

// SAFETY: the first field is the C structure.
unsafe impl Held for Channel {
    type C = ibv_comp_channel;
}

impl Listed for Channel {
    const KIND: &'static str = "completion channel";
    /// Its descriptor stays open, as a kernel's does.
    const OUTLIVES_CONTEXT: bool = true;

    fn identity(c: &ibv_comp_channel) -> Identity {
        Identity::new(c.context, 0)
    }
}

impl OfProcess for Channel {
    #[inline]
    fn generation(&self) -> Generation {
        self.generation
    }
}

impl Channel {
    /// A channel without queues.
    ///
    /// # Errors
    /// No descriptors are to be had.
    pub(crate) fn new(context: *mut ibv_context) -> Result<Channel, Errno> {
        let channel = Arc::new(CompletionChannel::new()?);
        let c = ibv_comp_channel { context, fd: channel.as_fd().as_raw_fd(), refcnt: 0 };
        Ok(Channel { c: Shown::new(c), generation: Generation::own(), channel })
    }

    pub(crate) const fn channel(&self) -> &Arc<CompletionChannel> {
        &self.channel
    }

    /// Its context.
    pub(crate) fn context(&self) -> Result<Arc<Context>, Errno> {
        Context::of(shown!(self.c, context))
    }

    /// Waits for an event for the slice of an attempt, driving the HCA meanwhile.
    ///
    /// # Errors
    /// EAGAIN: there is none, and the descriptor is O_NONBLOCK. EINTR: a signal handler ran. RESTART.
    pub(crate) fn next(&self) -> Result<CqEvent, Errno> {
        if let Some(event) = self.channel.try_event() {
            return Ok(event);
        }
        if descriptors::is_nonblocking(self.channel.as_fd()) {
            return Err(Errno(libc::EAGAIN));
        }
        let context = self.context()?;
        let ends = attempt_ends();
        let left = ends.map(|end| end.saturating_duration_since(outside::now()));
        let event = context.hca().wait_cq_event_or_signal(&self.channel, left);
        // A signal handler ran, if it is too early: its program may have something else to do now.
        let over = ends.is_some_and(|end| end <= outside::now());
        event.ok_or(if over { RESTART } else { Errno(libc::EINTR) })
    }
}
