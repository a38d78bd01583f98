//! The processes of a loop: this program again, each as one end.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;

use pumice_perf::Plan;
use pumice_perf::connections::AcceptsAt;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::options::EndSettings;
use crate::run::own_program;

/// Exit code of a child that could not become the program.
const COULD_NOT_EXECUTE: i32 = 127;
const CANNOT_START_AGAIN: &str = "this program could not start itself again. If an emulator runs it, make \
    that known to the kernel (binfmt_misc), or use \"pumice perf server\" and \"pumice perf client\"";

/// What an end process is told to do.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Task {
    /// Serve clients with a device at this address; says where it listens.
    Serve { address: IpAddr, core: Option<usize> },
    /// Measure against a server and report.
    /// `cores`: its own, and that of a second thread for yardsticks.
    Measure { server: SocketAddr, plans: Vec<Plan>, settings: EndSettings, cores: [Option<usize>; 2] },
    /// Measure rounds against a server, whenever told a plan. `cores` as above.
    Rounds { server: SocketAddr, settings: EndSettings, cores: [Option<usize>; 2] },
    /// Accept connections of queue pairs and of TCP with a device at this address; says where.
    Accept { address: IpAddr, core: Option<usize> },
    /// Ask for connections whenever told for how many seconds.
    Connect { address: IpAddr, to: AcceptsAt, core: Option<usize> },
    /// Connect to a server, then exchange messages whenever told for how long.
    Exchange { server: SocketAddr, plan: Plan, settings: EndSettings },
}

/// First word of a serving end.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Listening {
    pub(crate) at: SocketAddr,
}

/// A process that ends with the value that stands for it.
#[derive(Debug)]
pub(crate) struct PerfEnd {
    child: Child,
    /// Closed when this process ends in whatever way, which ends the child.
    input: Option<ChildStdin>,
    output: Option<BufReader<ChildStdout>>,
}

/// Who reads what an end writes to its standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reader {
    /// This process.
    Parent,
    /// The reader of what this process writes.
    User,
}

impl PerfEnd {
    /// Starts an end; `wrapper` is a command that runs its arguments, e.g. in another namespace.
    ///
    /// # Errors
    /// A sentence.
    pub(crate) fn start(task: &Task, wrapper: &[String], reader: Reader) -> Result<PerfEnd, String> {
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
    pub(crate) fn spawn(mut command: Command, reader: Reader) -> Result<PerfEnd, String> {
        command.stdin(Stdio::piped());
        if reader == Reader::Parent {
            command.stdout(Stdio::piped());
        }
        let name = command.get_program().to_string_lossy().into_owned();
        let mut child = command.spawn().map_err(|error| format!("{name} cannot be started: {error}"))?;
        let output = child.stdout.take().map(BufReader::new);
        Ok(PerfEnd { input: child.stdin.take(), output, child })
    }

    /// Process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next line that the end wrote, without its line break.
    ///
    /// # Errors
    /// A sentence: it ended instead.
    pub(crate) fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        let count = self.output.as_mut().map(|output| output.read_line(&mut line));
        match count {
            Some(Ok(count)) if count > 0 => Ok(line.trim_end().to_owned()),
            _ => Err(self.ended()),
        }
    }

    /// Why there is no further line.
    fn ended(&mut self) -> String {
        // It ends when its input does, if it has not ended already.
        self.input.take();
        let code = self.child.wait().ok().and_then(|status| status.code());
        // QEMU's user-mode emulation copies the process where vfork would share its memory. The standard
        // library then does not hear that the kernel refused the program, but for this code.
        if code == Some(COULD_NOT_EXECUTE) {
            return CANNOT_START_AGAIN.to_owned();
        }
        "a process of the loop ended early; its own message says why".to_owned()
    }

    /// The next line, understood.
    ///
    /// # Errors
    /// As [`line`](PerfEnd::line), or the line is something else.
    pub(crate) fn answer<T: DeserializeOwned>(&mut self) -> Result<T, String> {
        let line = self.line()?;
        serde_json::from_str(&line).map_err(|_| format!("a process of the loop said \"{line}\""))
    }

    /// Writes a line to the end's standard input.
    ///
    /// # Errors
    /// A sentence.
    pub(crate) fn tell<T: Serialize>(&mut self, message: &T) -> Result<(), String> {
        let mut line = serde_json::to_vec(message).map_err(|error| error.to_string())?;
        line.push(b'\n');
        let input = self.input.as_mut().ok_or("the input of a process of the loop is closed")?;
        let written = input.write_all(&line).and_then(|()| input.flush());
        written.map_err(|error| format!("a process of the loop does not listen: {error}"))
    }

    /// Waits until it ends; whether it did well.
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
        // Both fail only if it ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ends this process when its parent is gone, which would have read its results.
pub(crate) fn end_with_parent() {
    thread::spawn(|| {
        let _ = io::copy(&mut io::stdin().lock().by_ref(), &mut io::sink());
        std::process::exit(1);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said_by(script: &str) -> Result<String, String> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        PerfEnd::spawn(command, Reader::Parent)?.line()
    }

    #[test]
    fn an_end_that_could_not_start_names_the_remedy() {
        assert_eq!(said_by("echo here; exit 127"), Ok("here".to_owned()));
        let error = said_by("exit 127").expect_err("no line came");
        assert!(error.contains("binfmt_misc") && error.contains("pumice perf server"), "{error}");
        let error = said_by("exit 1").expect_err("no line came");
        assert!(error.contains("its own message"), "{error}");
        // It closed its output and waits for its input: that is an end, too.
        let error = said_by("exec >&-; cat >/dev/null; exit 127").expect_err("no line came");
        assert!(error.contains("binfmt_misc"), "{error}");
    }
}
