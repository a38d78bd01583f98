//! The options of `pumice stat`.

use std::path::PathBuf;

use clap::Args;
use pumice_transport::path::ROCE_PORT;

#[derive(Debug, Args)]
pub(crate) struct StatOptions {
    /// Print one JSON array instead of text; all counters are in it
    #[arg(long)]
    pub(crate) json: bool,
    /// Print counters that are 0 as well
    #[arg(long)]
    pub(crate) all: bool,
    /// Only the process with this number
    #[arg(long)]
    pub(crate) pid: Option<u32>,
    /// The UDP port that the processes share
    #[arg(long, default_value_t = ROCE_PORT)]
    pub(crate) port: u16,
    /// Where the registry of processes is, if not in the usual folder
    #[arg(long, hide = true)]
    pub(crate) registry: Option<PathBuf>,
}
