//! Small subscribers that every device may have: the log, printed steps, the report of what a fault plan did,
//! and the rules of a plan that wait for an event.
//!
//! The log, the steps of queue pairs as lines, and the channel by which they leave the engine.
//!
//! A channel by which items of a subscriber leave the engine, so that a slow terminal does not hold the
//! engine's lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Sender, bounded};
use pumice_model::event::{Event, Subscriber, Topics};
use pumice_platform::error::ResourceError;
use pumice_platform::event_queue::Awaited;
use pumice_platform::outside::thread::start_without_signals;
use pumice_transport::event::QpEvent;
use pumice_transport::host::QpContext;
use pumice_transport::types::Cause;

enum RelayMessage<T> {
    Item(T),
    End,
}

/// A thread that takes items one by one. Items that it is too slow for are lost, and counted: a peer can
/// cause any number of them.
struct RelayThread<T> {
    sender: Sender<RelayMessage<T>>,
    /// Number of items that are not taken yet.
    waiting: Arc<Awaited<usize>>,
    lost: Arc<AtomicU64>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl<T: Send + 'static> RelayThread<T> {
    /// Starts the thread. `take` gets each item, and how many were lost before it.
    ///
    /// # Errors
    /// Fails if the operating system has no thread to give.
    fn start(
        name: &str,
        capacity: usize,
        mut take: impl FnMut(T, u64) + Send + 'static,
    ) -> Result<RelayThread<T>, ResourceError> {
        let (sender, receiver) = bounded::<RelayMessage<T>>(capacity);
        let (lost, waiting) = (Arc::new(AtomicU64::new(0)), Arc::new(Awaited::new(0_usize)));
        let (lost_here, taken) = (Arc::clone(&lost), Arc::clone(&waiting));
        let run = move || {
            while let Ok(RelayMessage::Item(item)) = receiver.recv() {
                take(item, lost_here.swap(0, Ordering::Relaxed));
                taken.change(|waiting| *waiting = waiting.saturating_sub(1));
            }
        };
        let started = start_without_signals(name, run);
        let thread = started.map_err(|error| ResourceError::Os {
            what: "start a thread that writes what happens",
            errno: error.raw_os_error().unwrap_or(libc::EAGAIN),
        })?;
        Ok(RelayThread { sender, waiting, lost, thread: Mutex::new(Some(thread)) })
    }

    /// Sends an item to the thread, without waiting.
    fn send(&self, item: T) {
        self.waiting.change(|waiting| *waiting += 1);
        if self.sender.try_send(RelayMessage::Item(item)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
            self.waiting.change(|waiting| *waiting = waiting.saturating_sub(1));
        }
    }

    /// Waits until everything so far has been taken, or until `patience` is over.
    fn settle(&self, patience: Duration) {
        // An item that is still not taken is late, not lost.
        let _ = self.waiting.wait_for(patience, |waiting| *waiting == 0);
    }

    /// Waits until everything has been taken, and ends the thread.
    fn finish(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // Neither fails unless the thread has panicked, which was reported where it happened.
            let _ = self.sender.send(RelayMessage::End);
            let _ = thread.join();
        }
    }
}

/// Number of lines that may wait to be written; further ones are lost, and counted.
const WAITING_STEPS: usize = 65_536;

/// A function that takes lines, on a thread of its own.
pub type StepHook = Box<dyn Fn(&str) + Send>;

/// A subscriber that makes a line of every step of the queue pairs but the packets, of which there are too
/// many.
pub struct StepSubscriber(RelayThread<String>);

impl StepSubscriber {
    /// Starts the thread that passes lines to the hook.
    ///
    /// # Errors
    /// Fails if the operating system has no thread to give.
    pub fn on_thread(hook: StepHook) -> Result<StepSubscriber, ResourceError> {
        let take = move |line: String, lost: u64| {
            if lost > 0 {
                hook(&format!("{lost} steps were lost here: they came faster than they are written"));
            }
            hook(&line);
        };
        RelayThread::start("pumice-steps", WAITING_STEPS, take).map(StepSubscriber)
    }
}

impl Subscriber for StepSubscriber {
    fn topics(&self) -> Topics {
        Topics::STATES | Topics::POSTS | Topics::DROPS | Topics::RECOVERY | Topics::COMPLETIONS
    }

    fn on_event(&self, _at_ns: u64, event: &Event<'_>) {
        if let Event::Qp { qp, event } = event {
            self.0.send(format!("qp {}  {event}", qp.qpn));
        }
    }

    fn settle(&self, patience: Duration) {
        self.0.settle(patience);
    }

    fn finish(&self) {
        self.0.finish();
    }
}

/// Number of causes that may wait to be written; further ones are dropped, and show only in the counters.
const WAITING: usize = 1024;

/// A function that is called with the reason why a queue pair failed or a message was dropped.
pub type LogHook = Box<dyn Fn(&QpContext, &Cause) + Send>;

/// A subscriber that passes causes to a hook.
pub struct LogSubscriber(LogDelivery);

enum LogDelivery {
    Thread(RelayThread<(QpContext, Cause)>),
    AtOnce(Mutex<LogHook>),
}

impl LogSubscriber {
    /// Calls the hook on a thread of its own, without locks: it may take its time, and may call the device.
    ///
    /// # Errors
    /// Fails if the operating system has no thread to give.
    pub fn on_thread(hook: LogHook) -> Result<LogSubscriber, ResourceError> {
        let take = move |(context, cause): (QpContext, Cause), _lost: u64| hook(&context, &cause);
        Ok(LogSubscriber(LogDelivery::Thread(RelayThread::start("pumice-log", WAITING, take)?)))
    }

    /// Calls the hook inside the call that caused it: for virtual time.
    pub fn at_once(hook: LogHook) -> LogSubscriber {
        LogSubscriber(LogDelivery::AtOnce(Mutex::new(hook)))
    }
}

impl Subscriber for LogSubscriber {
    fn topics(&self) -> Topics {
        Topics::LOG
    }

    fn on_event(&self, _at_ns: u64, event: &Event<'_>) {
        let Event::Qp { qp, event: QpEvent::Logged(cause) } = event else { return };
        match &self.0 {
            LogDelivery::Thread(relay) => relay.send((**qp, **cause)),
            LogDelivery::AtOnce(hook) => hook.lock().unwrap_or_else(PoisonError::into_inner)(qp, cause),
        }
    }

    fn settle(&self, patience: Duration) {
        if let LogDelivery::Thread(relay) = &self.0 {
            relay.settle(patience);
        }
    }

    fn finish(&self) {
        if let LogDelivery::Thread(relay) = &self.0 {
            relay.finish();
        }
    }
}

mod fault_reporter;

pub use fault_reporter::{
    AwaitedEvents, FaultOrigin, FaultReporter, ReportSource, ReportWriter, UnusedRules,
};

pub use pumice_model::event::fault_in_words;
