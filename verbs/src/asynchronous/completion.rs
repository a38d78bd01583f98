//! Futures for completions.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Context;

use pumice_calls::Call;
use pumice_transport::types::WorkCompletion;

use super::readiness::Readiness;
use super::waiters::Waiters;
use crate::device::Device;
use crate::device::calls::gated_call;
use crate::error::{Result, VerbsError};
use crate::objects::completion::{CompletionChannel, CompletionQueue, Notify, overran};

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
