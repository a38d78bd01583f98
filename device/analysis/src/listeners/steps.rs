//! Steps of queue pairs as lines, for an operator who asks for all of them (`--log debug`).

use std::time::Duration;

use pumice_model::event::{Event, Subscriber, Topics};
use pumice_platform::error::ResourceError;

use super::relay::RelayThread;

/// Number of lines that may wait to be written; further ones are lost, and counted.
const WAITING: usize = 65_536;

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
        RelayThread::start("pumice-steps", WAITING, take).map(StepSubscriber)
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
