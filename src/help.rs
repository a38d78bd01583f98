//! The output of `pumice` and `pumice --help`: first steps, and the commands by purpose.

use std::fmt::Write as _;
use std::io::{self, Write};

use clap::builder::styling::Style;
use clap::{Command, CommandFactory as _};

use crate::cli::Cli;

/// Purposes with their commands, in the order in which a newcomer meets them.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Run programs", &["run", "world", "replay"]),
    ("Look at what they do", &["check", "hang", "trace", "capture", "stat", "top", "mrc"]),
    ("Break something on purpose", &["fault", "sweep", "topology"]),
    ("Measure", &["perf"]),
    ("Know", &["course", "doctor", "devices", "explain", "reference", "completions", "man"]),
];

/// First steps: arguments of "pumice", and their purpose.
const FIRST: [(&str, &str); 9] = [
    ("doctor", "does the device work here?"),
    ("run -- ibv_devinfo", "the device as a program sees it"),
    ("run -- ./program", "your program on it; each side in a shell of its own"),
    ("check -- ./program", "what does the program do wrong with verbs?"),
    ("run --trace run.trace -- ./program", "record each message; then: pumice trace run.trace"),
    ("run --loss 1% -- ./program", "lose packets, the same ones in each run"),
    ("world search --seeds 1..500 -- ./test", "which order of threads and messages breaks it?"),
    ("perf loop", "how fast is it here?"),
    ("explain RNR_RETRY_EXC_ERR", "what does an error mean?"),
];

/// Returns the grammar of the command line, whose help lists commands in groups.
pub(crate) fn grammar() -> Command {
    let grammar = Cli::command();
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}{{options}}\n\n\
         \"pumice COMMAND --help\" says more about a command.",
        groups(&grammar)
    );
    grammar.help_template(template)
}

fn groups(grammar: &Command) -> String {
    let heading = Style::new().bold().underline();
    let name = Style::new().bold();
    let mut text = String::new();
    for (what, commands) in GROUPS {
        let _ = writeln!(text, "{heading}{what}:{heading:#}");
        for command in commands.iter().filter_map(|command| grammar.find_subcommand(command)) {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {name}{:<13}{name:#}{about}", command.get_name());
        }
        text.push('\n');
    }
    let _ = writeln!(text, "{heading}Options:{heading:#}");
    text
}

/// Prints first steps, for a user who typed only the name.
pub(crate) fn first_steps(out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "pumice is an RDMA device in software. Things to try:")?;
    for (words, why) in FIRST {
        writeln!(out, "  pumice {words:<38} {why}")?;
    }
    writeln!(out, "\"pumice --help\" lists all commands.")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_command_is_in_one_group() {
        let grammar = Cli::command();
        let listed: Vec<&str> = GROUPS.iter().flat_map(|(_, commands)| commands.iter().copied()).collect();
        let shown: BTreeSet<&str> =
            grammar.get_subcommands().filter(|one| !one.is_hide_set()).map(Command::get_name).collect();
        assert_eq!(listed.iter().copied().collect::<BTreeSet<_>>(), shown);
        assert_eq!(listed.len(), shown.len(), "a command is in two groups");
    }

    #[test]
    fn first_steps_are_ten_lines_or_so_and_are_commands() {
        let mut text = Vec::new();
        first_steps(&mut text).expect("memory");
        let text = String::from_utf8(text).expect("text");
        assert!(text.lines().count() <= 11 && text.lines().all(|line| line.chars().count() <= 100), "{text}");
        for (words, _) in FIRST {
            let line = std::iter::once("pumice").chain(words.split(' '));
            let parsed = grammar().try_get_matches_from(line);
            assert!(parsed.is_ok(), "{words}: {parsed:?}");
        }
    }
}
