//! Explanations leave the engine by a channel: whoever writes them to a terminal or a log may take
//! its time, and may call the device, without the engine's lock being held.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::bounded;
use pumice_transport::host::QpContext;
use pumice_transport::types::Cause;

use crate::ground::awaited::Awaited;
use crate::ground::error::ResourceError;
use crate::resources::ExplainHook;

/// Explanations that wait to be written; beyond that they are dropped, because a peer can cause them.
const WAITING: usize = 1024;

/// The thread that hands explanations to their hook. It ends when the engine's side is dropped.
pub(crate) struct Explainer {
    thread: JoinHandle<()>,
    /// Explanations that are not written yet.
    waiting: Arc<Awaited<usize>>,
}

impl Explainer {
    /// Starts the thread; the result is the hook for the engine, which never blocks.
    ///
    /// # Errors
    /// The operating system has no thread to give.
    pub(crate) fn start(hook: ExplainHook) -> Result<(ExplainHook, Explainer), ResourceError> {
        let (sender, receiver) = bounded::<(QpContext, Cause)>(WAITING);
        let waiting = Arc::new(Awaited::new(0_usize));
        let written = Arc::clone(&waiting);
        let write = move || {
            for (context, cause) in &receiver {
                hook(&context, &cause);
                written.change(|waiting| *waiting = waiting.saturating_sub(1));
            }
        };
        let thread =
            std::thread::Builder::new().name("pumice-log".to_owned()).spawn(write).map_err(|error| {
                ResourceError::Os {
                    what: "start the thread that writes explanations",
                    errno: error.raw_os_error().unwrap_or(libc::EAGAIN),
                }
            })?;
        let counted = Arc::clone(&waiting);
        let send: ExplainHook = Box::new(move |context, cause| {
            counted.change(|waiting| *waiting += 1);
            // Full: the reader is too slow for this flood, and the counters tell the rest.
            if sender.try_send((*context, *cause)).is_err() {
                counted.change(|waiting| *waiting = waiting.saturating_sub(1));
            }
        });
        Ok((send, Explainer { thread, waiting }))
    }

    /// Waits until everything so far has been written, or `patience` is over.
    pub(crate) fn settle(&self, patience: Duration) {
        // Late is as good as done: nobody waits longer.
        let _ = self.waiting.wait_for(patience, |waiting| *waiting == 0);
    }

    /// Waits until everything has been written. The engine's hook must be gone.
    pub(crate) fn finish(self) {
        // A panic in the hook has been reported where it happened.
        let _ = self.thread.join();
    }
}
