//! Futures for completions, events and connections, to wait without blocking a thread.
//!
//! The futures depend on no runtime: they run on tokio, smol, or any other executor. On a real network a
//! thread of the crate `async-io` sleeps on the file descriptors and wakes the tasks; the device's background
//! thread receives and sends packets meanwhile. A future that is dropped has taken nothing: what it waited
//! for is still there.
//!
//! On a simulated device a future that waits lets virtual time pass, one thing at a time, and other tasks run
//! in between. So a run on an executor of one thread is the same each time. A future ends with
//! [`VerbsError::Stalled`] if nothing is left to happen, and other tasks have not
//! changed that; no task of such a run may wait for real time.
//!
//! ```
//! use pumice_verbs::asynchronous::AsyncCompletionQueue;
//! use pumice_verbs::{FabricConfig, RcQueuePair, RecvRequest, Result, SendRequest, Simulation};
//!
//! # fn main() -> Result<()> {
//! # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
//! # runtime.block_on(async {
//! let simulation = Simulation::new(FabricConfig::default());
//! let side = |address: &str| -> Result<_> {
//!     let device = simulation.device(address.parse().unwrap())?;
//!     let domain = device.protection_domain()?;
//!     let cq = AsyncCompletionQueue::new(&device, 16)?;
//!     let qp = RcQueuePair::builder(&domain, cq.queue(), cq.queue()).build()?;
//!     Ok((qp, cq))
//! };
//! let (ping, ping_cq) = side("10.0.0.1")?;
//! let (pong, pong_cq) = side("10.0.0.2")?;
//! ping.connect(&pong.endpoint(), &Default::default())?;
//! pong.connect(&ping.endpoint(), &Default::default())?;
//! pong.post_recv(&RecvRequest { wr_id: 1, sges: &[] })?;
//! ping.post_send(&SendRequest::send(&[]).wr_id(7).signaled())?;
//! let (sent, received) = tokio::join!(ping_cq.of(7), pong_cq.success());
//! assert_eq!((sent?.wr_id, received?.wr_id), (7, 1));
//! # Ok(())
//! # })
//! # }
//! ```
//!
//! Futures for completions, and tasks that wait for what another task may take on their behalf.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use pumice_calls::Call;
use pumice_transport::types::WorkCompletion;

use self::event::Readiness;
use crate::device::Device;
use crate::device::calls::gated_call;
use crate::error::{Result, VerbsError};
use crate::objects::completion::{CompletionChannel, CompletionQueue, Notify, overran};

/// Maximum number of tasks that are stored; further ones are woken at once, and check again.
const MAX_WAITERS: usize = 1024;

/// The tasks.
#[derive(Debug, Default)]
struct Waiters(Vec<Waker>);

impl Waiters {
    /// Adds the task.
    fn add(&mut self, context: &Context<'_>) {
        let waker = context.waker();
        if self.0.iter().any(|known| known.will_wake(waker)) {
            return;
        }
        if self.0.len() >= MAX_WAITERS {
            self.wake();
        }
        self.0.push(waker.clone());
    }

    /// Wakes all tasks.
    fn wake(&mut self) {
        self.0.drain(..).for_each(Waker::wake);
    }
}

/// Number of completions that are taken from the queue at a time.
const BATCH: usize = 16;

/// A completion queue whose completions are awaited. Any number of tasks may wait: each for the next
/// completion, or for that of one request ([`AsyncCompletionQueue::of`]), but not both on one queue.
///
/// It takes completions for all of its tasks, so [`AsyncCompletionQueue::queue`] is for making queue pairs,
/// not for polling.
#[derive(Debug)]
pub struct AsyncCompletionQueue {
    queue: CompletionQueue,
    channel: CompletionChannel,
    readiness: Readiness,
    state: Mutex<AsyncCqState>,
}

#[derive(Debug, Default)]
struct AsyncCqState {
    /// Completions that were taken from the queue and that no task has received yet; at most as many as the
    /// queue is deep.
    buffered: VecDeque<WorkCompletion>,
    waiters: Waiters,
}

impl AsyncCompletionQueue {
    /// Creates a completion queue of `depth` entries, with a channel of its own.
    ///
    /// # Errors
    /// The errors of [`Device::completion_queue`] and [`Device::completion_channel`]. `Os`: no file
    /// descriptor is available.
    pub fn new(device: &Device, depth: u32) -> Result<AsyncCompletionQueue> {
        use std::os::fd::AsFd as _;
        let channel = device.completion_channel()?;
        let queue = channel.completion_queue(depth, 0)?;
        let readiness = Readiness::new(device, channel.as_fd())?;
        Ok(AsyncCompletionQueue { queue, channel, readiness, state: Mutex::default() })
    }

