//! Commands that once had other names: the old words still work, with a hint.

use std::ffi::OsString;

use crate::printed::complain;

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

#[cfg(test)]
mod tests {
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
}
