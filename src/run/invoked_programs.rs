//! Finds the programs that a command line runs, as far as it shows them, and this program's file.
//!
//! Finds the programs that a command line runs, as far as it shows them: `env`, a shell's command line, and a
//! script hide the program that matters.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::outcome::{CommandError, NO_PROGRAM, NOT_EXECUTABLE};

/// Folders in which execvp(3) searches when PATH is not set.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Returns the file of a program that a shell would find.
pub(crate) fn find(name: &OsStr) -> Result<PathBuf, CommandError> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from(DEFAULT_PATH));
    find_in(name, &path)
}

fn find_in(name: &OsStr, search: &OsStr) -> Result<PathBuf, CommandError> {
    let shown = Path::new(name).display();
    let candidates: Vec<PathBuf> = if name.as_bytes().contains(&b'/') {
        vec![PathBuf::from(name)]
    } else {
        // An empty part means the current folder.
        let folders = std::env::split_paths(search);
        folders
            .map(|folder| if folder.as_os_str().is_empty() { "./".into() } else { folder }.join(name))
            .collect()
    };
    let there = |path: &&PathBuf| !name.is_empty() && fs::symlink_metadata(path).is_ok();
    let runnable = |path: &&PathBuf| path.is_file() && access(path.as_path(), Access::EXEC_OK).is_ok();
    if let Some(path) = candidates.iter().find(runnable) {
        return Ok(path.clone());
    }
    match candidates.iter().find(there) {
        Some(path) if path.is_dir() => Err(CommandError::Program {
            sentence: format!("{} is a folder, not a program", path.display()),
            exit_code: NOT_EXECUTABLE,
        }),
        Some(path) if path.exists() => Err(CommandError::Program {
            sentence: format!("{} may not be executed: chmod +x it, if it is a program", path.display()),
            exit_code: NOT_EXECUTABLE,
        }),
        _ => {
            let remedy = if name.as_bytes().contains(&b'/') { "check its path" } else { "it is not in PATH" };
            let sentence = format!("there is no program {shown}: {remedy}");
            Err(CommandError::Program { sentence, exit_code: NO_PROGRAM })
        }
    }
}

/// Returns this program's file. Without /proc, which some containers lack, it is searched as a shell would.
///
/// # Errors
/// A sentence: neither way finds it.
pub(crate) fn own_program() -> Result<PathBuf, String> {
    let error = match std::env::current_exe() {
        Ok(path) => return Ok(path),
        Err(error) => error,
    };
    let called = std::env::args_os().next().unwrap_or_default();
    called_as(&called).ok_or_else(|| {
        format!(
            "this program cannot find itself, neither by /proc ({error}) nor as {}: mount /proc, or name it \
             by its path",
            Path::new(&called).display()
        )
    })
}

/// Returns the file of a program that was called by this name, with links in its path resolved.
fn called_as(name: &OsStr) -> Option<PathBuf> {
    let found = find(name).ok()?;
    found.canonicalize().ok()
}

/// Maximum number of commands that are followed from one to the next.
const MAX_STEPS: usize = 8;
/// Maximum number of bytes of a script that are read.
const SCRIPT_BYTES: u64 = 1 << 16;
/// Shells whose command lines are parsed.
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "ash", "ksh", "zsh"];
/// Words before a command that do not change which command it is.
const BEFORE_COMMANDS: [&str; 9] = ["exec", "command", "time", "if", "while", "until", "then", "do", "!"];

/// The programs that a command line runs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct InvokedPrograms {
    /// Programs that certainly run: the program itself, and the one behind `env` and the like.
    pub(super) only: Vec<PathBuf>,
    /// Programs that a shell runs among others.
    pub(super) among: Vec<PathBuf>,
}

impl InvokedPrograms {
    /// Finds the programs that `program` runs with these arguments.
    pub(super) fn of(program: &Path, arguments: &[OsString]) -> InvokedPrograms {
        let mut invoked_programs = InvokedPrograms::default();
        let mut now = (program.to_owned(), arguments.to_vec());
        for _ in 0..MAX_STEPS {
            let (program, arguments) = now;
            invoked_programs.only.push(program.clone());
            now = match next(&program, &arguments) {
                NextProgram::Program(path, arguments) => (path, arguments),
                NextProgram::Text(text) => return invoked_programs.with_text(&text),
                NextProgram::Nothing => return invoked_programs,
            };
        }
        invoked_programs
    }

