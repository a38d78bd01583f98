//! The command line's grammar.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

use crate::check::CheckCommandOptions;
use crate::course::CourseOptions;
use crate::explain::ExplainOptions;
use crate::fault::FaultOptions;
use crate::hang::HangOptions;
use crate::mrc::MrcOptions;
use crate::perf::PerfOptions;
use crate::run::RunOptions;
use crate::stat::StatOptions;
use crate::sweep::SweepOptions;
use crate::top::TopOptions;
use crate::topology::TopologyOptions;
use crate::trace::TraceOptions;
use crate::version;
use crate::world::WorldCommandOptions;

/// A software RDMA device in user space that speaks RoCEv2.
#[derive(Debug, Parser)]
#[command(name = "pumice", version = version::SHORT, long_version = version::LONG, about)]
#[command(arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the device, its port and its GIDs
    Devices(DevicesOptions),
    /// Decode the RoCE packets of a pcapng or pcap file and check their ICRCs
    ///
    /// The exit code is 1 if the ICRC of a packet is wrong.
    Capture(CaptureOptions),
    /// Run a program as "pumice run" does, and say what it does wrong with verbs
    ///
    /// It prints each finding on standard error when it finds it, with call stacks, and a summary at exit.
    Check(Box<CheckCommandOptions>),
    /// Print the completions of a shell
    ///
    /// For bash: pumice completions bash > ~/.local/share/bash-completion/completions/pumice
    Completions(CompletionsOptions),
    /// List the chapters and exercises of the course "RDMA for the newcomer", and check your programs
    Course(CourseOptions),
    /// Look for what keeps the device from working here, and say what to do about it
    ///
    /// The exit code is 1 if a problem keeps the device from working.
    Doctor(DoctorOptions),
    /// Say what a completion status, errno, event or counter means, its usual causes, and what to look at
    ///
    /// An unknown name is a usage error; the message lists similar names.
    Explain(ExplainOptions),
    /// Change the faults of running programs; list kinds of faults; check plans; judge reports
    ///
    /// "add", "list", "pause", "resume" and "clear" are about processes of this user that share the UDP port.
    /// Their exit code is 1 if a process refused or did not answer, and 2 if several processes run and the
    /// command names none.
    Fault(FaultOptions),
    /// Say who waits for whom among this user's processes, and what holds all of them
    ///
    /// It looks at all processes with a device at once, from outside, twice within a second. The exit code
    /// is 1 if something waits in vain.
    Hang(HangOptions),
    /// Show profiles, queue pairs and paths of MRC of this user's running processes
    ///
    /// Each plane has a line, and each path that is not GOOD. The exit code is 1 if a process did not answer.
    Mrc(MrcOptions),
    /// Print the manual page, or write those of all commands into a folder
    Man(ManOptions),
    /// Measure bandwidth, message rate and latency, and check every byte on the way
    ///
    /// "perf loop" runs both ends on this machine and compares them with plain UDP and plain memory. "perf
    /// server" and "perf client HOST" run on two machines, or in two shells of one.
    #[command(visible_alias = "bench")]
    Perf(PerfOptions),
    /// Print a page of the reference: all options, variables, statuses, errnos, events, counters, faults
    ///
    /// Without a name it lists the pages. They are Markdown; the book has them too.
    Reference(ReferenceOptions),
    /// Run a program again as "pumice run --record" has recorded it, and say where the run departed from that
    ///
    /// The replay repeats what rules of fault plans and the network did to packets, and the order of calls
    /// and arrivals. The exit code is that of the program, or 1 if it is 0 and packets had another fate than
    /// in the record or the recorded run had failed.
    Replay(Box<ReplayOptions>),
    /// Run a program that uses RDMA on this machine's software device
    ///
    /// The program takes the place of pumice, or with --record pumice waits for it: its exit code is the exit
    /// code. 127 means that there is no such program, 126 that it cannot be executed.
    Run(Box<RunOptions>),
    /// Run a program again and again, fail another of its verbs calls each time, and report the result
    ///
    /// The exit code is 1 if a run crashed, hung or left objects.
    Sweep(SweepOptions),
    /// Show the counters of this user's running processes: traffic, drops by reason, retries
    ///
    /// The exit code is 1 if a process did not answer. With --listen it serves metrics until ^C.
    Stat(StatOptions),
    /// Show live in the terminal what the running processes of this user do: queue pairs, rates, errors
    ///
    /// The keys are in the bottom line. For pipes there is "pumice stat --watch".
    Top(TopOptions),
    /// Check a file with switches for "pumice run --topology", draw them, and show what their ports counted
    ///
    /// The counters are those of all programs of this user in this network namespace that name equal
    /// switches.
    Topology(TopologyOptions),
    /// Show what "pumice run --trace" has recorded: as a timeline for Perfetto, or why messages were slow
    Trace(TraceOptions),
    /// Run a program, and all that it starts, on a clock of its own and as a seed decides: the run repeats
    ///
    /// One thread goes on at a time, and time passes only by calls and waits. A line at the end says whether
    /// the run is certain to repeat. The exit code is that of the program.
    World(Box<WorldCommandOptions>),
}

