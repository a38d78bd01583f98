//! The ends of a row: this program again, each process with one task, in lines of JSON.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;

use pumice_perf::connections::AcceptorAddresses;
use pumice_perf::{Server, ServerOptions, machine};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{connecting, ends};

/// The argument that makes this program an end, before its task.
pub(super) const END: &str = "--end";

/// The task of an end process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum EndTask {
    /// Serve clients with a device at this address, and print the address on which it listens.
    Serve { address: IpAddr, core: Option<usize> },
    /// Measure rounds against a server, one for each plan received. `cores`: the core of the end, and that of
    /// a second thread for yardsticks.
    Rounds { server: SocketAddr, address: IpAddr, cores: [Option<usize>; 2] },
    /// Accept connections of queue pairs and of TCP with a device at this address, and print where.
    Accept { address: IpAddr, core: Option<usize> },
    /// Request connections for the number of seconds in each order.
    Connect { address: IpAddr, to: AcceptorAddresses, core: Option<usize> },
}

/// The first output of a serving end.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Listening {
    pub(super) at: SocketAddr,
}

/// Runs this process as an end with this task.
///
/// # Errors
/// A sentence.
pub(super) fn run_end(task: &str) -> Result<(), String> {
    let task = serde_json::from_str(task).map_err(|error| format!("{END}: {error}"))?;
    let out = &mut io::stdout();
    match task {
        EndTask::Serve { address, core } => {
            end_with_parent();
            let options = ServerOptions { address: Some(address), core, wording: ToString::to_string };
            let server = Server::bind(SocketAddr::new(address, 0), options);
            let server = server.map_err(|error| format!("{address} cannot be listened on: {error}"))?;
            write_message(&Listening { at: server.local_addr().map_err(|error| error.to_string())? }, out)?;
            // The measuring end receives the error, and prints it.
            Err(server.serve(&mut |_| {}).to_string())
        }
        EndTask::Rounds { server, address, cores: [core, second] } => {
            machine::pin(core);
            ends::measure_rounds(server, address, second, out)
        }
        EndTask::Accept { address, core } => {
            end_with_parent();
            machine::pin(core);
            Err(connecting::accept(address, out))
        }
        EndTask::Connect { address, to, core } => {
            machine::pin(core);
            connecting::connect(address, to, out)
        }
    }
}

/// An end that is killed when the value is dropped.
#[derive(Debug)]
pub(super) struct PerfEnd {
    child: Child,
    /// Standard input of the child. It closes when this process ends in any way, which ends the child.
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl PerfEnd {
    /// Starts an end.
    ///
    /// # Errors
    /// A sentence.
    pub(super) fn start(task: &EndTask) -> Result<PerfEnd, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let task = serde_json::to_string(task).map_err(|error| error.to_string())?;
        let mut command = Command::new(program);
        command.args([END, &task]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("an end cannot be started: {error}"))?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (input, output) = pipes.ok_or("an end has no pipes")?;
        Ok(PerfEnd { child, input, output: BufReader::new(output) })
    }

    /// Returns the next line of the end, parsed.
    ///
    /// # Errors
    /// A sentence: the end has terminated, and has printed its own error; or the line is something else.
    pub(super) fn read_message<T: DeserializeOwned>(&mut self) -> Result<T, String> {
        let mut line = String::new();
        match self.output.read_line(&mut line) {
            Ok(0) => Err("an end terminated; its own message says why".to_owned()),
            Ok(_) => serde_json::from_str(&line).map_err(|_| format!("an end said \"{}\"", line.trim())),
            Err(error) => Err(format!("an end cannot be read: {error}")),
        }
    }

    /// Writes a line to the end's standard input.
    ///
    /// # Errors
    /// A sentence.
    pub(super) fn send_message<T: Serialize>(&mut self, message: &T) -> Result<(), String> {
        write_message(message, &mut self.input)
    }
}

impl Drop for PerfEnd {
    fn drop(&mut self) {
        // Both calls fail only if the child has terminated already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes one line of JSON.
///
/// # Errors
/// A sentence.
pub(super) fn write_message<T: Serialize>(message: &T, out: &mut dyn Write) -> Result<(), String> {
    let line = serde_json::to_string(message).map_err(|error| error.to_string())?;
    let written = writeln!(out, "{line}").and_then(|()| out.flush());
    written.map_err(|error| format!("a message to the other process cannot be written: {error}"))
}

/// Ends this process when its parent, the reader of its results, ends.
fn end_with_parent() {
    thread::spawn(|| {
        let _ = io::copy(&mut io::stdin().lock().by_ref(), &mut io::sink());
        std::process::exit(1);
    });
}
