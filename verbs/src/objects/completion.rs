//! Completion queues and completion channels.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use pumice_calls::Call;
use pumice_device::hca::{CqSetup, Hca};
use pumice_device::objects::completion_channel::{CompletionChannel as DeviceChannel, CqEvent};
use pumice_device::objects::completion_queue::CompletionQueue as DeviceQueue;
use pumice_device::platform::table::Handle;
use pumice_transport::types::WorkCompletion;

use crate::check::{DeviceCheck, WAIT_CHECK_INTERVAL};
use crate::device::Device;
use crate::device::calls::gated_call;
use crate::error::{Result, VerbsError};

/// Longest wait that 64 bits of nanoseconds hold: longer timeouts are cut to it.
const MAX_WAIT: Duration = Duration::from_nanos(u64::MAX);

/// A completion queue. Cheap to clone; destroyed with its last clone and the last queue that reports to it.
#[derive(Debug, Clone)]
pub struct CompletionQueue(Arc<CqInner>);

#[derive(Debug)]
struct CqInner {
    queue: Arc<DeviceQueue>,
    hca: Arc<Hca>,
    device: Device,
    channel: Option<CompletionChannel>,
}

/// The completions that raise an event of an armed queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notify {
    /// The next completion.
    Any,
    /// The next completion that is unsuccessful, or received from a sender that asked for it
    /// ([`crate::SendRequest::solicited`]).
    Solicited,
}

impl Device {
    /// Creates a completion queue of `depth` entries. It must hold all completions that can be outstanding:
    /// one that overruns is lost, with the queue pairs that use it.
    ///
    /// # Errors
    /// `Refused`: the depth is 0 or more than `max_cqe`.
    pub fn completion_queue(&self, depth: u32) -> Result<CompletionQueue> {
        CompletionQueue::new(self, depth, None, 0)
    }

    /// Creates a completion channel, for programs that sleep instead of polling.
    ///
    /// # Errors
    /// `Refused`: no file descriptor is available.
    pub fn completion_channel(&self) -> Result<CompletionChannel> {
        CompletionChannel::new(self)
    }
}

impl CompletionQueue {
    fn new(
        device: &Device,
        depth: u32,
        channel: Option<&CompletionChannel>,
        cookie: u64,
    ) -> Result<CompletionQueue> {
        let setup = CqSetup {
            depth,
            cookie,
            channel: channel.map(|channel| Arc::clone(&channel.0.channel)),
            ..CqSetup::default()
        };
        let hca = Arc::clone(device.shared_hca());
        let queue = gated_call(device, Call::ibv_create_cq, || {
            hca.create_cq(setup).map_err(VerbsError::refused("completion queue"))
        })?;
        if let Some(channel) = channel {
            channel.0.queues().push(Arc::downgrade(&queue));
        }
        if let Some(check) = device.check() {
            let at = channel.map_or(0, |channel| address_of(&channel.0.channel));
            check.cq_made(address_of(&queue), queue.handle().index, queue.depth(), at);
        }
        Ok(CompletionQueue(Arc::new(CqInner {
            queue,
            hca,
            device: device.clone(),
            channel: channel.cloned(),
        })))
    }

    /// Takes completions, oldest first, into `out`, and returns their number. Polling an empty queue drives
    /// the device once, and lets other threads run if there was nothing to do. A poll cannot fail, so rules
    /// of fault plans do not apply to it; those for `ibv_poll_cq` apply to [`CompletionQueue::wait`] and the
    /// other waits.
    #[inline]
    pub fn poll(&self, out: &mut [WorkCompletion]) -> usize {
        let found = self.0.hca.poll_cq(&self.0.queue, out);
        if found == 0 {
            self.count_empty_poll();
        }
        found
    }

    #[inline]
    fn count_empty_poll(&self) {
        if let Some(check) = self.0.device.check() {
            check.cq_polled(address_of(&self.0.queue));
        }
    }

    /// Polls until there are completions, and returns their number, at least one. On a simulated device
    /// virtual time passes.
    ///
    /// # Errors
    /// `TimedOut`; `Invalid` if `out` is empty, or if the queue overran and what it held has been polled.
    pub fn wait(&self, out: &mut [WorkCompletion], timeout: Duration) -> Result<usize> {
        if out.is_empty() {
            return Err(VerbsError::Invalid {
                object: "completion queue",
                attribute: "out",
                problem: "has no room".to_owned(),
                remedy: "give room for at least one completion",
            });
        }
        gated_call(&self.0.device, Call::ibv_poll_cq, || {
            self.0.device.spin("completion", timeout, || match self.poll(out) {
                0 if self.is_failed() => Some(Err(overran())),
                0 => None,
                count => Some(Ok(count)),
            })?
        })
    }

