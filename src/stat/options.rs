//! The options of `pumice stat`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use pumice_transport::path::ROCE_PORT;

/// Options of `pumice stat`.
#[derive(Debug, Default, Args)]
pub(crate) struct StatOptions {
    /// Print JSON instead of text: one array; with --watch one object per line
    #[arg(long)]
    pub(crate) json: bool,
    /// Print counters that are 0 as well, and all queue pairs
    #[arg(long)]
    pub(crate) all: bool,
    /// Only the process with this number
    #[arg(long)]
    pub(crate) pid: Option<u32>,
    /// Print what each process does per second, again and again
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1")]
    #[arg(value_parser = seconds)]
    pub(crate) watch: Option<Duration>,
    /// With --watch: end after so many times
    #[arg(long, value_name = "N", requires = "watch")]
    pub(crate) count: Option<u64>,
    /// The UDP port that the processes share
    #[arg(long, default_value_t = ROCE_PORT)]
    pub(crate) port: u16,
    /// Where the registry of processes is, if not in the usual folder
    #[arg(long, hide = true)]
    pub(crate) registry: Option<PathBuf>,
}

/// A time between two looks.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = || format!("\"{text}\" is not a time from 0.1 to 3600 seconds");
    let seconds: f64 = text.parse().map_err(|_| wrong())?;
    if (0.1..=3600.0).contains(&seconds) { Ok(Duration::from_secs_f64(seconds)) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds() {
        assert_eq!(seconds("1"), Ok(Duration::from_secs(1)));
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        for text in ["", "0", "-1", "nan", "1e9", "1s"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
