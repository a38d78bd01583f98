//! Lines of a trace leave the engine by a channel, so that a slow terminal does not hold the engine's lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::bounded;
use pumice_transport::host::QpContext;
use pumice_transport::trace::TraceEvent;

use crate::ground::awaited::Awaited;
use crate::ground::error::ResourceError;
use crate::resources::{TraceHook, TraceSink};

/// Lines that wait to be written; beyond that they are lost, and counted.
const WAITING: usize = 65_536;

/// The thread that hands lines to their sink. It ends when the engine's side is dropped.
pub(crate) struct Tracer {
    thread: JoinHandle<()>,
    /// Lines that are not written yet.
    waiting: Arc<Awaited<usize>>,
}

impl Tracer {
    /// Starts the thread; the result is the hook for the engine, which never blocks.
    ///
    /// # Errors
    /// The operating system has no thread to give.
    pub(crate) fn start(sink: TraceSink) -> Result<(TraceHook, Tracer), ResourceError> {
        let (sender, receiver) = bounded::<String>(WAITING);
        let lost = Arc::new(AtomicU64::new(0));
        let lost_here = Arc::clone(&lost);
        let waiting = Arc::new(Awaited::new(0_usize));
        let written = Arc::clone(&waiting);
        let write = move || {
            for line in &receiver {
                let lost = lost_here.swap(0, Ordering::Relaxed);
                if lost > 0 {
                    sink(&format!(
                        "{lost} lines of the trace were lost here: they came faster than they are written"
                    ));
                }
                sink(&line);
                written.change(|waiting| *waiting = waiting.saturating_sub(1));
            }
        };
        let thread =
            std::thread::Builder::new().name("pumice-trace".to_owned()).spawn(write).map_err(|error| {
                ResourceError::Os {
                    what: "start the thread that writes the trace",
                    errno: error.raw_os_error().unwrap_or(libc::EAGAIN),
                }
            })?;
        let counted = Arc::clone(&waiting);
        let send: TraceHook = Box::new(move |context: &QpContext, event: &TraceEvent<'_>| {
            counted.change(|waiting| *waiting += 1);
            if sender.try_send(format!("qp {}  {event}", context.qpn)).is_err() {
                lost.fetch_add(1, Ordering::Relaxed);
                counted.change(|waiting| *waiting = waiting.saturating_sub(1));
            }
        });
        Ok((send, Tracer { thread, waiting }))
    }

    /// Waits until everything so far has been written, or `patience` is over.
    pub(crate) fn settle(&self, patience: Duration) {
        // A line that is still not written is late, not lost.
        let _ = self.waiting.wait_for(patience, |waiting| *waiting == 0);
    }

    /// Waits until everything has been written. The engine's hook must be gone.
    pub(crate) fn finish(self) {
        // A panic in the sink has been reported where it happened.
        let _ = self.thread.join();
    }
}
