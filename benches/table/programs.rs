//! Rows and peers that third-party programs measure: a pair of processes for each round.

use std::fs;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use pumice_perf::machine;

use super::figure::{Figure, RoundFigures};
use super::rows::{Instrument, UcxPeer, UcxTest, UcxUnit};
use super::source::{FigureSource, Unmeasured};

/// The program of this build, on which others run.
pub(super) const PUMICE: &str = env!("CARGO_BIN_EXE_pumice");

/// Time that a pair of programs may take. A round takes a second, and more on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Length of the round, in seconds, for which numbers of messages are given.
const ROUND_SECONDS: f64 = 0.25;
/// Minimum number of messages from which a figure is computed.
const MIN_MESSAGES: f64 = 200.0;
/// Number of messages of `ib_send_lat` in a round.
const TIMED_MESSAGES: u32 = 20_000;

/// Returns the number of messages of a shorter or longer round.
fn messages(of_round: u32, seconds: f64) -> String {
    format!("{:.0}", (f64::from(of_round) * seconds / ROUND_SECONDS).max(MIN_MESSAGES))
}

fn installed(program: &str, package: &str) -> Result<(), Unmeasured> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|folder| folder.join(program).is_file()) {
        return Ok(());
    }
    Err(Unmeasured::Unavailable(format!("{program} is not installed: apt-get install {package}")))
}

