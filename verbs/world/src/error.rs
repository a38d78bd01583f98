//! Why a world cannot be.

use std::collections::BTreeMap;

use crate::options::Departure;

/// Why a world cannot be, or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// A step of the beginning failed.
    #[error("the world cannot begin: {what}: {error}")]
    Start {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        error: std::io::Error,
    },
    /// The program cannot be started.
    #[error("{program} cannot be started: {error}")]
    Program {
        /// Its name, as given.
        program: String,
        /// Why.
        error: std::io::Error,
    },
    /// This machine cannot have a world.
    #[error("{program} cannot be run in a world on this machine: a world needs Linux on x86-64")]
    Machine {
        /// The program.
        program: String,
    },
    /// The supervisor lost a thread that it did not let go.
    #[error("the supervisor lost a thread of the world: {0}")]
    Trace(std::io::Error),
    /// All threads wait, and nothing can end their wait.
    #[error("the run cannot go on: all threads wait\n{who}")]
    Deadlock {
        /// A line for each thread: what it waits for.
        who: String,
        /// Where the schedule departed from the plain order.
        departures: BTreeMap<u64, (Departure, String)>,
    },
    /// Something that cannot repeat was met, and the run was to be strict.
    #[error("the run is ended, since it would not repeat: {0}")]
    Strict(String),
    /// The recording cannot be written.
    #[error("the recording cannot be written: {0}")]
    Record(std::io::Error),
    /// What was recorded cannot be read.
    #[error("{0}")]
    Recording(String),
    /// The run stands still, for a debugger. When the supervisor ends, it ends.
    #[error("{0}")]
    Stopped(String),
    /// The run departs from its recording.
    #[error("{0}")]
    Departed(String),
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
impl WorldError {
    /// Of a world that cannot be on this machine.
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
