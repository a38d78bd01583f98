//! The page of all environment variables that the device reads.

use std::io::{self, Write};

use pumice_device::settings::{self, VARIABLES};

use super::commands;
use crate::world::{SHARD_COUNT, SHARD_INDEX};

/// The source of a variable's description.
enum VariableMeaning {
    /// Help text of the option of `pumice run` that sets the variable.
    Option(&'static str),
    /// The sentence itself.
    Sentence(&'static str),
}

use VariableMeaning::{Option as Opt, Sentence};

/// The variables of [`VARIABLES`], in their order.
const ROWS: [(&str, VariableMeaning); VARIABLES.len()] = [
    (settings::ADDR, Opt("--addr")),
    (settings::DEVICE, Opt("--device")),
    (settings::DEVICES, Opt("--devices")),
    (settings::LOSS, Opt("--loss")),
    (settings::SEED, Opt("--seed")),
    (settings::SHUFFLE, Opt("--shuffle")),
    (settings::TAG, Opt("--tag")),
    (settings::FAULTS, Opt("--faults")),
    (settings::FAULT, Opt("--fault")),
    (settings::FAULT_REPORT, Opt("--fault-report")),
    (settings::RECORD, Opt("--record")),
    (settings::CAPTURE, Opt("--capture")),
    (settings::TRACE, Opt("--trace")),
    (settings::TRACE_LIMIT, Opt("--trace-limit")),
    (settings::PROFILE, Opt("--profile")),
    (
        settings::CALL_REPORT,
        Sentence("Write to this file which calls the program made, and which objects it left"),
    ),
    (
        settings::CHECK,
        Sentence(
            "Report what the program does wrong with verbs: 1, perf, poison, or perf,poison; `--check` sets \
             it, and `pumice check`",
        ),
    ),
    (settings::CHECK_REPORT, Opt("--check-report")),
    (settings::CHECK_FORMAT, Opt("--check-format")),
    (settings::CHECK_SUPPRESS, Opt("--suppress")),
    (
        settings::CHECK_MARK,
        Sentence("Set by `pumice run --check-exit`: where the program leaves word that it has findings"),
    ),
    (settings::WIRE, Opt("--wire")),
    (
        settings::LANES,
        Sentence(
            "0: no message takes the short way through the device that messages of one packet take where \
             nothing has to be decided; nothing but speed shows the difference",
        ),
    ),
    (settings::COPY, Opt("--copy")),
    (settings::SRD_ORDER, Opt("--srd-order")),
    (settings::MRC, Opt("--mrc")),
    (settings::PLANES, Opt("--planes")),
    (settings::MRC_PORT, Opt("--mrc-port")),
    (settings::GID_INDEX, Opt("--gid-index")),
    (settings::MEMLOCK, Opt("--memlock")),
    (settings::HANG_AFTER, Opt("--hang-after")),
    (
        settings::LINK,
        Sentence(
            "The link of each device in one line, as in \
             rate=10Gbit,delay=5us,jitter=1us,queue=256KiB,ecn=64KiB; \
             set by `--rate`, `--delay`, `--jitter`, `--queue` and `--ecn`",
        ),
    ),
    (settings::TOPOLOGY, Opt("--topology")),
    (settings::NO_NEIGHBOUR, Opt("--no-neighbour")),
    (settings::LOG, Opt("--log")),
    (settings::EXPLAIN, Sentence("The older way to say PUMICE_LOG=warn: set to anything but nothing or 0")),
];

/// Variables that are no setting of the device.
const OTHER_VARIABLES: [(&str, &str); 8] = [
    (
        "PUMICE_WORLD",
        "Set by `pumice world`: the library tells the supervisor where another thread may go on",
    ),
    (
        "PUMICE_LID",
        "1: the port has a LID, the low 16 bits of its first address, for programs that know no GIDs",
    ),
    ("PUMICE_SYSFS", "Set by `pumice run`: the folder that the program sees as /sys/class/infiniband"),
    ("PUMICE_LIBRARY", "Set by `pumice run`: the libpumice.so that the preload loads"),
    (
        "PUMICE_STARTED_BY",
        "Set by `pumice run`: the process that starts the program or becomes it, of which alone the library \
         says that it has used no device",
    ),
    (
        SHARD_INDEX,
        "Read by `pumice world search`: the number of this machine, from 0, where the engine has no variable \
         of its own for that",
    ),
    (
        SHARD_COUNT,
        "Read by `pumice world search`: how many machines share the seeds, beside PUMICE_SHARD_INDEX or \
         JOB_COMPLETION_INDEX",
    ),
    ("XDG_RUNTIME_DIR", "The folder `pumice` in it has what the processes of a user share"),
];

/// Writes the page.
pub(super) fn write(out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "# Environment\n\n`pumice run` sets these variables from its options. A program that loads \
         `libpumice.so` in another way reads them from its own environment. A variable that is empty counts \
         as not set.\n"
    )?;
    commands::head(&["Variable", "Option", "Meaning"], out)?;
    for (name, meaning) in &ROWS {
        let (option, text) = match meaning {
            Opt(option) => (format!("`{option}`"), commands::help_of_run(option).unwrap_or_default()),
            Sentence(text) => (String::new(), (*text).to_owned()),
        };
        commands::row(&[&format!("`{name}`"), &option, &text], out)?;
    }
    writeln!(out, "\n## Others\n")?;
    commands::head(&["Variable", "Meaning"], out)?;
    for (name, text) in OTHER_VARIABLES {
        commands::row(&[&format!("`{name}`"), text], out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser as _;

    #[test]
    fn every_variable_has_its_row() {
        assert_eq!(ROWS.each_ref().map(|(name, _)| *name), VARIABLES);
    }

    #[test]
    fn each_option_sets_the_variable_of_its_row() {
        for (name, meaning) in &ROWS {
            let Opt(option) = meaning else { continue };
            let beside: &[&str] = match *option {
                "--trace-limit" => &["--trace", "x"],
                "--check-format" => &["--check-report", "x"],
                _ => &[],
            };
            let front = ["pumice", "run", option, "1"];
            let arguments = front.iter().chain(beside).chain(&["--", "true"]);
            let cli = Cli::try_parse_from(arguments).unwrap_or_else(|error| panic!("{option}: {error}"));
            let Command::Run(run) = cli.command else { panic!("{option}: another command") };
            assert_eq!(run.option_of(name), Some(*option), "{name}");
            assert!(commands::help_of_run(option).is_some_and(|help| !help.is_empty()), "{option}");
        }
    }
}
