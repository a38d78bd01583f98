//! Small subscribers that every device may have: the log, printed steps, the report of what a fault plan did,
//! and the rules of a plan that wait for an event.

mod awaited;
mod fault_reporter;
mod log;
mod relay;
mod steps;

pub use awaited::AwaitedEvents;
pub use fault_reporter::{FaultOrigin, FaultReporter, ReportSource, ReportWriter, UnusedRules};
pub use log::{LogHook, LogSubscriber};
pub use pumice_model::event::fault_words::fault_in_words;
pub use steps::{StepHook, StepSubscriber};
