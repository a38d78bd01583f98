//! The processes of a loop: this program again, each process as one end.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;

use pumice_perf::Plan;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::options::EndSettings;
use crate::run::own_program;

/// Exit code of a child that could not execute the program.
const COULD_NOT_EXECUTE: i32 = 127;
const CANNOT_START_AGAIN: &str = "this program could not start itself again. If an emulator runs it, make \
    that known to the kernel (binfmt_misc), or use \"pumice perf server\" and \"pumice perf client\"";

/// The task of an end process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum EndTask {
    /// Serve clients with a device at this address, and print the address on which it listens.
    Serve { address: IpAddr, core: Option<usize> },
    /// Measure against a server and report. `cores`: the core of the end, and that of a second thread for
    /// yardsticks.
    Measure { server: SocketAddr, plans: Vec<Plan>, settings: EndSettings, cores: [Option<usize>; 2] },
    /// Connect to a server, then exchange messages for the time in each order.
    Exchange { server: SocketAddr, plan: Plan, settings: EndSettings },
}

/// The first output of a serving end.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Listening {
    pub(crate) at: SocketAddr,
}

/// A child process that is killed when the value is dropped.
#[derive(Debug)]
pub(crate) struct PerfEnd {
    child: Child,
    /// Standard input of the child. It closes when this process ends in any way, which ends the child.
    input: Option<ChildStdin>,
    output: Option<BufReader<ChildStdout>>,
}

/// The reader of an end's standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputReader {
    /// The parent of the end, which is this process.
    Parent,
    /// The reader of this process's output.
    User,
}

impl PerfEnd {
    /// Starts an end; `wrapper` is a command that runs its arguments, for example in another namespace.
    ///
    /// # Errors
    /// A sentence.
    pub(crate) fn start(task: &EndTask, wrapper: &[String], reader: OutputReader) -> Result<PerfEnd, String> {
        let program = own_program()?;
        let task = serde_json::to_string(task).map_err(|error| error.to_string())?;
        let mut command = match wrapper.split_first() {
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(program);
                command
            }
            None => Command::new(program),
        };
        command.args(["perf", "__end", &task]);
        PerfEnd::spawn(command, reader)
    }

    /// Starts any command that ends when its standard input does.
    ///
    /// # Errors
    /// A sentence.
    pub(crate) fn spawn(mut command: Command, reader: OutputReader) -> Result<PerfEnd, String> {
        command.stdin(Stdio::piped());
        if reader == OutputReader::Parent {
            command.stdout(Stdio::piped());
        }
        let name = command.get_program().to_string_lossy().into_owned();
        let mut child = command.spawn().map_err(|error| format!("{name} cannot be started: {error}"))?;
        let output = child.stdout.take().map(BufReader::new);
        Ok(PerfEnd { input: child.stdin.take(), output, child })
    }

    /// Returns the process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the next line that the end wrote, without its line break.
    ///
    /// # Errors
    /// A sentence: the end has terminated instead.
    pub(crate) fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        let count = self.output.as_mut().map(|output| output.read_line(&mut line));
        match count {
            Some(Ok(count)) if count > 0 => Ok(line.trim_end().to_owned()),
            _ => Err(self.ended()),
        }
    }

    /// Returns the reason why there is no further line.
    fn ended(&mut self) -> String {
        // The end terminates when its input does, if it has not terminated already.
        self.input.take();
        let code = self.child.wait().ok().and_then(|status| status.code());
        // QEMU's user-mode emulation copies the process where vfork would share its memory. The standard
        // library can then learn only from this exit code that the kernel refused the program.
        if code == Some(COULD_NOT_EXECUTE) {
            return CANNOT_START_AGAIN.to_owned();
        }
        "a process of the loop ended early; its own message says why".to_owned()
    }

    /// Returns the next line, parsed.
    ///
    /// # Errors
    /// The same as for [`line`](PerfEnd::line), or the line is something else.
    pub(crate) fn read_message<T: DeserializeOwned>(&mut self) -> Result<T, String> {
        let line = self.line()?;
        serde_json::from_str(&line).map_err(|_| format!("a process of the loop said \"{line}\""))
    }

    /// Writes a line to the end's standard input.
    ///
    /// # Errors
    /// A sentence.
    pub(crate) fn send_message<T: Serialize>(&mut self, message: &T) -> Result<(), String> {
        let mut line = serde_json::to_vec(message).map_err(|error| error.to_string())?;
        line.push(b'\n');
        let input = self.input.as_mut().ok_or("the input of a process of the loop is closed")?;
        let written = input.write_all(&line).and_then(|()| input.flush());
        written.map_err(|error| format!("a process of the loop does not listen: {error}"))
    }

    /// Waits until the end terminates; returns whether it succeeded.
    ///
    /// # Errors
    /// A sentence.
    pub(crate) fn wait(&mut self) -> Result<bool, String> {
        let status = self.child.wait().map_err(|error| format!("waiting for a process failed: {error}"))?;
        Ok(status.success())
    }
}

impl Drop for PerfEnd {
    fn drop(&mut self) {
        self.input.take();
        // Both calls fail only if the child has terminated already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ends this process when its parent, the reader of its results, ends.
pub(crate) fn end_with_parent() {
    thread::spawn(|| {
        let _ = io::copy(&mut io::stdin().lock().by_ref(), &mut io::sink());
        std::process::exit(1);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start_with_script(script: &str) -> Result<String, String> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        PerfEnd::spawn(command, OutputReader::Parent)?.line()
    }

    #[test]
    fn an_end_that_could_not_start_names_the_remedy() {
        assert_eq!(start_with_script("echo here; exit 127"), Ok("here".to_owned()));
        let error = start_with_script("exit 127").expect_err("no line came");
        assert!(error.contains("binfmt_misc") && error.contains("pumice perf server"), "{error}");
        let error = start_with_script("exit 1").expect_err("no line came");
        assert!(error.contains("its own message"), "{error}");
        // An end that closed its output and waits for its input has terminated, too.
        let error = start_with_script("exec >&-; cat >/dev/null; exit 127").expect_err("no line came");
        assert!(error.contains("binfmt_misc"), "{error}");
    }
}
