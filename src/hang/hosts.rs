//! What `pumice hang --json` says on other hosts, which a remote shell runs there.

use std::io::Read;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde::Serialize;

use super::look::Looks;
use super::options::HangOptions;
use crate::observe::plain;

/// Hosts that are asked at a time.
const AT_ONCE: usize = 32;
/// Hosts that may be named.
const MOST: usize = 1024;
/// The longest answer of a host, in bytes.
const MAX_ANSWER_BYTES: u64 = 64 << 20;
/// What is kept of the errors of a remote shell, in bytes.
const MAX_ERROR_BYTES: u64 = 4096;
/// How long the end of what a remote shell printed is waited for, once it has ended.
const REST: Duration = Duration::from_secs(2);
/// Between two looks whether a remote shell has ended.
const LOOK: Duration = Duration::from_millis(20);

/// A host that was asked.
#[derive(Debug, Serialize)]
pub(super) struct Asked {
    /// As it was named.
    pub(super) host: String,
    /// Why nothing is known of its processes; none: they are known.
    pub(super) problem: Option<String>,
    #[serde(skip)]
    pub(super) looks: Option<Looks>,
}

/// Asks all hosts that the options name, in parallel.
///
/// # Errors
/// A sentence: an option makes no sense.
pub(super) fn ask(options: &HangOptions) -> Result<Vec<Asked>, String> {
    check(options)?;
    let mut all = Vec::with_capacity(options.hosts.len());
    for some in options.hosts.chunks(AT_ONCE) {
        let asked = thread::scope(|scope| {
            let begun: Vec<_> = some.iter().map(|host| scope.spawn(|| one(options, host))).collect();
            let ended = begun.into_iter().zip(some).map(|(thread, host)| {
                thread.join().unwrap_or_else(|_| asked(host, Err("it could not be asked".to_owned())))
            });
            ended.collect::<Vec<_>>()
        });
        all.extend(asked);
    }
    Ok(all)
}

fn check(options: &HangOptions) -> Result<(), String> {
    if options.hosts.len() > MOST {
        return Err(format!("{} hosts are too many: name at most {MOST}", options.hosts.len()));
    }
    // A name that begins like an option would be one of the remote shell.
    let is_name =
        |host: &&String| !host.is_empty() && !host.starts_with('-') && !host.contains(char::is_whitespace);
    if let Some(wrong) = options.hosts.iter().find(|host| !is_name(host)) {
        return Err(format!("\"{}\" is no name of a host: write --hosts one,other", plain(wrong)));
    }
    if words(&options.rsh).is_empty() {
        return Err("--rsh names no program: write --rsh ssh, or leave it out".to_owned());
    }
    Ok(())
}

fn words(text: &str) -> Vec<&str> {
    text.split_ascii_whitespace().collect()
}

fn asked(host: &str, outcome: Result<Looks, String>) -> Asked {
    let (looks, problem) = match outcome {
        Ok(looks) => (Some(looks), None),
        Err(problem) => (None, Some(plain(&problem))),
    };
    Asked { host: plain(host), problem, looks }
}

/// Asks one host.
fn one(options: &HangOptions, host: &str) -> Asked {
    let shell = words(&options.rsh);
    let (program, arguments) = shell.split_first().map_or(("ssh", &[][..]), |(first, rest)| (*first, rest));
    let mut command = Command::new(program);
    command.args(arguments).arg(host).args(words(&options.remote)).args(["hang", "--json"]);
    command.args(["--port", &options.port.to_string()]);
    command.process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let outcome = match command.spawn() {
        Ok(child) => answer(child, program, options.within),
        Err(error) => Err(format!("{program} cannot be run: {error}: name another remote shell with --rsh")),
    };
    asked(host, outcome)
}

/// What the remote shell prints, until it ends or its time is over.
fn answer(mut child: Child, program: &str, within: Duration) -> Result<Looks, String> {
    let out = child.stdout.take().map(|out| reading(out, MAX_ANSWER_BYTES));
    let said = child.stderr.take().map(|said| reading(said, MAX_ERROR_BYTES));
    let ended = wait(&mut child, Instant::now() + within);
    // What it has started, and left behind, may have its pipes for ever.
    let read = |all: Option<Receiver<Vec<u8>>>| all.and_then(|all| all.recv_timeout(REST).ok());
    let (out, said) = (read(out).unwrap_or_default(), read(said).unwrap_or_default());
    let said = String::from_utf8_lossy(&said);
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).map(|line| plain(line.trim()));
    let last = last.map_or_else(String::new, |line| format!(": {line}"));
    let Some(status) = ended else {
        return Err(format!("{program} has not answered within {} s{last}", within.as_secs_f64()));
    };
    // Code 1 says that something waits in vain there.
    match serde_json::from_slice(&out) {
        Ok(looks) if matches!(status.code(), Some(0 | 1)) => Ok(looks),
        Err(error) if status.success() => Err(format!(
            "what {program} printed is not what `pumice hang --json` prints ({error}){last}: have pumice of \
             one version on both hosts"
        )),
        _ => Err(format!("{program} ended with {status}{last}")),
    }
}

/// Reads all in a thread, and keeps so much of it.
fn reading(mut source: impl Read + Send + 'static, most: u64) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut kept = Vec::new();
        // What cannot be read any more has ended.
        let _ = source.by_ref().take(most).read_to_end(&mut kept);
        let _ = std::io::copy(&mut source, &mut std::io::sink());
        // The one that asked may wait no longer.
        let _ = sender.send(kept);
    });
    receiver
}

/// Waits for its end, and makes one when the time is over. `None`: it had to.
fn wait(child: &mut Child, until: Instant) -> Option<ExitStatus> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < until => thread::sleep(LOOK),
            _ => {
                // With what it has started, which is of its group.
                if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                    let _ = kill_process_group(group, Signal::KILL);
                }
                let _ = child.wait();
                return None;
            }
        }
    }
}
