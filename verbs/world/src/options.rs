//! What a world is made of.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// How a world is run.
#[derive(Debug, Clone)]
pub struct WorldOptions {
    /// Decides everything that nothing else decides.
    pub seed: u64,
    /// The program: a path, or a name that is looked for along PATH.
    pub program: OsString,
    /// Its arguments, beginning with the name that it is called by.
    pub arguments: Vec<OsString>,
    /// Its whole environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Folders that are empty when the world begins, and that the machine does not see; those that do not
    /// exist are left out.
    pub private_folders: Vec<PathBuf>,
    /// Where the run is recorded.
    pub record: Option<PathBuf>,
    /// The events that are expected: the run ends at the first one that is another.
    pub expected: Option<PathBuf>,
    /// Where what the processes write to standard output and standard error goes; `None`: where that of this
    /// process goes.
    pub output: Option<PathBuf>,
    /// Where the schedule departs from the plain order; `None`: the seed draws it. The n-th scheduling point
    /// has the number 2 n, and a rest that begins there 2 n + 1. A rest is a scheduling point more.
    pub departures: Option<BTreeMap<u64, Departure>>,
    /// The run stops at this event: all its processes stand still, for a debugger.
    pub stop_at: Option<u64>,
    /// The run ends at the first thing that may not repeat.
    pub strict: bool,
    /// How often what is drawn.
    pub draws: Draws,
}

impl WorldOptions {
    /// A world of this program, with the environment of this process.
    pub fn new(seed: u64, command: Vec<OsString>) -> WorldOptions {
        WorldOptions {
            seed,
            program: command.first().cloned().unwrap_or_default(),
            arguments: command,
            environment: std::env::vars_os().collect(),
            private_folders: Vec::new(),
            record: None,
            expected: None,
            output: None,
            departures: None,
            stop_at: None,
            strict: false,
            draws: Draws::default(),
        }
    }
}

/// How often the schedule departs from the plain order, in parts of a million for each scheduling point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Draws {
    /// Another thread goes on.
    pub switch_ppm: u32,
    /// The thread rests for a while.
    pub stall_ppm: u32,
    /// The longest rest, in ns.
    pub longest_stall_ns: u64,
}

impl Default for Draws {
    fn default() -> Draws {
        Draws { switch_ppm: 250_000, stall_ppm: 0, longest_stall_ns: 1_000_000 }
    }
}

/// One departure from the plain order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Departure {
    /// Of the threads that could go on, the one with this index does, oldest first; the plain order has the
    /// one that went last, if it can, else the oldest.
    Switch(u32),
    /// The thread that made the call rests for so many ns.
    Stall(u64),
}
