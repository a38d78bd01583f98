//! The end of a world.

use std::collections::BTreeMap;

use crate::certificate::Certificate;
use crate::options::Departure;

/// The end of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The process exited with this code.
    Code(i32),
    /// A signal ended the process.
    Signal(i32),
}

/// The end of a world, and the facts about its run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// End of the first program.
    pub exit: Exit,
    /// Certificate that says whether the run repeats.
    pub certificate: Certificate,
    /// Duration by the clock of the world, in ns.
    pub virtual_ns: u64,
    /// Number of events of the run.
    pub events: u64,
    /// Departures of the schedule from the plain order, each with a description.
    pub departures: BTreeMap<u64, (Departure, String)>,
}