#[derive(Debug, Args)]
pub(crate) struct DevicesOptions {
    /// Say also what carries packets to this user's other processes on this host, and which those are
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Show the devices that "pumice run --devices N" gives [default: those that the environment describes]
    #[arg(long, value_name = "N")]
    pub(crate) devices: Option<String>,
    /// List the adapters that a device can look like, by "pumice run --device NAME"
    #[arg(long, conflicts_with_all = ["devices", "verbose"])]
    pub(crate) personalities: bool,
    /// List the models of what adapters cost, for "pumice world --model NAME", with the source of each number
    #[arg(long, conflicts_with_all = ["devices", "verbose", "personalities"])]
    pub(crate) models: bool,
    /// Print one JSON array instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CaptureOptions {
    /// The capture; "-" reads standard input
    pub(crate) file: PathBuf,
    /// With --faults: the capture of the receiver's side
    #[arg(requires = "faults")]
    pub(crate) receiver: Option<PathBuf>,
    /// Print one JSON object per line instead of text
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the totals only
    #[arg(long)]
    pub(crate) summary: bool,
    /// Fail if there are fewer well-formed RoCE packets; 0 lets an empty capture pass
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "faults")]
    pub(crate) expect: u64,
    /// Print a fault plan that does again what the network did to the packets
    #[arg(long, conflicts_with_all = ["json", "summary"])]
    pub(crate) faults: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsOptions {
    /// The shell
    pub(crate) shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManOptions {
    /// Write a page for each command into this folder, which is made if it is not there
    #[arg(long, value_name = "FOLDER")]
    pub(crate) out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ReplayOptions {
    /// Print one JSON object instead of text: the last line, behind what the program prints
    #[arg(long)]
    pub(crate) json: bool,
    /// The folder that "pumice run --record" has written
    pub(crate) folder: PathBuf,
    #[command(flatten)]
    pub(crate) run: RunOptions,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorOptions {
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReferenceOptions {
    /// Name of the page, e.g. commands, environment, faults, profiles; without one, all names are listed
    pub(crate) page: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_grammar_is_consistent() {
        Cli::command().debug_assert();
    }

    /// Commands without `--json`, and why.
    const WITHOUT_JSON: [(&str, &str); 15] = [
        ("pumice check", "becomes the program; --check-report FILE --check-format json"),
        ("pumice completions", "a script"),
        ("pumice man", "pages"),
        ("pumice perf server", "clients print"),
        ("pumice perf __end", "JSON always"),
        ("pumice reference", "pages"),
        ("pumice run", "becomes the program"),
        ("pumice top", "a screen; pumice stat --watch --json"),
        ("pumice trace to-perfetto", "a file"),
        ("pumice trace view", "a file"),
        ("pumice world compare", "--format json"),
        ("pumice world merge", "--report FILE --format json"),
        ("pumice world replay", "what the program prints, and sentences"),
        ("pumice world search", "--report FILE --format json"),
        ("pumice world vary", "--data FILE"),
    ];

    #[test]
    fn every_command_that_prints_data_prints_json_if_asked() {
        fn walk(name: &str, command: &clap::Command, missing: &mut Vec<String>) {
            let has = |option: &str| command.get_arguments().any(|one| one.get_long() == Some(option));
            if command.get_subcommands().next().is_none() && !has("json") {
                missing.push(name.to_owned());
            }
            for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
                walk(&format!("{name} {}", below.get_name()), below, missing);
            }
        }
        let mut missing = Vec::new();
        walk("pumice", &Cli::command(), &mut missing);
        missing.retain(|name| !WITHOUT_JSON.iter().any(|(known, _)| known == name));
        assert_eq!(missing, Vec::<String>::new());
    }

    #[test]
    fn a_capture_needs_its_file() {
        assert!(Cli::try_parse_from(["pumice", "capture"]).is_err());
        let cli = Cli::try_parse_from(["pumice", "capture", "-", "--json"]);
        assert!(matches!(cli, Ok(Cli { command: Command::Capture(o) }) if o.json && !o.summary));
    }
}
