//! The death of a process on this host ends the connections of its peers, except behind a partition that a
//! fault plan imposes.

mod kit;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};

/// A process of `parted.c`.
struct PartitionedProcess {
    child: Child,
    child_output: BufReader<ChildStdout>,
}

impl PartitionedProcess {
    fn start(program: &Path, own: Ipv4Addr, words: &[&str], rule: &str) -> PartitionedProcess {
        let mut command = kit::on(own, program);
        command.args(words).stdin(Stdio::piped());
        if !rule.is_empty() {
            command.env("PUMICE_FAULT", rule);
        }
        let mut child = kit::start(&mut command);
        let child_output = BufReader::new(child.stdout.take().expect("it is piped"));
        PartitionedProcess { child, child_output }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.child_output.read_line(&mut line).expect("the program prints text");
        line.trim().to_owned()
    }

    /// The lines that are left, when it has ended well.
    fn rest(mut self) -> Vec<String> {
        let mut text = String::new();
        self.child_output.read_to_string(&mut text).expect("the program prints text");
        let mut complaints = String::new();
        let mut errors = self.child.stderr.take().expect("it is piped");
        errors.read_to_string(&mut complaints).expect("the program prints text");
        assert!(self.child.wait().expect("a child of ours").success(), "{text}{complaints}");
        text.lines().map(str::to_owned).collect()
    }
}

/// What a server hears within some seconds after a client was killed that has sent two messages.
fn reports_death(program: &Path, rule: &str, seconds: &str) -> (String, Vec<String>) {
    let (at, from) = (kit::address(), kit::address());
    let address = at.to_string();
    let mut server = PartitionedProcess::start(program, at, &["server", &address, seconds], "");
    assert_eq!(server.line(), "listening");
    let mut client = PartitionedProcess::start(program, from, &["client", &address], rule);
    let second = client.line();
    kill(&client.child);
    client.child.wait().expect("a child of ours");
    let mut child_input = server.child.stdin.take().expect("it is piped");
    child_input.write_all(b"it is dead\n").expect("the server reads");
    (second, server.rest())
}

/// Kills what timeout(1) runs, and timeout(1): a signal to timeout alone is passed on, and SIGKILL is not.
fn kill(timeout: &Child) {
    let children = format!("/proc/{0}/task/{0}/children", timeout.id());
    let children = std::fs::read_to_string(children).expect("the kernel lists children");
    for child in children.split_whitespace() {
        let killed = std::process::Command::new("kill").args(["-KILL", child]).status();
        assert!(killed.expect("kill(1) runs").success());
    }
}

#[test]
fn the_death_of_a_process_behind_a_partition_is_not_noticed() {
    let Some(program) = kit::compile("parted") else { return };
    let (second, reported) = reports_death(&program, "", "60");
    assert_eq!((second.as_str(), reported), ("success", vec!["RDMA_CM_EVENT_DISCONNECTED".to_owned()]));
    let (second, reported) = reports_death(&program, "partition nth=1 message=1 qp=0", "3");
    assert_eq!(second, "transport retry counter exceeded");
    assert_eq!(reported, ["nothing", "transport retry counter exceeded"]);
}
