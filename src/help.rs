//! The output of `pumice` and `pumice --help`, and commands that once had other names.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{self, Write};

use clap::builder::styling::Style;
use clap::{Command, CommandFactory as _};

use crate::cli::Cli;
use crate::outcome::complain;

/// Words that a user may type, and their present form. Of several that match, the first one is used.
const OLD: [(&[&str], &[&str]); 2] = [(&["faults", "list"], &["fault", "kinds"]), (&["faults"], &["fault"])];

/// Returns the words of the command line in their present form, including the name of the program.
pub(crate) fn current_spelling(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let words: Vec<OsString> = words.collect();
    let Some((old, new)) = found(&words) else { return words };
    complain(&format!("\"pumice {}\" is now \"pumice {}\"", old.join(" "), new.join(" ")));
    let program = words.iter().take(1).cloned();
    let rest = words.iter().skip(1 + old.len()).cloned();
    program.chain(new.iter().map(OsString::from)).chain(rest).collect()
}

fn found(words: &[OsString]) -> Option<(&'static [&'static str], &'static [&'static str])> {
    let typed = words.get(1..)?;
    let begins = |old: &[&str]| old.len() <= typed.len() && old.iter().zip(typed).all(|(a, b)| b == a);
    OLD.into_iter().find(|(old, _)| begins(old))
}

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

    use clap::Parser as _;

    use super::*;
    use crate::cli::Cli;

    fn current_line(line: &str) -> String {
        let words = current_spelling(line.split(' ').map(OsString::from));
        words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn only_the_words_of_the_command_are_replaced() {
        assert_eq!(current_line("pumice faults list --json"), "pumice fault kinds --json");
        assert_eq!(current_line("pumice faults check faults"), "pumice fault check faults");
        assert_eq!(current_line("pumice run -- faults list"), "pumice run -- faults list");
        assert_eq!(current_line("pumice"), "pumice");
    }

    #[test]
    fn what_is_new_is_a_command_and_what_is_old_is_none() {
        for (old, new) in OLD {
            let line = |words: &[&str]| [&["pumice"], words, &["--help"]].concat().join(" ");
            let parsed = |words| Cli::try_parse_from(line(words).split(' ').map(OsString::from));
            let parsed = |words| parsed(words).expect_err("help is no command").kind();
            assert_eq!(parsed(new), clap::error::ErrorKind::DisplayHelp, "{new:?}");
            assert_ne!(parsed(old), clap::error::ErrorKind::DisplayHelp, "{old:?}");
        }
    }

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
