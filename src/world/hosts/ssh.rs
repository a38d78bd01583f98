//! The command line of ssh, as far as its stand-in takes it: options are accepted, and change nothing but for
//! `-n` and `-f`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

/// Options of ssh that take a word.
const WITH_WORD: &[u8] = b"BbcDEeFIiJLlmOopPQRSWw";
/// Options of ssh that take none.
const WITHOUT_WORD: &[u8] = b"46AaCfGgKkMNnqsTtVvXxYy";

/// What ssh is asked to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RemoteCommand {
    /// Name or address of the host.
    pub(super) host: String,
    /// Words of the command; none for a shell that reads commands.
    words: Vec<OsString>,
    /// The command reads nothing (`-n`, `-f`).
    without_input: bool,
    /// The command goes on in the background (`-f`).
    in_background: bool,
}

impl RemoteCommand {
    /// Parses the arguments of ssh.
    ///
    /// # Errors
    /// No host is named, or an option is none of ssh.
    pub(super) fn parse(words: &[OsString]) -> Result<RemoteCommand, String> {
        let mut rest = words.iter();
        let (mut host, mut flags, mut command) = (None, Vec::new(), Vec::new());
        while let Some(word) = rest.next() {
            match (word.as_bytes(), &host) {
                (b"--", _) => {}
                ([b'-', options @ ..], _) if !options.is_empty() => {
                    if read_options(options, &mut flags)? {
                        rest.next();
                    }
                }
                (name, None) => host = Some(String::from_utf8_lossy(name).into_owned()),
                (_, Some(_)) => {
                    command.push(word.clone());
                    command.extend(rest.cloned());
                    break;
                }
            }
        }
        let host = host.ok_or("ssh: name a host: ssh host2 COMMAND")?;
        // ssh://user@host:port, or user@host.
        let host = host.strip_prefix("ssh://").map_or(&*host, |rest| rest.split(':').next().unwrap_or(rest));
        let host = host.rsplit('@').next().unwrap_or(host).to_owned();
        let has = |flag: u8| flags.contains(&flag);
        Ok(RemoteCommand {
            host,
            words: command,
            without_input: has(b'n') || has(b'f'),
            in_background: has(b'f'),
        })
    }

    /// Returns the arguments of the shell that runs the command, which ssh joins by spaces.
    pub(super) fn arguments(&self) -> Vec<OsString> {
        if self.words.is_empty() {
            return vec!["-s".into()];
        }
        let words: Vec<&OsStr> = self.words.iter().map(OsString::as_os_str).collect();
        let mut text = words.join(OsStr::new(" ")).into_vec();
        if self.without_input || self.in_background {
            let end: &[u8] = if self.in_background { b"\n} < /dev/null &" } else { b"\n} < /dev/null" };
            text = [b"{ ", &text[..], end].concat();
        }
        vec!["-c".into(), OsString::from_vec(text)]
    }
}

/// Reads a word with options. Returns whether the next word belongs to the last of them.
fn read_options(options: &[u8], flags: &mut Vec<u8>) -> Result<bool, String> {
    for (at, option) in options.iter().enumerate() {
        if WITH_WORD.contains(option) {
            return Ok(at + 1 == options.len());
        }
        if !WITHOUT_WORD.contains(option) {
            return Err(format!("ssh: unknown option -- {}", char::from(*option).escape_default()));
        }
        flags.push(*option);
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<RemoteCommand, String> {
        RemoteCommand::parse(&words.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn the_options_of_ssh_are_told_from_the_command() {
        let parsed = parse(&["-x", "-o", "BatchMode=yes", "-p22", "me@host2", "-n", "ls", "-l", "a b"]);
        let parsed = parsed.expect("it is right");
        assert_eq!(parsed.host, "host2");
        assert_eq!(parsed.arguments(), ["-c", "{ ls -l a b\n} < /dev/null"]);
        let parsed = parse(&["-qf", "ssh://me@host3:22", "--", "sleep 1"]).expect("it is right");
        assert_eq!(parsed.host, "host3");
        assert_eq!(parsed.arguments(), ["-c", "{ sleep 1\n} < /dev/null &"]);
        assert_eq!(parse(&["host1", "a", "-n"]).expect("it is right").arguments(), ["-c", "a -n"]);
        assert_eq!(parse(&["host1"]).expect("a shell").arguments(), ["-s"]);
        assert_eq!(parse(&["-Z", "host1"]), Err("ssh: unknown option -- Z".to_owned()));
        assert!(parse(&["-l", "me"]).is_err());
    }
}
