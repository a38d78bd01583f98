//! The log: sentences about what went wrong, for the operator.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pumice_events::{Event, Subscriber, Topics};
use pumice_ground::error::ResourceError;
use pumice_transport::event::QpEvent;
use pumice_transport::host::QpContext;
use pumice_transport::types::Cause;

use super::relay::Relay;

/// Causes that wait to be written; beyond that they are dropped, and the counters tell the rest.
const WAITING: usize = 1024;

/// Is told why queue pairs fail and messages are dropped.
pub type LogHook = Box<dyn Fn(&QpContext, &Cause) + Send>;

/// Hands causes to a hook.
pub struct LogSubscriber(Way);

enum Way {
    Thread(Relay<(QpContext, Cause)>),
    AtOnce(Mutex<LogHook>),
}

impl LogSubscriber {
    /// Calls the hook on a thread of its own, without locks: it may take its time, and may call the device.
    ///
    /// # Errors
    /// The operating system has no thread to give.
    pub fn on_thread(hook: LogHook) -> Result<LogSubscriber, ResourceError> {
        let take = move |(context, cause): (QpContext, Cause), _lost: u64| hook(&context, &cause);
        Ok(LogSubscriber(Way::Thread(Relay::start("pumice-log", WAITING, take)?)))
    }

    /// Calls the hook inside the call that caused it: for virtual time.
    pub fn at_once(hook: LogHook) -> LogSubscriber {
        LogSubscriber(Way::AtOnce(Mutex::new(hook)))
    }
}

impl Subscriber for LogSubscriber {
    fn topics(&self) -> Topics {
        Topics::LOG
    }

    fn hear(&self, _at_ns: u64, event: &Event<'_>) {
        let Event::Qp { qp, event: QpEvent::Logged(cause) } = event else { return };
        match &self.0 {
            Way::Thread(relay) => relay.send((**qp, **cause)),
            Way::AtOnce(hook) => hook.lock().unwrap_or_else(PoisonError::into_inner)(qp, cause),
        }
    }

    fn settle(&self, patience: Duration) {
        if let Way::Thread(relay) = &self.0 {
            relay.settle(patience);
        }
    }

    fn finish(&self) {
        if let Way::Thread(relay) = &self.0 {
            relay.finish();
        }
    }
}
