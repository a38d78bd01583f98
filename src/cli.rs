//! The command line's grammar.

use clap::{Args, Parser, Subcommand};

/// A software RDMA device in user space that speaks RoCEv2.
#[derive(Debug, Parser)]
#[command(name = "pumice", version, about, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the device, its port and its GIDs
    Devices(DevicesOptions),
    /// Look for what keeps the device from working here, and say what to do about it
    ///
    /// The exit code is 1 if a problem keeps the device from working.
    Doctor(DoctorOptions),
}

#[derive(Debug, Args)]
pub(crate) struct DevicesOptions {
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorOptions {
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_grammar_is_consistent() {
        Cli::command().debug_assert();
    }
}
