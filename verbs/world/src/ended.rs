//! How a world ended.

use std::collections::BTreeMap;

use crate::certificate::Certificate;
use crate::options::Departure;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It exited with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

/// How a world ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// How the first program ended.
    pub exit: Exit,
    /// Whether the run repeats.
    pub certificate: Certificate,
    /// How long it took by the clock of the world, in ns.
    pub virtual_ns: u64,
    /// Events of the run.
    pub events: u64,
    /// Where the schedule departed from the plain order, and what went on there, in words.
    pub departures: BTreeMap<u64, (Departure, String)>,
}
