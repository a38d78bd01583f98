//! Small listeners that every device may have: the log, printed steps, the report of what a fault plan did,
//! and the rules of a plan that wait for an event.

mod awaited;
mod log;
mod relay;
mod steps;
mod witness;

pub use awaited::AwaitedEvents;
pub use log::{LogHook, LogSubscriber};
pub use steps::{StepHook, StepSubscriber};
pub use witness::{FaultWitness, Faulted, ReportSource, ReportWriter, fault_in_words};
