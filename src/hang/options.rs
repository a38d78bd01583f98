//! The options of `pumice hang`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use pumice_device::platform::quantity::time_ns;
use pumice_transport::path::ROCE_PORT;

/// Options of `pumice hang`.
#[derive(Debug, Args)]
pub(crate) struct HangOptions {
    /// Print one JSON object instead of text: what was seen, all waits and the verdicts
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw the processes and their waits into this SVG file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Write the same as a graph for graphviz (dot)
    #[arg(long, value_name = "FILE")]
    pub(crate) dot: Option<PathBuf>,
    /// Look at processes of other hosts as well: files that "pumice hang --json" has written there
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub(crate) with: Vec<PathBuf>,
    /// Look at processes of these hosts as well, on which ssh runs "pumice hang --json"; with commas between
    /// them. ssh must log in without a question
    #[arg(long, value_name = "HOST", value_delimiter = ',', num_args = 1..)]
    pub(crate) hosts: Vec<String>,
    /// Command that runs a command on another host, and its options, as in "ssh -p 2222"
    #[arg(long, value_name = "COMMAND", default_value = "ssh", requires = "hosts")]
    pub(crate) rsh: String,
    /// Command that starts pumice on the other hosts
    #[arg(long, value_name = "COMMAND", default_value = "pumice", requires = "hosts")]
    pub(crate) remote: String,
    /// Time that another host may take, as in 10s
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = within, requires = "hosts")]
    pub(crate) within: Duration,
    /// The UDP port that the processes share
    #[arg(long, default_value_t = ROCE_PORT)]
    pub(crate) port: u16,
    /// Folder of the registry of processes, if it is not the usual one
    #[arg(long, hide = true)]
    pub(crate) registry: Option<PathBuf>,
}

/// Parses the time that another host may take.
fn within(text: &str) -> Result<Duration, String> {
    let time = Duration::from_nanos(time_ns(text)?);
    let is_right = (Duration::from_millis(100)..=Duration::from_secs(600)).contains(&time);
    if is_right { Ok(time) } else { Err(format!("\"{text}\" is not a time from 100ms to 600s")) }
}