    /// Returns the queue, for builders of queue pairs.
    pub fn queue(&self) -> &CompletionQueue {
        &self.queue
    }

    /// Waits for the next completion, successful or not.
    ///
    /// # Errors
    /// `Invalid`: the queue overran. `Stalled`.
    pub async fn next(&self) -> Result<WorkCompletion> {
        self.first(|_| true).await
    }

    /// Waits for the next completion, which must be successful.
    ///
    /// # Errors
    /// `Completed`: it is unsuccessful. The errors of [`AsyncCompletionQueue::next`].
    pub async fn success(&self) -> Result<WorkCompletion> {
        Ok(self.next().await?.into_result()?)
    }

    /// Waits for the completion of the request with this `wr_id`, which must be successful. The completions
    /// of other requests stay for the tasks that wait for those.
    ///
    /// # Errors
    /// `Completed`: it is unsuccessful. `Invalid`: the queue overran, or holds as many completions for which
    /// no task waits as it is deep. `Stalled`.
    pub async fn of(&self, wr_id: u64) -> Result<WorkCompletion> {
        Ok(self.first(|completion| completion.wr_id == wr_id).await?.into_result()?)
    }

    /// Waits for the first completion that satisfies `wanted`.
    async fn first(&self, wanted: impl Fn(&WorkCompletion) -> bool) -> Result<WorkCompletion> {
        gated_call(self.queue.device(), Call::ibv_poll_cq, || Ok(()))?;
        self.readiness.until("completion", |context| self.attempt(context, &wanted)).await?
    }

    fn attempt(
        &self,
        context: &Context<'_>,
        wanted: &impl Fn(&WorkCompletion) -> bool,
    ) -> Option<Result<WorkCompletion>> {
        if let Some(found) = self.take(wanted) {
            return Some(found);
        }
        self.state().waiters.add(context);
        // The events of completions that were taken since are discarded, so that the descriptor only reports
        // new ones.
        while self.channel.try_event().is_some() {}
        if let Err(error) = self.queue.request_notify(Notify::Any) {
            return Some(Err(error));
        }
        // A completion that came before the queue was armed raises no event.
        self.take(wanted)
    }

    /// Takes a wanted completion from those that are available.
    fn take(&self, wanted: &impl Fn(&WorkCompletion) -> bool) -> Option<Result<WorkCompletion>> {
        let mut state = self.state();
        loop {
            if let Some(at) = state.buffered.iter().position(wanted) {
                return state.buffered.remove(at).map(Ok);
            }
            let room = (self.queue.depth() as usize).saturating_sub(state.buffered.len());
            let mut batch = [WorkCompletion::default(); BATCH];
            let part = batch.get_mut(..room.min(BATCH)).unwrap_or_default();
            if part.is_empty() {
                return Some(Err(unclaimed()));
            }
            let count = self.queue.poll(part);
            if count == 0 {
                return self.queue.is_failed().then(|| Err(overran()));
            }
            state.buffered.extend(batch.into_iter().take(count));
            // Other tasks may wait for these completions.
            state.waiters.wake();
        }
    }

    fn state(&self) -> MutexGuard<'_, AsyncCqState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unclaimed() -> VerbsError {
    VerbsError::Invalid {
        object: "completion queue",
        attribute: "wr_id",
        problem: "of as many completions as the queue is deep is awaited by no task".to_owned(),
        remedy: "await each signaled request, or take all completions with next()",
    }
}

mod connection;
mod event;

pub use connection::{AsyncConnection, AsyncListener};
pub use event::{AsyncCompletionChannel, AsyncEvents};

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Counted(AtomicUsize);

    impl Wake for Counted {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_task_is_stored_once_and_woken_once() {
        let counted = Arc::new(Counted::default());
        let waker = Waker::from(Arc::clone(&counted));
        let mut waiters = Waiters::default();
        for _ in 0..3 {
            waiters.add(&Context::from_waker(&waker));
        }
        waiters.wake();
        waiters.wake();
        assert_eq!(counted.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn of_many_tasks_a_bounded_number_is_stored() {
        let mut waiters = Waiters::default();
        let tasks: Vec<_> = (0..MAX_WAITERS + 7).map(|_| Arc::new(Counted::default())).collect();
        for task in &tasks {
            waiters.add(&Context::from_waker(&Waker::from(Arc::clone(task))));
        }
        assert_eq!(waiters.0.len(), 7);
        waiters.wake();
        assert!(tasks.iter().all(|task| task.0.load(Ordering::Relaxed) == 1));
    }
}
