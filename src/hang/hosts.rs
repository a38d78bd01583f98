//! Runs `pumice hang --json` on other hosts by a remote shell, and reads its output.

use std::io::Read;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde::Serialize;

use super::look::HostSnapshots;
use super::options::HangOptions;
use crate::observe::plain;

/// Maximum number of hosts that are asked at a time.
const MAX_PARALLEL_HOSTS: usize = 32;
/// Maximum number of hosts that may be named.
const MAX_HOSTS: usize = 1024;
/// Maximum length of a host's answer, in bytes.
const MAX_ANSWER_BYTES: u64 = 64 << 20;
/// Maximum length of a remote shell's error output that is stored, in bytes.
const MAX_ERROR_BYTES: u64 = 4096;
/// Time for which the rest of a remote shell's output is awaited once the shell has ended.
const OUTPUT_DRAIN_TIME: Duration = Duration::from_secs(2);
/// Interval at which the command checks whether a remote shell has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A host that was asked.
#[derive(Debug, Serialize)]
pub(super) struct HostResult {
    /// Name of the host, as the option gave it.
    pub(super) host: String,
    /// Reason why its processes are unknown; `None` if they are known.
    pub(super) problem: Option<String>,
    #[serde(skip)]
    pub(super) looks: Option<HostSnapshots>,
}

/// Asks all hosts that the options name, in parallel.
///
/// # Errors
/// A sentence that says which option is invalid.
pub(super) fn query_hosts(options: &HangOptions) -> Result<Vec<HostResult>, String> {
    check(options)?;
    let mut all = Vec::with_capacity(options.hosts.len());
    for some in options.hosts.chunks(MAX_PARALLEL_HOSTS) {
        let host_result = thread::scope(|scope| {
            let begun: Vec<_> = some.iter().map(|host| scope.spawn(|| one(options, host))).collect();
            let ended = begun.into_iter().zip(some).map(|(thread, host)| {
                thread.join().unwrap_or_else(|_| host_result(host, Err("it could not be asked".to_owned())))
            });
            ended.collect::<Vec<_>>()
        });
        all.extend(host_result);
    }
    Ok(all)
}

fn check(options: &HangOptions) -> Result<(), String> {
    if options.hosts.len() > MAX_HOSTS {
        return Err(format!("{} hosts are too many: name at most {MAX_HOSTS}", options.hosts.len()));
    }
    // The remote shell would take a name that begins like an option for an option.
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

fn host_result(host: &str, outcome: Result<HostSnapshots, String>) -> HostResult {
    let (looks, problem) = match outcome {
        Ok(looks) => (Some(looks), None),
        Err(problem) => (None, Some(plain(&problem))),
    };
    HostResult { host: plain(host), problem, looks }
}

/// Asks one host.
fn one(options: &HangOptions, host: &str) -> HostResult {
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
    host_result(host, outcome)
}

/// Reads the output of the remote shell until it ends or its time is over.
fn answer(mut child: Child, program: &str, within: Duration) -> Result<HostSnapshots, String> {
    let out = child.stdout.take().map(|out| reading(out, MAX_ANSWER_BYTES));
    let stderr_text = child.stderr.take().map(|stderr_text| reading(stderr_text, MAX_ERROR_BYTES));
    let ended = wait(&mut child, Instant::now() + within);
    // A process that the shell has started and left behind may hold the pipes open for ever.
    let read = |all: Option<Receiver<Vec<u8>>>| all.and_then(|all| all.recv_timeout(OUTPUT_DRAIN_TIME).ok());
    let (out, stderr_text) = (read(out).unwrap_or_default(), read(stderr_text).unwrap_or_default());
    let stderr_text = String::from_utf8_lossy(&stderr_text);
    let last = stderr_text.lines().rev().find(|line| !line.trim().is_empty()).map(|line| plain(line.trim()));
    let last = last.map_or_else(String::new, |line| format!(": {line}"));
    let Some(status) = ended else {
        return Err(format!("{program} has not answered within {} s{last}", within.as_secs_f64()));
    };
    // Exit code 1 says that something is stuck there.
    match serde_json::from_slice(&out) {
        Ok(looks) if matches!(status.code(), Some(0 | 1)) => Ok(looks),
        Err(error) if status.success() => Err(format!(
            "what {program} printed is not what `pumice hang --json` prints ({error}){last}: have pumice of \
             one version on both hosts"
        )),
        _ => Err(format!("{program} ended with {status}{last}")),
    }
}

/// Reads everything in a thread, and stores at most `most` bytes of it.
fn reading(mut source: impl Read + Send + 'static, most: u64) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // A read error is treated as the end.
        let _ = source.by_ref().take(most).read_to_end(&mut bytes);
        let _ = std::io::copy(&mut source, &mut std::io::sink());
        // The receiver may have stopped waiting.
        let _ = sender.send(bytes);
    });
    receiver
}

/// Waits for the child's end, and kills it when the time is over. Returns `None` if it had to.
fn wait(child: &mut Child, until: Instant) -> Option<ExitStatus> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < until => thread::sleep(POLL_INTERVAL),
            _ => {
                // The processes that the child has started are in its process group and are killed too.
                if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                    let _ = kill_process_group(group, Signal::KILL);
                }
                let _ = child.wait();
                return None;
            }
        }
    }
}
