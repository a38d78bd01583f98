//! The log: sentences about what went wrong, for the operator.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pumice_model::event::{Event, Subscriber, Topics};
use pumice_platform::error::ResourceError;
use pumice_transport::event::QpEvent;
use pumice_transport::host::QpContext;
use pumice_transport::types::Cause;

use super::relay::RelayThread;

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
