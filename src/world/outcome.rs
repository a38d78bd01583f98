//! The outcome of a run in a world, as a sentence, and as a file that a search reads.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use pumice_device::outside::output_file::write_private;
use pumice_world::{CodeLocation, Departure, Ended, Exit, WorldError};
use serde::{Deserialize, Serialize};

use crate::outcome::{
    BAD, CommandError, CommandResult, NO_PROGRAM, NOT_EXECUTABLE, Outcome, SIGNAL, complain,
};

/// The outcome of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RunOutcome {
    /// End in words, the same for runs that ended alike: "exit code 1", "signal 11", "all threads wait for
    /// ever".
    pub(super) end: String,
    /// The run failed.
    pub(super) is_failure: bool,
    /// The run is certain to repeat.
    pub(super) is_certified: bool,
    /// Line that the run prints at its end.
    pub(super) said: String,
    pub(super) digest: u64,
    /// Duration by the clock of the world, in ns.
    pub(super) virtual_ns: u64,
    /// Departures from the plain order, each with a description.
    pub(super) departures: BTreeMap<u64, (Departure, String)>,
    /// Places of departures in the program, in a run with listed departures.
    pub(super) locations: BTreeMap<u64, CodeLocation>,
    /// Pairs of points that followed each other in two threads.
    pub(super) met: BTreeSet<(u32, u32)>,
    /// Number of events.
    pub(super) events: u64,
}

impl RunOutcome {
    /// Returns the outcome of a run that ended.
    pub(super) fn of(ended: &Ended) -> RunOutcome {
        let (end, is_failure) = match ended.exit {
            Exit::Code(0) => ("exit code 0".to_owned(), false),
            Exit::Code(code) => (format!("exit code {code}"), true),
            Exit::Signal(signal) => (format!("signal {signal}"), true),
        };
        RunOutcome {
            end,
            is_failure,
            is_certified: ended.certificate.doubts.is_empty(),
            said: ended.certificate.to_string(),
            digest: ended.certificate.digest,
            virtual_ns: ended.virtual_ns,
            departures: ended.departures.clone(),
            locations: ended.locations.clone(),
            met: ended.met.clone(),
            events: ended.events,
        }
    }

    /// Returns the outcome of a run that cannot continue; `None` if it did not begin, or has no outcome.
    pub(super) fn of_error(error: &WorldError) -> Option<RunOutcome> {
        let (end, departures, locations) = match error {
            WorldError::Deadlock { departures, locations, .. } => {
                ("all threads wait for ever".to_owned(), departures, locations)
            }
            WorldError::Long { seconds, departures, locations } => {
                (format!("no end within {seconds} s of the world's time"), departures, locations)
            }
            _ => return None,
        };
        Some(RunOutcome {
            end,
            is_failure: true,
            is_certified: true,
            said: error.to_string(),
            digest: 0,
            virtual_ns: 0,
            departures: departures.clone(),
            locations: locations.clone(),
            met: BTreeSet::new(),
            events: 0,
        })
    }

    pub(super) fn write(&self, path: &Path) -> std::io::Result<()> {
        write_private(path, &serde_json::to_vec(self)?)
    }

    pub(super) fn read(path: &Path) -> Option<RunOutcome> {
        serde_json::from_slice(&std::fs::read(path).ok()?).ok()
    }
}

/// Prints how a run ended.
pub(super) fn finish(ended: Result<Ended, WorldError>, is_quiet: bool) -> CommandResult {
    let ended = ended.map_err(|error| failed(&error))?;
    if !is_quiet {
        complain(&format!(
            "{}; {} events, {} ms of the world's time",
            ended.certificate,
            ended.events,
            ended.virtual_ns / 1_000_000
        ));
    }
    let (sentence, exit_code) = match ended.exit {
        Exit::Code(0) => return Ok(Outcome::Good),
        Exit::Code(code) => (format!("the program ended with {code}"), u8::try_from(code).unwrap_or(BAD)),
        Exit::Signal(signal) => {
            let code = SIGNAL.saturating_add(u8::try_from(signal).unwrap_or(0));
            (format!("signal {signal} ended the program"), code)
        }
    };
    Err(CommandError::Program { sentence, exit_code })
}

/// Returns the error of a run that did not take place.
pub(super) fn failed(error: &WorldError) -> CommandError {
    let sentence = error.to_string();
    match error {
        WorldError::Program { error, .. } => {
            let is_missing = error.kind() == std::io::ErrorKind::NotFound;
            CommandError::Program {
                sentence,
                exit_code: if is_missing { NO_PROGRAM } else { NOT_EXECUTABLE },
            }
        }
        _ => CommandError::Failed(sentence),
    }
}
