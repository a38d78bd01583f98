//! The options of `pumice world`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use pumice_device::findings::ReportFormat;

use super::hosts::{HostCommandOptions, MAX_HOSTS};
use super::report::ReportOptions;
use super::seeds::{Seeds, Shard};
use super::stop_at::StopAt;
use super::vary::Range;
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
    /// Let computing take time, too: "measured" is the processor time that it takes on this machine, so that
    /// no run is certified. By default it takes none, but what the program says; see docs/models.md
    #[arg(long, value_name = "HOW", value_enum, requires = "model", conflicts_with = "save")]
    pub(crate) compute: Option<Compute>,
    /// Let the world have so many hosts, host1, host2, …, each with its name, its device and its /dev/shm;
    /// the program begins on host1, and ssh and mpirun start others; see docs/hosts.md
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_HOSTS)))]
    pub(crate) hosts: Option<u16>,
    #[command(flatten)]
    pub(crate) order: OrderOptions,
    // With another command, the program is not required, and empty.
    #[command(flatten)]
    pub(crate) run: RunOptions,
    #[command(flatten)]
    pub(crate) inner: InnerOptions,
}

/// The time that computing takes in a world with a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Compute {
    /// The processor time that it takes on this machine.
    Measured,
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
    /// Say which messages became slower since another run, and why
    ///
    /// The runs are those of two builds in worlds with the same model: so each difference is one of the
    /// program. The exit code is 1 if the run, or messages of it, take longer.
    Compare(CompareOptions),
    /// Run a program with each of several delays, losses, rates or numbers of hosts, and print what it takes
    ///
    /// Each point is a run in a world with a model. The exit code is 1 if the program failed at a point.
    Vary(Box<VaryOptions>),
    /// Enter a host of this world, and run a program there: what --hosts and its stand-in for ssh start
    #[command(hide = true)]
    Host(HostCommandOptions),
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
    /// Stop at this event, and let "gdb -p" look at the processes; end with ^C. It is a number, or "exit" for
    /// the call by which the first process ends, or a call, as "write", "p1.t2 write", or "p1.t2 write 3" for
    /// the third one of that thread
    #[arg(long, value_name = "EVENT")]
    pub(crate) stop_at: Option<StopAt>,
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

/// Options of `pumice world compare`.
#[derive(Debug, Args)]
pub(crate) struct CompareOptions {
    /// The earlier run: a trace (with %p for the traces of all processes), a folder with its traces, or a
    /// recording of --save, if the run had --trace
    pub(crate) old: PathBuf,
    /// The later run
    pub(crate) new: PathBuf,
    /// Let a time be so many percent longer
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0)]
    pub(crate) tolerance: f64,
    /// Format of what is printed, or of the file of --report: text, json, sarif, junit, markdown, or github,
    /// which are annotations of GitHub Actions [default: text; of a file by its extension]
    #[arg(long, value_name = "FORMAT", value_parser = super::report::format)]
    pub(crate) format: Option<ReportFormat>,
    /// Write the findings to this file, and print text
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
}

/// Options of `pumice world vary`.
#[derive(Debug, Args)]
pub(crate) struct VaryOptions {
    /// Model of each run, as of "pumice world --model"
    #[arg(long, value_name = "MODEL", default_value = "wire")]
    pub(crate) model: String,
    /// Delays of each device's link, as in 1us..50us, or 1us,2us,5us
    #[arg(long, value_name = "RANGE")]
    pub(crate) delay: Option<Range>,
    /// Shares of packets that are lost, as in 0..0.1%
    #[arg(long, value_name = "RANGE")]
    pub(crate) loss: Option<Range>,
    /// Rates of each device's link, as in 10Gbit..100Gbit
    #[arg(long, value_name = "RANGE")]
    pub(crate) rate: Option<Range>,
    /// Numbers of hosts, as in 2..8, or 2,16,64
    #[arg(long, value_name = "RANGE")]
    pub(crate) hosts: Option<Range>,
    /// Number of points of a range with two dots, its ends included
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub(crate) points: u32,
    /// The program's own figure: the column of its last table with this title, or the last number behind this
    /// text in what it prints [default: the time of the world]
    #[arg(long, value_name = "TITLE")]
    pub(crate) figure: Option<String>,
    /// Write the figures to this file: JSON, or CSV if its name ends so
    #[arg(long, value_name = "FILE")]
    pub(crate) data: Option<PathBuf>,
    /// Draw the figures into this file (SVG)
    #[arg(long, value_name = "FILE")]
    pub(crate) chart: Option<PathBuf>,
    /// Run this machine's part of the points, as in 2/4 [default: as "pumice world search"]
    #[arg(long, value_name = "K/N")]
    pub(crate) shard: Option<Shard>,
    /// Runs at a time [default: as many as there are processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) jobs: Option<u16>,
    /// End a run that takes longer than so many seconds of real time
    #[arg(long, value_name = "SECONDS", default_value_t = 300,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) timeout: u64,
    /// Give the device this address only, as of "pumice run"
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) addr: Option<String>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<std::ffi::OsString>,
}
