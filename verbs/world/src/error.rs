//! The end of a world, and errors of worlds.

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

/// The reason why a world cannot begin, or cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// A step of the start failed.
    #[error("the world cannot begin: {what}: {error}")]
    Start {
        /// Name of the step.
        what: &'static str,
        /// Error of the step.
        error: std::io::Error,
    },
    /// The program cannot be started.
    #[error("{program} cannot be started: {error}")]
    Program {
        /// Name of the program, as given.
        program: String,
        /// Error of the start.
        error: std::io::Error,
    },
    /// The machine does not support worlds.
    #[error("{program} cannot be run in a world on this machine: a world needs Linux on x86-64")]
    Machine {
        /// Name of the program.
        program: String,
    },
    /// The supervisor lost a thread that it was tracing.
    #[error("the supervisor lost a thread of the world: {0}")]
    Trace(std::io::Error),
    /// All threads wait, and nothing can end their wait.
    #[error("the run cannot go on: all threads wait\n{who}")]
    Deadlock {
        /// Lines that say for each thread what it waits for.
        who: String,
        /// Departures of the schedule from the plain order, each with a description.
        departures: BTreeMap<u64, (Departure, String)>,
        /// Places of the departures in the program.
        locations: BTreeMap<u64, CodeLocation>,
    },
    /// The run took longer than it may.
    #[error("the run is ended after {seconds} s of the world's time")]
    Long {
        /// Time that it may take.
        seconds: u64,
        /// Departures of the schedule from the plain order, each with a description.
        departures: BTreeMap<u64, (Departure, String)>,
        /// Places of the departures in the program.
        locations: BTreeMap<u64, CodeLocation>,
    },
    /// The run met something that cannot repeat, and was to be strict.
    #[error("the run is ended, since it would not repeat: {0}")]
    Strict(String),
    /// The recording cannot be written.
    #[error("the recording cannot be written: {0}")]
    Record(std::io::Error),
    /// The recording cannot be read.
    #[error("{0}")]
    Recording(String),
    /// The run is stopped for a debugger. It ends when the supervisor ends.
    #[error("{0}")]
    Stopped(String),
    /// The run departs from its recording.
    #[error("{0}")]
    Departed(String),
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
impl WorldError {
    /// Returns the error for a world that this machine does not support.
    pub(crate) fn machine(options: &crate::WorldOptions) -> WorldError {
        WorldError::Machine { program: options.program.to_string_lossy().into_owned() }
    }
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
impl From<nix::Error> for WorldError {
    fn from(errno: nix::Error) -> WorldError {
        WorldError::Trace(errno.into())
    }
}
