//! Small subscribers that every device may have: the log, printed steps, the report of what a fault plan did,
//! and the rules of a plan that wait for an event.

mod fault_reporter;
mod log;

pub use fault_reporter::{
    AwaitedEvents, FaultOrigin, FaultReporter, ReportSource, ReportWriter, UnusedRules,
};
pub use log::{LogHook, LogSubscriber, StepHook, StepSubscriber};
pub use pumice_model::event::kinds::fault_in_words;
