//! The options of `pumice hang`: it runs `pumice hang --json` on other hosts by a remote shell, and takes
//! snapshots of the processes of this one.

use std::io::Read;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use pumice_device::outside;
use pumice_device::platform::quantity::time_ns;
use pumice_device::process_statuses::process_statuses;
use pumice_device::waits::ProcessStatus;
use pumice_transport::path::ROCE_PORT;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};

use crate::observe::plain;
use crate::outcome::CommandError;

/// Options of `pumice hang`.
#[derive(Debug, Args)]
pub(crate) struct HangOptions {
    /// Print one JSON object instead of text: what was seen, all waits and the verdicts
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw the processes and their waits into this SVG file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Write the same as a graph for graphviz (dot)
    #[arg(long, value_name = "FILE")]
    pub(crate) dot: Option<PathBuf>,
    /// Look at processes of other hosts as well: files that "pumice hang --json" has written there
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub(crate) with: Vec<PathBuf>,
    /// Look at processes of these hosts as well, on which ssh runs "pumice hang --json"; with commas between
    /// them. ssh must log in without a question
    #[arg(long, value_name = "HOST", value_delimiter = ',', num_args = 1..)]
    pub(crate) hosts: Vec<String>,
    /// Command that runs a command on another host, and its options, as in "ssh -p 2222"
    #[arg(long, value_name = "COMMAND", default_value = "ssh", requires = "hosts")]
    rsh: String,
    /// Command that starts pumice on the other hosts
    #[arg(long, value_name = "COMMAND", default_value = "pumice", requires = "hosts")]
    pub(crate) remote: String,
    /// Time that another host may take, as in 10s
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = within, requires = "hosts")]
    pub(crate) within: Duration,
    /// The UDP port that the processes share
    #[arg(long, default_value_t = ROCE_PORT)]
    pub(crate) port: u16,
    /// Folder of the registry of processes, if it is not the usual one
    #[arg(long, hide = true)]
    pub(crate) registry: Option<PathBuf>,
}

/// Parses the time that another host may take.
fn within(text: &str) -> Result<Duration, String> {
    let time = Duration::from_nanos(time_ns(text)?);
    let is_right = (Duration::from_millis(100)..=Duration::from_secs(600)).contains(&time);
    if is_right { Ok(time) } else { Err(format!("\"{text}\" is not a time from 100ms to 600s")) }
}

/// Time for which answers of processes are awaited.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Time between snapshots. Processes examine their threads meanwhile, which takes a quarter of a second, and
/// longer on a busy machine.
const SNAPSHOT_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum number of snapshots until all processes have examined their threads.
const MAX_SNAPSHOTS: u32 = 20;

/// The snapshots of a host, as `--json` writes and `--with` reads them.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct HostSnapshots {
    /// Name of the host.
    pub(super) host: String,
    /// Id of the boot and of the pid namespace, in which process ids are unique; empty from an older version.
    #[serde(default)]
    pub(super) place: String,
    /// Processes that are already included, also of other hosts.
    #[serde(skip)]
    pub(super) known: Vec<ProcessKey>,
    /// Processes in the first snapshot.
    pub(super) before: Vec<ProcessStatus>,
    /// Processes in the second snapshot.
    pub(super) processes: Vec<ProcessStatus>,
}

/// A process by the id of its boot and pid namespace, and its process id.
type ProcessKey = (String, u32);

impl HostSnapshots {
    /// Adds the snapshots of a host of this name, without processes that are already included.
    pub(super) fn add(&mut self, other: HostSnapshots, name: &str) {
        if self.known.is_empty() && !self.place.is_empty() {
            let own = self.processes.iter().filter(|one| one.host.is_empty());
            self.known = own.map(|one| (self.place.clone(), one.pid)).collect();
        }
        let known = &self.known;
        let is_new =
            |one: &ProcessStatus| !one.host.is_empty() || !known.contains(&(other.place.clone(), one.pid));
        // Processes of a third host, which the other host included, have that host's name already.
        let named = |one: ProcessStatus| {
            let host = if one.host.is_empty() { name.to_owned() } else { one.host.clone() };
            ProcessStatus { host, ..one }
        };
        let [before, processes] = [&other.before, &other.processes]
            .map(|all| all.iter().filter(|one| is_new(one)).cloned().map(named).collect::<Vec<_>>());
        if !other.place.is_empty() {
            let others = other.processes.iter().filter(|one| one.host.is_empty());
            self.known.extend(others.map(|one| (other.place.clone(), one.pid)));
        }
        self.before.extend(before);
        self.processes.extend(processes);
    }
}

/// Returns the id of the boot and of the pid namespace.
fn place() -> String {
    let boot = outside::files::fact_text("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let space = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("{} {}", boot.trim_end(), space.display())
}

/// Takes both snapshots.
pub(super) fn take_snapshots(options: &HangOptions) -> Result<HostSnapshots, CommandError> {
    let before = take_snapshot(options, true)?;
    let mut processes = before.clone();
    for _ in 0..MAX_SNAPSHOTS {
        if before.is_empty() {
            break;
        }
        outside::sleep(SNAPSHOT_INTERVAL);
        processes = take_snapshot(options, false)?;
        if !processes.iter().any(|one| one.must_examine_threads(&before)) {
            break;
        }
    }
    let host = outside::files::fact_text("/proc/sys/kernel/hostname").unwrap_or_default();
    Ok(HostSnapshots { host: plain(host.trim_end()), place: place(), known: Vec::new(), before, processes })
}

/// Takes a snapshot. `examines_threads`: each process also examines what its threads wait for, and reports it
/// in the next snapshot.
fn take_snapshot(options: &HangOptions, examines_threads: bool) -> Result<Vec<ProcessStatus>, CommandError> {
    let all = process_statuses(options.port, options.registry.as_deref(), TIMEOUT, examines_threads);
    all.map_err(|error| CommandError::Failed(format!("the processes cannot be asked: {error}")))
}

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
