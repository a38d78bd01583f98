//! The options of `pumice world`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::report::ReportOptions;
use super::seeds::{Seeds, Shard};
use crate::run::RunOptions;

/// Options of `pumice world`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct WorldCommandOptions {
    #[command(subcommand)]
    pub(crate) command: Option<WorldCommand>,
    /// Record the run in this file, for "pumice world replay"
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
    /// Let time pass as an adapter takes it: a model that "pumice devices --models" lists (NAME or
    /// NAME:PLACEMENT), or a file with a table [model]
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    #[command(flatten)]
    pub(crate) order: OrderOptions,
    // With another command, the program is not required, and empty.
    #[command(flatten)]
    pub(crate) run: RunOptions,
    #[command(flatten)]
    pub(crate) inner: InnerOptions,
}

/// The other commands.
#[derive(Debug, Subcommand)]
pub(crate) enum WorldCommand {
    /// Run a recorded run again, and stop where it departs from the recording
    ///
    /// The exit code is that of the program, or 1 if the run departs.
    Replay(ReplayWorldOptions),
    /// Run a program with one seed after the other, and say which orders break it
    ///
    /// Each failure is run again three times, and reduced to the departures from the plain order that it
    /// needs. The exit code is 1 if there was one.
    Search(Box<SearchWorldOptions>),
    /// Join the results of a search that several machines have shared
    ///
    /// Failures of all machines are grouped by how they end. The exit code is 1 if a run failed, or if the
    /// result of a machine is missing.
    Merge(MergeWorldOptions),
}

/// The options that decide the order.
#[derive(Debug, Args)]
pub(crate) struct OrderOptions {
    /// End the run at the first thing that may come out otherwise in the next run
    #[arg(long)]
    pub(crate) strict: bool,
    /// Let another thread go on at so many of a hundred calls, where several could
    /// [default: 25; with --model 0]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(crate) switch: Option<u8>,
    /// Let a thread rest at one of so many calls; 0: never
    #[arg(long, value_name = "CALLS", default_value_t = 0)]
    pub(crate) stall: u32,
    /// Let a thread rest between two instructions of its program behind one of so many calls; 0: never
    #[arg(long, value_name = "CALLS", default_value_t = 0)]
    pub(crate) preempt: u32,
    /// Give threads priorities: the one with the highest goes on, and falls where --switch draws it
    #[arg(long)]
    pub(crate) priorities: bool,
    /// The longest of these rests, in microseconds of the world
    #[arg(long, value_name = "US", default_value_t = 10_000,
          value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub(crate) longest_stall: u64,
    /// Let this folder be empty when the world begins; the machine does not see what is written there.
    /// /dev/shm always is one
    #[arg(long, value_name = "FOLDER")]
    pub(crate) private: Vec<PathBuf>,
    /// Do not print the line about the run at its end
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// The options that `pumice world search` gives to the runs that it starts.
#[derive(Debug, Args)]
pub(crate) struct InnerOptions {
    /// Write how the run ended to this file
    #[arg(long, value_name = "FILE", hide = true)]
    pub(crate) outcome: Option<PathBuf>,
    /// Depart from the plain order as this file says, and nowhere else
    #[arg(long, value_name = "FILE", hide = true)]
    pub(crate) departures: Option<PathBuf>,
    /// End the run after so many seconds of the world
    #[arg(long, value_name = "SECONDS", hide = true)]
    pub(crate) longest: Option<u64>,
    /// Write what the program prints to this file
    #[arg(long, value_name = "FILE", hide = true)]
    pub(crate) output: Option<PathBuf>,
}

/// Options of `pumice world replay`.
#[derive(Debug, Args)]
pub(crate) struct ReplayWorldOptions {
    /// The recording
    pub(crate) file: PathBuf,
    /// Stop at this event, and let "gdb -p" look at the processes; end with ^C
    #[arg(long, value_name = "EVENT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) stop_at: Option<u64>,
}

/// Options of `pumice world merge`.
#[derive(Debug, Args)]
pub(crate) struct MergeWorldOptions {
    /// The results that "pumice world search" has written
    #[arg(required = true, value_name = "RESULT")]
    pub(crate) results: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) report: ReportOptions,
}

/// Options of `pumice world search`.
#[derive(Debug, Args)]
pub(crate) struct SearchWorldOptions {
    /// The seeds, as in 1..500
    #[arg(long, value_name = "FIRST..LAST", default_value = "1..100")]
    pub(crate) seeds: Seeds,
    /// Run this machine's part of the seeds, as in 2/4 [default: as GitLab, Slurm, Kubernetes or
    /// PUMICE_SHARD_INDEX and PUMICE_SHARD_COUNT say, else all seeds]
    #[arg(long, value_name = "K/N")]
    pub(crate) shard: Option<Shard>,
    /// Begin no more runs after so many seconds
    #[arg(long, value_name = "SECONDS")]
    pub(crate) time: Option<u64>,
    /// End with the first failure
    #[arg(long)]
    pub(crate) first: bool,
    /// Runs at a time [default: as many as there are processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) jobs: Option<u16>,
    /// End a run that takes longer than so many seconds of real time
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) timeout: u64,
    /// End a run that takes longer than so many seconds of the world's time
    /// [default: ten times that of the plain order, 10 more, and 2 ms for each event]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) world_time: Option<u64>,
    /// Keep the recordings of failures in this folder
    #[arg(long, value_name = "FOLDER", default_value = "world-failures")]
    pub(crate) keep: PathBuf,
    /// Write the result to this file, for "pumice world merge" [default for a shard: shard-K-of-N.json in the
    /// folder of recordings]
    #[arg(long, value_name = "FILE")]
    pub(crate) result: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) report: ReportOptions,
    /// Let this folder be empty in each run; the machine does not see what is written there. /dev/shm always
    /// is one
    #[arg(long, value_name = "FOLDER")]
    pub(crate) private: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) run: RunOptions,
}
