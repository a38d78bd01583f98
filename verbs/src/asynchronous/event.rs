//! Futures for events of channels and devices, and what notifies futures of them.

use std::future::{Future as _, poll_fn};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::pin;
use std::task::{Context, Poll};

use async_io::Async;
use pumice_calls::Call;

use crate::device::calls::gated_call;
use crate::device::simulation::Simulation;
use crate::device::{AsyncEvent, Device};
use crate::error::{Result, VerbsError};
use crate::objects::completion::{CompletionChannel, CompletionEvent};

/// Number of turns of other tasks, while nothing is left to happen in a simulation, before a future gives up.
/// In each turn an executor may run any number of tasks; a task that has something to do does it in the first
/// turn.
const IDLE_TURNS: u32 = 1000;

/// A notification of futures that the source of their events may have one.
#[derive(Debug)]
pub(super) enum Readiness {
    /// A file descriptor, on which the thread of `async-io` sleeps.
    Descriptor(Async<OwnedFd>),
    /// Virtual time, which passes while futures wait.
    Simulation(Simulation),
}

impl Readiness {
    /// Creates the notification for events of this device that make the descriptor readable.
    ///
    /// # Errors
    /// `Os`: no file descriptor is available.
    pub(super) fn new(device: &Device, descriptor: BorrowedFd<'_>) -> Result<Readiness> {
        if let Some(simulation) = device.simulation() {
            return Ok(Readiness::Simulation(simulation.clone()));
        }
        // The descriptor is duplicated, because the set of descriptors on which the thread sleeps takes each
        // only once.
        let own = descriptor.try_clone_to_owned().and_then(Async::new_nonblocking);
        own.map(Readiness::Descriptor).map_err(refused)
    }

    /// Calls `attempt` until it returns something. Each poll of the future calls it at least once, with the
    /// task's context.
    ///
    /// # Errors
    /// `Os`: the descriptor cannot be waited for. `Stalled`: nothing is left to happen in the simulation.
    pub(super) async fn until<R>(
        &self,
        awaited: &'static str,
        mut attempt: impl FnMut(&mut Context<'_>) -> Option<R>,
    ) -> Result<R> {
        let mut idle_turns = 0;
        loop {
            let found = match self {
                Readiness::Descriptor(descriptor) => {
                    let mut readable = pin!(descriptor.readable());
                    poll_fn(|context| match attempt(context) {
                        Some(found) => Poll::Ready(Ok(Some(found))),
                        None => readable.as_mut().poll(context).map_ok(|()| None),
                    })
                    .await
                    .map_err(refused)?
                }
                Readiness::Simulation(simulation) => {
                    simulation.settle();
                    let found = poll_fn(|context| Poll::Ready(attempt(context))).await;
                    if found.is_none() {
                        idle_turns = if simulation.step() { 0 } else { idle_turns + 1 };
                        if idle_turns > IDLE_TURNS {
                            return Err(VerbsError::Stalled { awaited });
                        }
                        others_run().await;
                    }
                    found
                }
            };
            if let Some(found) = found {
                return Ok(found);
            }
        }
    }
}

/// Lets the executor run other tasks once.
async fn others_run() {
    let mut is_back = false;
    poll_fn(|context| {
        if is_back {
            return Poll::Ready(());
        }
        is_back = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

fn refused(source: std::io::Error) -> VerbsError {
    VerbsError::Os { task: "wait for a file descriptor", source }
}

/// A completion channel whose events are awaited: for queues that a program arms and polls itself.
#[derive(Debug)]
pub struct AsyncCompletionChannel {
    channel: CompletionChannel,
    readiness: Readiness,
}

impl AsyncCompletionChannel {
    /// Creates a channel whose events are awaited.
    ///
    /// # Errors
    /// `Os`: no file descriptor is available.
    pub fn new(channel: CompletionChannel) -> Result<AsyncCompletionChannel> {
        let readiness = Readiness::new(channel.device(), channel.as_fd())?;
        Ok(AsyncCompletionChannel { channel, readiness })
    }

    /// Returns the channel.
    pub fn channel(&self) -> &CompletionChannel {
        &self.channel
    }

    /// Waits for the next event of an armed queue.
    ///
    /// # Errors
    /// `Stalled`, `Os`.
    pub async fn event(&self) -> Result<CompletionEvent> {
        gated_call(self.channel.device(), Call::ibv_get_cq_event, || Ok(()))?;
        self.readiness.until("completion event", |_| self.channel.try_event()).await
    }
}

/// The asynchronous events of a device, awaited.
#[derive(Debug)]
pub struct AsyncEvents {
    device: Device,
    readiness: Readiness,
}

impl AsyncEvents {
    /// Creates the stream of asynchronous events of this device.
    ///
    /// # Errors
    /// `Os`: no file descriptor is available.
    pub fn new(device: &Device) -> Result<AsyncEvents> {
        let readiness = Readiness::new(device, device.hca().async_events().as_fd())?;
        Ok(AsyncEvents { device: device.clone(), readiness })
    }

    /// Waits for the next event: a queue pair's failure, an SRQ's limit, a change of the GID table.
    ///
    /// # Errors
    /// `Stalled`, `Os`.
    pub async fn event(&self) -> Result<AsyncEvent> {
        gated_call(&self.device, Call::ibv_get_async_event, || Ok(()))?;
        self.readiness.until("asynchronous event", |_| self.device.try_async_event()).await
    }
}

impl AsFd for AsyncEvents {
    /// Returns a descriptor that is readable while events wait.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.hca().async_events().as_fd()
    }
}
