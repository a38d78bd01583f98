//! The options of `pumice fault`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use pumice_transport::path::ROCE_PORT;

use super::plans;

/// Options of `pumice fault`.
#[derive(Debug, Args)]
pub(crate) struct FaultOptions {
    #[command(subcommand)]
    pub(super) action: FaultAction,
}

#[derive(Debug, Subcommand)]
pub(super) enum FaultAction {
    /// Add a rule to a program that runs
    Add {
        /// The rule in one line, as after --fault: 'drop chance=2% opcode=send'
        rule: String,
        /// Print one JSON array instead of text
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        target: FaultTarget,
    },
    /// Show the rules of running programs, and how often each was met and applied
    List {
        /// Print one JSON array instead of text
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        target: FaultTarget,
    },
    /// Pause a rule, or all rules
    Pause {
        /// The name of the rule
        name: Option<String>,
        /// Print one JSON array instead of text
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        target: FaultTarget,
    },
    /// Resume a paused rule, or all rules
    Resume {
        /// The name of the rule
        name: Option<String>,
        /// Print one JSON array instead of text
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        target: FaultTarget,
    },
    /// Remove a rule, or all rules
    Clear {
        /// The name of the rule
        name: Option<String>,
        /// Print one JSON array instead of text
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        target: FaultTarget,
    },
    #[command(flatten)]
    Plans(plans::PlansAction),
}

/// The processes that a command is about.
#[derive(Debug, Args)]
pub(super) struct FaultTarget {
    /// The process with this number
    #[arg(long, group = "selector")]
    pub(super) pid: Option<u32>,
    /// The processes with this tag; "*" at its end stands for anything
    #[arg(long, group = "selector")]
    pub(super) tag: Option<String>,
    /// All processes of this user that share the port
    #[arg(long, group = "selector")]
    pub(super) all: bool,
    /// The device of this name, where a program has several
    #[arg(long)]
    pub(super) device: Option<String>,
    /// The UDP port that the processes share
    #[arg(long, default_value_t = ROCE_PORT)]
    pub(super) port: u16,
    /// Folder of the registry of processes, if it is not the usual one
    #[arg(long, hide = true)]
    pub(super) registry: Option<PathBuf>,
}

impl FaultTarget {
    /// Reports whether the options select processes, so that several matches are no mistake.
    pub(super) fn selects(&self) -> bool {
        self.all || self.pid.is_some() || self.tag.is_some()
    }
}
