//! The end of a world.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

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

/// A location in the code of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeLocation {
    /// File with the program or the library.
    pub file: PathBuf,
    /// Offset of the instruction in the file, in bytes.
    pub offset: u64,
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
    /// Location in the program at which a thread departed, by the number of the departure, if departures were
    /// listed.
    pub locations: BTreeMap<u64, CodeLocation>,
    /// Pairs of points that followed each other in two threads, each as a digest of both.
    pub met: BTreeSet<(u32, u32)>,
}