    /// Polls until there is a completion, successful or not.
    ///
    /// # Errors
    /// `TimedOut`.
    pub fn wait_one(&self, timeout: Duration) -> Result<WorkCompletion> {
        let mut one = [WorkCompletion::default()];
        self.wait(&mut one, timeout)?;
        let [one] = one;
        Ok(one)
    }

    /// Polls until there is a completion, which must be successful.
    ///
    /// # Errors
    /// `TimedOut`; `Completed` if it is unsuccessful.
    pub fn wait_success(&self, timeout: Duration) -> Result<WorkCompletion> {
        Ok(self.wait_one(timeout)?.into_result()?)
    }

    /// Arms the queue for one event on the channel at a later completion. Completions that are already there
    /// do not count: poll once more after arming, then wait.
    ///
    /// # Errors
    /// `Invalid`: the queue was created without a channel, or overran.
    pub fn arm(&self, notify: Notify) -> Result<()> {
        gated_call(&self.0.device, Call::ibv_req_notify_cq, || self.request_notify(notify))
    }

    pub(crate) fn request_notify(&self, notify: Notify) -> Result<()> {
        if self.0.channel.is_none() {
            return Err(VerbsError::Invalid {
                object: "completion queue",
                attribute: "channel",
                problem: "is missing".to_owned(),
                remedy: "make the queue with CompletionChannel::completion_queue",
            });
        }
        if self.is_failed() {
            return Err(overran());
        }
        self.0.hca.req_notify_cq(&self.0.queue, notify == Notify::Solicited);
        Ok(())
    }

    /// Changes the number of entries; completions in the queue stay.
    ///
    /// # Errors
    /// `Refused`: out of range, or less than it holds.
    pub fn resize(&self, depth: u32) -> Result<()> {
        gated_call(&self.0.device, Call::ibv_resize_cq, || {
            let resized = self.0.hca.resize_cq(self.0.queue.handle(), depth);
            if let (Some(check), Ok(())) = (self.0.device.check(), &resized) {
                check.cq_resized(self.0.queue.handle().index, self.0.queue.depth());
            }
            resized.map_err(VerbsError::refused("completion queue"))
        })
    }

    /// Returns the number of entries that fit.
    pub fn depth(&self) -> u32 {
        self.0.queue.depth()
    }

    /// Returns the number of completions that wait to be polled.
    pub fn len(&self) -> usize {
        self.0.queue.len()
    }

    /// Reports whether no completions wait.
    pub fn is_empty(&self) -> bool {
        self.0.queue.is_empty()
    }

    /// Reports whether the queue overran and takes no more completions.
    pub fn is_failed(&self) -> bool {
        self.0.queue.is_failed()
    }

    /// Returns the device of the queue.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Returns the channel that the queue reports to.
    pub fn channel(&self) -> Option<&CompletionChannel> {
        self.0.channel.as_ref()
    }

    /// Returns the handle that names the queue in calls of [`Device::hca`].
    pub fn handle(&self) -> Handle {
        self.0.queue.handle()
    }
}

/// Returns the address by which the check of a device knows an object.
fn address_of<T>(object: &Arc<T>) -> u64 {
    Arc::as_ptr(object).addr() as u64
}

/// Returns the error for a queue that overran: no completion will ever come.
pub(crate) fn overran() -> VerbsError {
    VerbsError::Invalid {
        object: "completion queue",
        attribute: "depth",
        problem: "was too little: the queue overran and takes nothing any more".to_owned(),
        remedy: "make a deeper one, and poll as fast as requests complete",
    }
}

impl Drop for CqInner {
    fn drop(&mut self) {
        // All its users held it alive. Destroying blocks while another thread is between getting an event and
        // acknowledging it, which is inside `CompletionChannel::wait`.
        if !self.hca.is_own() {
            return;
        }
        if let Some(check) = self.device.check() {
            check.cq_destroyed(address_of(&self.queue), self.queue.handle().index);
        }
        let _ = self.hca.destroy_cq(self.queue.handle());
        if let Some(channel) = &self.channel {
            let destroyed = self.queue.handle();
            channel
                .0
                .queues()
                .retain(|queue| queue.upgrade().is_some_and(|queue| queue.handle() != destroyed));
        }
    }
}

