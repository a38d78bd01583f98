//! Notifies futures when their source of events may have one.

use std::future::{Future as _, poll_fn};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::pin::pin;
use std::task::{Context, Poll};

use async_io::Async;

use crate::device::Device;
use crate::device::simulation::Simulation;
use crate::error::{Result, VerbsError};

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