    fn with_text(mut self, text: &[u8]) -> InvokedPrograms {
        let commands = commands(text);
        let found: Vec<PathBuf> = commands.iter().filter_map(|name| find(name).ok()).collect();
        if commands.len() == 1 {
            self.only.extend(found)
        } else {
            self.among.extend(found)
        }
        self
    }
}

/// The next step: what a program runs.
enum NextProgram {
    Program(PathBuf, Vec<OsString>),
    /// A shell's text with commands.
    Text(Vec<u8>),
    Nothing,
}

fn next(program: &Path, arguments: &[OsString]) -> NextProgram {
    let name = program.file_name().unwrap_or_default();
    if name == "env" {
        return next_of_env(arguments);
    }
    if SHELLS.iter().any(|shell| name == *shell) {
        return next_of_shell(arguments);
    }
    let Some(text) = script(program) else { return NextProgram::Nothing };
    let Some(line) = text.strip_prefix(b"#!") else { return NextProgram::Nothing };
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let mut words = words(line).map(|word| OsStr::from_bytes(word).to_owned());
    let Some(interpreter) = words.next() else { return NextProgram::Nothing };
    let rest = words.chain([program.as_os_str().to_owned()]).chain(arguments.iter().cloned()).collect();
    NextProgram::Program(interpreter.into(), rest)
}

/// Returns the program after the variables and options of env(1).
fn next_of_env(arguments: &[OsString]) -> NextProgram {
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        match word.as_bytes() {
            b"-u" | b"--unset" | b"-C" | b"--chdir" => drop(rest.next()),
            [b'-', ..] => {}
            other if other.contains(&b'=') => {}
            _ => {
                return match find(word) {
                    Ok(path) => NextProgram::Program(path, rest.cloned().collect()),
                    Err(_) => NextProgram::Nothing,
                };
            }
        }
    }
    NextProgram::Nothing
}

/// Returns the command line after `-c`, or the script.
fn next_of_shell(arguments: &[OsString]) -> NextProgram {
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        match word.as_bytes() {
            [b'-', b'-', ..] => {}
            // Combined options such as `-ec`.
            [b'-', options @ ..] if options.contains(&b'c') => {
                return rest
                    .next()
                    .map_or(NextProgram::Nothing, |text| NextProgram::Text(text.as_bytes().to_vec()));
            }
            [b'-' | b'+', ..] => {}
            _ => return script(Path::new(word)).map_or(NextProgram::Nothing, NextProgram::Text),
        }
    }
    NextProgram::Nothing
}

/// Returns the beginning of a file that is a text.
fn script(path: &Path) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let file = File::open(path).ok()?;
    // Opening a pipe would wait, but what is run is a file.
    file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    file.take(SCRIPT_BYTES).read_to_end(&mut text).ok()?;
    (!text.contains(&0)).then_some(text)
}

/// Returns the names of the commands of a shell's text, as far as they are plain words.
fn commands(text: &[u8]) -> Vec<OsString> {
    let command = |words: Vec<ShellWord>| -> Option<OsString> {
        let named = |word: &ShellWord| {
            !BEFORE_COMMANDS.iter().any(|before| word.bytes == before.as_bytes())
                && !word.bytes.contains(&b'=')
        };
        let word = words.into_iter().find(named)?;
        word.is_plain.then(|| OsString::from_vec(word.bytes))
    };
    shell_words(text).into_iter().filter_map(command).collect()
}

/// A word of a shell's text, without its quotes.
struct ShellWord {
    bytes: Vec<u8>,
    /// The shell expands no part of the word.
    is_plain: bool,
}

/// Splits a shell's text into the words of each command.
fn shell_words(text: &[u8]) -> Vec<Vec<ShellWord>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<ShellWord> = None;
    let mut quote = None;
    let mut rest = text.iter().copied();
    while let Some(mut byte) = rest.next() {
        let ends_command = matches!(byte, b';' | b'&' | b'|' | b'(' | b')' | b'\n');
        if quote.is_none() && (ends_command || byte.is_ascii_whitespace()) {
            commands.last_mut().into_iter().for_each(|words| words.extend(word.take()));
            if ends_command {
                commands.push(Vec::new());
            }
            continue;
        }
        if quote.is_none() && byte == b'#' && word.is_none() {
            // A comment.
            if rest.any(|byte| byte == b'\n') {
                commands.push(Vec::new());
            }
            continue;
        }
        let word = word.get_or_insert(ShellWord { bytes: Vec::new(), is_plain: true });
        let is_literal = match quote {
            None if matches!(byte, b'\'' | b'"') => {
                quote = Some(byte);
                continue;
            }
            Some(open) if byte == open => {
                quote = None;
                continue;
            }
            _ if byte == b'\\' && quote != Some(b'\'') => {
                byte = rest.next().unwrap_or(byte);
                true
            }
            Some(b'"') => !matches!(byte, b'$' | b'`'),
            Some(_) => true,
            None => byte.is_ascii_alphanumeric() || b"./_-+,%@=".contains(&byte),
        };
        word.is_plain &= is_literal;
        word.bytes.push(byte);
    }
    commands.last_mut().into_iter().for_each(|words| words.extend(word.take()));
    commands
}

fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(name: &str, search: &str) -> u8 {
        match find_in(OsStr::new(name), OsStr::new(search)) {
            Err(CommandError::Program { exit_code, .. }) => exit_code,
            Err(other) => panic!("{other}"),
            Ok(_) => 0,
        }
    }

    #[test]
    fn programs_are_found_as_shells_find_them() {
        assert_eq!(code("sh", "/nowhere:/bin"), 0);
        assert_eq!(code("sh", "/nowhere"), 127);
        assert_eq!(code("", "/bin"), 127);
        assert_eq!(code("/bin/sh", ""), 0);
        assert_eq!(code("/bin/no-such-program", "/bin"), 127);
        assert_eq!(code("/etc/passwd", "/bin"), 126);
        assert_eq!(code("passwd", "/etc:/nowhere"), 126);
        assert_eq!(code("/etc", "/bin"), 126);
    }

    #[test]
    fn a_program_is_found_by_the_name_that_it_was_called_by() {
        let own = std::env::current_exe().expect("Linux");
        assert_eq!(called_as(own.as_os_str()), own.canonicalize().ok());
        assert!(called_as(OsStr::new("sh")).is_some_and(|path| path.is_absolute()));
        assert_eq!(called_as(OsStr::new("no-such-program-anywhere")), None);
    }

    fn invoked_programs(line: &[&str]) -> (Vec<String>, Vec<String>) {
        let (program, arguments) = line.split_first().expect("a program");
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        let found = InvokedPrograms::of(&find(OsStr::new(program)).expect("it is there"), &arguments);
        let names = |paths: Vec<PathBuf>| {
            let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            paths.iter().map(name).collect()
        };
        (names(found.only), names(found.among))
    }

    fn same(line: &[&str], only: &[&str], among: &[&str]) {
        let all = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(invoked_programs(line), (all(only), all(among)), "{line:?}");
    }

    #[test]
    fn the_program_behind_others_is_seen() {
        same(&["cat", "x"], &["cat"], &[]);
        same(&["env", "-u", "A", "B=c", "-i", "cat", "x"], &["env", "cat"], &[]);
        same(&["env", "A=b"], &["env"], &[]);
        same(&["env", "A=b", "sh", "-ec", "A=1 exec cat x"], &["env", "sh", "cat"], &[]);
        same(&["sh", "-c", "if true; then cat x | sort; fi"], &["sh"], &["true", "cat", "sort"]);
        same(&["sh", "-c", "\"$PROGRAM\" x"], &["sh"], &[]);
        same(&["sh", "-c", "exec 'cat' \"a;b\" # x; sort"], &["sh", "cat"], &[]);
        same(&["sh", "-c", "A='b c' \"c\"at x\\;y\n# it's\nsort"], &["sh"], &["cat", "sort"]);
        same(&["sh", "-c", "'cat x'"], &["sh"], &[]);
        same(&["sh"], &["sh"], &[]);
        same(
            &["env", "env", "env", "env", "env", "env", "env", "env", "env", "cat"],
            &["env"; MAX_STEPS],
            &[],
        );
    }

    #[test]
    fn scripts_are_read() {
        use std::os::unix::fs::PermissionsExt as _;
        let path = std::env::temp_dir().join(format!("pumice-script-{}", std::process::id()));
        let name = path.file_name().expect("it has one").to_string_lossy().into_owned();
        let shown = path.to_str().expect("text").to_owned();
        let write = |text: &str| {
            std::fs::write(&path, text).expect("a file");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).expect("ours");
        };
        write("#!/usr/bin/env -S sh\n# comment; cat\ntrue\ncat x\n");
        same(&[&shown], &[&name, "env", "sh"], &["true", "cat"]);
        write("#!/bin/sh\ncat \"$@\"\n");
        same(&[&shown], &[&name, "sh", "cat"], &[]);
        std::fs::remove_file(&path).expect("ours");
    }
}