/// A channel to which armed completion queues report. Cheap to clone; lives as long as its last clone and
/// queue.
#[derive(Debug, Clone)]
pub struct CompletionChannel(Arc<ChannelInner>);

#[derive(Debug)]
struct ChannelInner {
    channel: Arc<DeviceChannel>,
    device: Device,
    /// Queues that report here, whose events are to be acknowledged.
    queues: Mutex<Vec<Weak<DeviceQueue>>>,
}

/// The event of an armed completion queue, which is already acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompletionEvent {
    /// Handle of the queue.
    pub queue: Handle,
    /// Cookie of the queue, which was set when it was created.
    pub cookie: u64,
}

impl CompletionChannel {
    fn new(device: &Device) -> Result<CompletionChannel> {
        let channel = gated_call(device, Call::ibv_create_comp_channel, || {
            DeviceChannel::new().map_err(|error| VerbsError::refused("completion channel")(error.into()))
        })?;
        let (channel, queues) = (Arc::new(channel), Mutex::default());
        Ok(CompletionChannel(Arc::new(ChannelInner { channel, device: device.clone(), queues })))
    }

    /// Creates a completion queue that reports here; its events carry `cookie`.
    ///
    /// # Errors
    /// The errors of [`Device::completion_queue`].
    pub fn completion_queue(&self, depth: u32, cookie: u64) -> Result<CompletionQueue> {
        CompletionQueue::new(&self.0.device, depth, Some(self), cookie)
    }

    /// Sleeps until an armed queue raises an event. The calling thread drives the device meanwhile; on a
    /// simulated device virtual time passes.
    ///
    /// # Errors
    /// `TimedOut`.
    pub fn wait(&self, timeout: Duration) -> Result<CompletionEvent> {
        gated_call(&self.0.device, Call::ibv_get_cq_event, || self.next(timeout))
    }

    fn next(&self, timeout: Duration) -> Result<CompletionEvent> {
        let event = match self.0.device.check() {
            None => self.attempt(timeout),
            Some(check) => self.attempt_with_checks(timeout, check),
        };
        let event = event.ok_or(VerbsError::TimedOut { awaited: "completion event", after: timeout })?;
        Ok(self.acknowledged(event))
    }

    /// Takes the oldest event, if there is one: for programs that sleep on the descriptor. Rules of fault
    /// plans do not apply to it: those for `ibv_get_cq_event` apply to [`CompletionChannel::wait`].
    pub fn try_event(&self) -> Option<CompletionEvent> {
        self.0.channel.try_event().map(|event| self.acknowledged(event))
    }

    /// Returns the device of the channel.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    fn acknowledged(&self, event: CqEvent) -> CompletionEvent {
        let queue = self.0.queues().iter().filter_map(Weak::upgrade).find(|queue| queue.handle() == event.cq);
        if let Some(queue) = queue {
            queue.ack_events(1);
        }
        CompletionEvent { queue: event.cq, cookie: event.cookie }
    }

    fn attempt(&self, timeout: Duration) -> Option<CqEvent> {
        let device = &self.0.device;
        if let Some(simulation) = device.simulation() {
            simulation.wait(timeout, || self.0.channel.try_event())
        } else {
            device.hca().wait_cq_event(&self.0.channel, Some(timeout.min(MAX_WAIT)))
        }
    }

    /// Waits for an event as [`CompletionChannel::attempt`] does, in slices, after each of which the check
    /// examines whether the wait can ever end.
    fn attempt_with_checks(&self, timeout: Duration, check: &DeviceCheck) -> Option<CqEvent> {
        let mut waited = Duration::ZERO;
        loop {
            let slice = WAIT_CHECK_INTERVAL.min(timeout.saturating_sub(waited));
            let event = self.attempt(slice);
            waited = waited.saturating_add(WAIT_CHECK_INTERVAL);
            if event.is_some() || waited >= timeout {
                return event;
            }
            check.sleeps(address_of(&self.0.channel), waited);
        }
    }
}

impl ChannelInner {
    fn queues(&self) -> MutexGuard<'_, Vec<Weak<DeviceQueue>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for CompletionChannel {
    /// Returns a descriptor that is readable while events wait: for poll(2) and similar calls. Only the
    /// device's background thread drives the device while the caller sleeps there.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.channel.as_fd()
    }
}