/// UCX on its own transports.
#[derive(Debug)]
pub(super) struct UcxWithoutPumice(&'static UcxPeer);

impl UcxWithoutPumice {
    pub(super) fn find(peer: &'static UcxPeer) -> Result<UcxWithoutPumice, Unmeasured> {
        installed("ucx_perftest", "ucx-utils").map(|()| UcxWithoutPumice(peer))
    }
}

impl FigureSource for UcxWithoutPumice {
    fn round(&mut self, seconds: f64) -> Result<RoundFigures, Unmeasured> {
        let UcxPeer { figure, transports, device, messages: count, test } = self.0;
        let command = |_| {
            let mut command = Command::new("ucx_perftest");
            command.env("UCX_TLS", transports).env("UCX_NET_DEVICES", device);
            Ok(command)
        };
        Ok(RoundFigures::from([(*figure, ucx(command, test, *count, seconds)?)]))
    }
}

/// UCX on pumice's device.
#[derive(Debug)]
pub(super) struct UcxOnPumice {
    addresses: [IpAddr; 2],
    test: UcxTest,
    messages: u32,
}

impl UcxOnPumice {
    pub(super) fn find(
        addresses: [IpAddr; 2],
        test: UcxTest,
        messages: u32,
    ) -> Result<UcxOnPumice, Unmeasured> {
        installed("ucx_perftest", "ucx-utils").map(|()| UcxOnPumice { addresses, test, messages })
    }
}

impl FigureSource for UcxOnPumice {
    fn round(&mut self, seconds: f64) -> Result<RoundFigures, Unmeasured> {
        let command = |end| {
            let mut command = on_pumice(self.addresses, end, &["--sysfs"])?;
            command.arg("ucx_perftest").env("UCX_TLS", "rc_v,self").env("UCX_NET_DEVICES", "pumice0:1");
            Ok(command)
        };
        Ok(RoundFigures::from([(Figure::Value, ucx(command, &self.test, self.messages, seconds)?)]))
    }
}

/// Runs one measurement by UCX, whose ends `command` makes.
fn ucx(
    command: impl Fn(usize) -> Result<Command, String>,
    test: &UcxTest,
    count: u32,
    seconds: f64,
) -> Result<f64, String> {
    let count = messages(count, seconds);
    let size = test.size_bytes.to_string();
    let port = free_port()?;
    let port_text = port.to_string();
    let own = ["-p", &port_text, "-f", "-v"];
    let (mut server, mut client) = (command(1)?, command(0)?);
    for end in [&mut server, &mut client] {
        end.env("UCX_WARN_UNUSED_ENV_VARS", "n").args(own);
    }
    let described = ["-t", test.test, "-s", &size, "-n", &count, "-w", "100"];
    client.arg(Ipv4Addr::LOCALHOST.to_string()).args(described);
    let printed = pair(server, client, port)?;
    let nothing = || format!("ucx_perftest printed no figure, but \"{}\"", printed.trim());
    figure_of_ucx(&printed, test.gives).ok_or_else(nothing)
}

/// Parses the columns of `ucx_perftest -f -v`: iterations, median, mean and overall latency in µs, mean and
/// overall bandwidth in MiB/s, mean and overall rate per second.
pub(super) fn figure_of_ucx(printed: &str, gives: UcxUnit) -> Option<f64> {
    let (column, factor) = match gives {
        UcxUnit::Microseconds => (1, 1.0),
        UcxUnit::GigabytesPerSecond => (5, (1 << 20) as f64 / 1e9),
        UcxUnit::MillionsPerSecond => (7, 1e-6),
    };
    let numbers = printed.lines().rev().find(|line| {
        line.split(',').count() == 8 && line.split(',').all(|word| word.trim().parse::<f64>().is_ok())
    })?;
    let value: f64 = numbers.split(',').nth(column)?.trim().parse().ok()?;
    Some(value * factor)
}

/// `ib_send_lat`, with an instrument of pumice and without, in turns.
#[derive(Debug)]
pub(super) struct WithInstrument {
    addresses: [IpAddr; 2],
    instrument: Instrument,
    /// Folder for traces.
    folder: ScratchFolder,
}

impl WithInstrument {
    pub(super) fn find(addresses: [IpAddr; 2], instrument: Instrument) -> Result<WithInstrument, Unmeasured> {
        installed("ib_send_lat", "perftest")?;
        Ok(WithInstrument { addresses, instrument, folder: ScratchFolder::make()? })
    }

    fn typical_us(&self, instrument: Option<Instrument>, seconds: f64) -> Result<f64, String> {
        let port = free_port()?;
        let (port_text, count) = (port.to_string(), messages(TIMED_MESSAGES, seconds));
        let command = |end: usize| {
            let trace = self.folder.0.join(format!("{end}.trace"));
            let options = match instrument {
                Some(Instrument::Check) => vec!["--check"],
                Some(Instrument::Trace) => vec!["--trace", path_text(&trace)?],
                None => vec![],
            };
            let mut command = on_pumice(self.addresses, end, &options)?;
            command.args(["ib_send_lat", "-d", "pumice0", "-x", "0", "-s", "8", "-F"]);
            command.args(["-n", &count, "-p", &port_text]);
            Ok::<Command, String>(command)
        };
        let mut client = command(0)?;
        client.arg(Ipv4Addr::LOCALHOST.to_string());
        let printed = pair(command(1)?, client, port)?;
        let nothing = || format!("ib_send_lat printed no figure, but \"{}\"", printed.trim());
        typical_of_perftest(&printed).ok_or_else(nothing)
    }
}

impl FigureSource for WithInstrument {
    fn round(&mut self, seconds: f64) -> Result<RoundFigures, Unmeasured> {
        let without = self.typical_us(None, seconds)?;
        let value = self.typical_us(Some(self.instrument), seconds)?;
        Ok(RoundFigures::from([(Figure::Value, value), (Figure::Without, without)]))
    }
}

/// Parses the columns of perftest's latencies: bytes, iterations, minimum, maximum and typical time in µs,
/// and more.
pub(super) fn typical_of_perftest(printed: &str) -> Option<f64> {
    let numbers =
        |line: &str| -> Option<Vec<f64>> { line.split_whitespace().map(|word| word.parse().ok()).collect() };
    let row = printed.lines().rev().filter_map(numbers).find(|row| row.len() >= 5)?;
    row.get(4).copied()
}

/// Returns the beginning of a command on pumice, through shared memory: end 0 has the first address and end 1
/// the second.
fn on_pumice(addresses: [IpAddr; 2], end: usize, options: &[&str]) -> Result<Command, String> {
    let [own, peer] = addresses;
    let address = if end == 0 { own } else { peer }.to_string();
    let mut command = Command::new(PUMICE);
    command.args(["run", "--addr", &address, "--wire", "auto", "--log", "warn"]).args(options).arg("--");
    Ok(command)
}

fn path_text(path: &Path) -> Result<&str, String> {
    path.to_str().ok_or_else(|| format!("the folder of {} has a name that is no text", path.display()))
}

/// A temporary folder for files of a measurement; dropping the value removes it.
#[derive(Debug)]
struct ScratchFolder(PathBuf);

impl ScratchFolder {
    fn make() -> Result<ScratchFolder, String> {
        let folder = std::env::temp_dir().join(format!("pumice-perf-{}", std::process::id()));
        let made = fs::create_dir_all(&folder);
        made.map_err(|error| format!("{} cannot be made: {error}; set TMPDIR", folder.display()))?;
        Ok(ScratchFolder(folder))
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        // Files that cannot be removed are left in a folder for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs a server, and a client as soon as the server listens on this TCP port, on a core each. Returns the
/// output of the client.
pub(super) fn pair(server: Command, client: Command, port: u16) -> Result<String, String> {
    let until = Instant::now() + TIMEOUT;
    let [own_core, peer_core] = machine::two();
    let mut server = RunningProgram::start(server, peer_core)?;
    while !is_listened_on(port) {
        if server.has_ended()? {
            return Err(server.why_it_ended());
        }
        server.in_time(until)?;
    }
    let mut client = RunningProgram::start(client, own_core)?;
    while !client.has_ended()? {
        client.in_time(until)?;
    }
    if client.failed() {
        return Err(client.why_it_ended());
    }
    Ok(client.printed())
}

/// A program that is running; dropping the value kills it.
struct RunningProgram {
    name: String,
    child: Child,
}

impl RunningProgram {
    fn start(mut command: Command, core: Option<usize>) -> Result<RunningProgram, String> {
        let name = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A process inherits the core of the thread that starts it.
        let spawned = thread::scope(|scope| {
            let pinned = scope.spawn(|| {
                machine::pin(core);
                command.spawn()
            });
            pinned.join()
        });
        match spawned {
            Ok(Ok(child)) => Ok(RunningProgram { name, child }),
            Ok(Err(error)) => Err(format!("{name} cannot be started: {error}")),
            Err(_) => Err(format!("the thread that starts {name} panicked")),
        }
    }

    fn has_ended(&mut self) -> Result<bool, String> {
        let status = self.child.try_wait();
        status
            .map(|status| status.is_some())
            .map_err(|error| format!("waiting for {} failed: {error}", self.name))
    }

    fn failed(&mut self) -> bool {
        !self.child.wait().is_ok_and(|status| status.success())
    }

    /// Waits a little; fails if the time is over.
    fn in_time(&mut self, until: Instant) -> Result<(), String> {
        if Instant::now() > until {
            return Err(format!("{} has not ended after {} s", self.name, TIMEOUT.as_secs()));
        }
        thread::sleep(POLL_INTERVAL);
        Ok(())
    }

    fn printed(&mut self) -> String {
        let mut printed = Vec::new();
        if let Some(mut output) = self.child.stdout.take() {
            // Output that cannot be read counts as not printed.
            let _ = output.read_to_end(&mut printed);
        }
        String::from_utf8_lossy(&printed).into_owned()
    }

    /// Returns the last words of a program that has ended.
    fn why_it_ended(&mut self) -> String {
        let mut stderr_text = Vec::new();
        if let Some(mut output) = self.child.stderr.take() {
            let _ = output.read_to_end(&mut stderr_text);
        }
        let stderr_text = String::from_utf8_lossy(&stderr_text).into_owned() + &self.printed();
        let last = stderr_text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("nothing");
        format!("{} failed, and its last words are \"{}\"", self.name, last.trim())
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        // Both calls fail only if the child has terminated already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a TCP port that was free a moment ago.
pub(super) fn free_port() -> Result<u16, String> {
    let bound = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|listener| listener.local_addr());
    bound.map(|at| at.port()).map_err(|error| format!("no TCP port is free: {error}"))
}

/// Reports whether a process listens on this TCP port. A program's own message would come too late, because
/// its output is a pipe.
pub(super) fn is_listened_on(port: u16) -> bool {
    const LISTENS: &str = "0A";
    let ends_with = format!(":{port:04X}");
    ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().any(|file| {
        let sockets = fs::read_to_string(file).unwrap_or_default();
        sockets.lines().any(|line| {
            let mut words = line.split_whitespace().skip(1);
            let own = words.next().is_some_and(|own| own.ends_with(&ends_with));
            own && words.nth(1) == Some(LISTENS)
        })
    })
}
