//! The options of a world.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The options of a world.
#[derive(Debug, Clone)]
pub struct WorldOptions {
    /// Seed of all decisions that are not determined otherwise.
    pub seed: u64,
    /// Program: a path, or a name that is searched along PATH.
    pub program: OsString,
    /// Arguments of the program, beginning with the name by which it is called.
    pub arguments: Vec<OsString>,
    /// Whole environment of the program.
    pub environment: Vec<(OsString, OsString)>,
    /// Folders that are empty when the world begins, and whose contents are invisible to the machine; those
    /// that do not exist are left out.
    pub private_folders: Vec<PathBuf>,
    /// File into which the run is recorded.
    pub record: Option<PathBuf>,
    /// Recording whose events are expected: the run ends at the first event that differs.
    pub expected: Option<PathBuf>,
    /// File for standard output and standard error of the processes; `None` for those of this process.
    pub output: Option<PathBuf>,
    /// Departures of the schedule from the plain order, by the numbers of decisions; `None` if the seed draws
    /// them. The number of a decision has the thread that ran last, the number of that thread's point, and
    /// the number of the choice at this point.
    pub departures: Option<BTreeMap<u64, Departure>>,
    /// Event at which the run stops: all its processes are stopped for a debugger.
    pub stop_at: Option<u64>,
    /// Time of the world after which the run ends, in s; `None` for no limit.
    pub longest_s: Option<u64>,
    /// The run ends at the first event that may not repeat.
    pub strict: bool,
    /// Frequencies of departures.
    pub draws: Draws,
    /// Calls of the kernel and readings of clocks take no time: the program says by hints what takes time,
    /// and when what it polls for can change.
    pub exact_time: bool,
    /// The program prepares the run, and executes the program that the run is about. The run begins there:
    /// what happens before is neither decided by the seed nor recorded.
    pub is_starter: bool,
}

impl WorldOptions {
    /// Returns the options of a world of this program, with the environment of this process.
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
            longest_s: None,
            strict: false,
            draws: Draws::default(),
            exact_time: false,
            is_starter: false,
        }
    }
}

/// The frequencies of departures from the plain order, in parts per million of the scheduling points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Draws {
    /// Frequency with which another thread continues.
    pub switch_ppm: u32,
    /// Frequency with which the thread rests for a while.
    pub stall_ppm: u32,
    /// Longest rest, in ns.
    pub longest_stall_ns: u64,
    /// Frequency with which the thread rests between two instructions behind the point.
    #[serde(default)]
    pub preempt_ppm: u32,
    /// Threads have priorities, and that of the running one falls where another thread would continue.
    #[serde(default)]
    pub priorities: bool,
}

/// Difference between the numbers of the decisions at two points of a thread in a row.
pub const POINT: u64 = 1 << 12;

/// Maximum number of instructions between a point and a rest behind it.
pub(crate) const MAX_PREEMPTION_STEPS: u64 = 1 << 12;

impl Default for Draws {
    fn default() -> Draws {
        Draws {
            switch_ppm: 250_000,
            stall_ppm: 0,
            longest_stall_ns: 1_000_000,
            preempt_ppm: 0,
            priorities: false,
        }
    }
}

/// A departure from the plain order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Departure {
    /// The thread with this index, of those that could continue, oldest first, continues. The plain order
    /// chooses the one that ran last, if it can continue, otherwise the oldest.
    Switch(u32),
    /// The thread that made the call rests for this time, in ns.
    Stall(u64),
    /// The thread runs this number of instructions of its program behind the point, and then rests.
    Preempt {
        /// Number of instructions.
        steps: u64,
        /// Time of the rest, in ns.
        rest_ns: u64,
    },
}
