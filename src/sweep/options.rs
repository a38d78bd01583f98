//! The options of `pumice sweep`.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Args, Command, Error};
use pumice_device::faults::calls::CALLS;

/// Options of `pumice sweep`.
#[derive(Debug, Args)]
pub(crate) struct SweepOptions {
    /// Fail at most this many calls of each name, completions of each queue pair and kind, and steps of each
    /// kind with each peer, from the first on; 0 fails all
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) most: u64,
    /// Fail each call with every errno that it may give, not with its most usual one only
    #[arg(long)]
    pub(crate) all_errnos: bool,
    /// Fail calls of these names only; "*" stands for any characters; may be repeated
    #[arg(long, value_name = "PATTERN", value_parser = CallPattern, hide_possible_values = true)]
    pub(crate) call: Vec<String>,
    /// Also let each work request fail once that has a completion: its status is IBV_WC_GENERAL_ERR, and its
    /// queue pair goes to the error state
    #[arg(long)]
    pub(crate) completions: bool,
    /// Also let each step of connection management fail once: a request for a connection is rejected, and
    /// every other message that the program's side sends is lost once
    #[arg(long)]
    pub(crate) cm: bool,
    /// A run that takes longer hangs: 800ms, 10s [default: 10 times the run without faults, and 5 s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// Make this many runs at a time, each in a network namespace of its own
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) jobs: u16,
    /// The other side: a shell command that is started before each run, and ended after it
    #[arg(long, value_name = "COMMAND")]
    pub(crate) server: Option<String>,
    /// Fail the calls of the server, not those of the program
    #[arg(long, requires = "server")]
    pub(crate) sweep_server: bool,
    /// Do not count objects that a run leaves as a finding
    #[arg(long)]
    pub(crate) allow_leaks: bool,
    /// Count as a finding a run that succeeds and prints nothing although a call failed
    #[arg(long)]
    pub(crate) strict: bool,
    /// Print one JSON object per line instead of text
    #[arg(long)]
    pub(crate) json: bool,
    /// Also write JUnit XML to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,
    /// Write each result to this file, and leave out the runs whose results it has
    #[arg(long, value_name = "FILE")]
    pub(crate) resume: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

/// Parses durations such as `10s` and `800ms`.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "write a whole number with ms or s behind it, like 10s".to_owned();
    let (digits, factor) = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(digits), _) => (digits, 1),
        (None, Some(digits)) => (digits, 1000),
        (None, None) => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    match number.checked_mul(factor) {
        Some(milliseconds) if milliseconds > 0 => Ok(Duration::from_millis(milliseconds)),
        _ => Err(wrong()),
    }
}

/// A parser of the name of a call, or a pattern of names. Shells complete the names of the calls that can
/// fail.
#[derive(Debug, Clone)]
struct CallPattern;

impl TypedValueParser for CallPattern {
    type Value = String;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<String, Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(CALLS.iter().map(|info| PossibleValue::new(info.name))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_units() {
        assert_eq!(duration("800ms"), Ok(Duration::from_millis(800)));
        assert_eq!(duration("3s"), Ok(Duration::from_secs(3)));
        for wrong in ["", "3", "s", "-1s", "0s", "1.5s", "18446744073709551615s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
