//! The network namespaces of runs: this one, or one for each job with a loopback of its own.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

/// Command that keeps a namespace alive: it brings loopback up, and ends with its input.
const HOLD: &str = "ip link set lo up && echo ready && exec cat";

/// A network namespace for one run at a time.
#[derive(Debug)]
pub(super) struct RunNamespace {
    /// Process that keeps the namespace alive; `None` for this process's namespace.
    holder: Option<Child>,
    /// The namespace belongs to a user namespace, because this process is not root.
    with_user: bool,
}

impl RunNamespace {
    /// Returns this network namespace.
    pub(super) const fn here() -> RunNamespace {
        RunNamespace { holder: None, with_user: false }
    }

    /// Creates a network namespace; `None` if that is impossible.
    pub(super) fn apart() -> Option<RunNamespace> {
        let with_user = !rustix::process::geteuid().is_root();
        let mut command = Command::new("unshare");
        command.args(if with_user { &["--user", "--map-root-user", "--net"][..] } else { &["--net"] });
        command.args(["--", "sh", "-c", HOLD]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut holder = command.spawn().ok()?;
        let mut line = String::new();
        let output = holder.stdout.take()?;
        let namespace = RunNamespace { holder: Some(holder), with_user };
        BufReader::new(output).read_line(&mut line).ok()?;
        (line == "ready\n").then_some(namespace)
    }

    /// Returns the command that runs a program there.
    pub(super) fn command(&self, program: &OsStr) -> Command {
        let Some(holder) = &self.holder else { return Command::new(program) };
        let mut command = Command::new("nsenter");
        command.arg(format!("--target={}", holder.id())).arg("--net");
        if self.with_user {
            command.args(["--user", "--preserve-credentials"]);
        }
        command.arg("--").arg(OsString::from(program));
        command
    }
}

impl Drop for RunNamespace {
    fn drop(&mut self) {
        if let Some(holder) = &mut self.holder {
            // The holder ends with its input.
            drop(holder.stdin.take());
            let _ = holder.wait();
        }
    }
}
