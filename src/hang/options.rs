//! The options of `pumice hang`.

use std::path::PathBuf;

use clap::Args;
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
    /// The UDP port that the processes share
    #[arg(long, default_value_t = ROCE_PORT)]
    pub(crate) port: u16,
    /// Where the registry of processes is, if not in the usual folder
    #[arg(long, hide = true)]
    pub(crate) registry: Option<PathBuf>,
}
