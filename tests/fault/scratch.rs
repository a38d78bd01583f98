//! What tests of `pumice fault` share: a folder where processes meet, and programs that do as they are told.

// Each test file uses a part of it.
#![allow(dead_code)]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

use serde_json::Value;

/// A folder of a test's own, where its processes meet.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Scratch {
        let folder = std::env::temp_dir().join(format!("pumice-fault-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::DirBuilder::new().mode(0o700).create(&folder).expect("the folder of temporary files is writable");
        Scratch(folder)
    }

    pub(crate) fn pumice(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
        for variable in pumice_device::settings::VARIABLES {
            command.env_remove(variable);
        }
        command.env("XDG_RUNTIME_DIR", &self.0).args(arguments);
        command
    }

    /// Exit code, standard output and standard error of `pumice fault`.
    pub(crate) fn fault(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let mut command = self.pumice(&["fault"]);
        let Output { status, stdout, stderr } = command.args(arguments).output().expect("it can be run");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        (status.code(), text(stdout), text(stderr))
    }

    /// The rules of the only process, or of the one with this tag.
    pub(crate) fn rules(&self, selector: &[&str]) -> Vec<Value> {
        let (code, out, stderr_text) = self.fault(&[&["list", "--json"], selector].concat());
        assert_eq!(code, Some(0), "{out}{stderr_text}");
        let all: Value = serde_json::from_str(&out).expect("JSON");
        let all = all.as_array().expect("an array");
        assert_eq!(all.len(), 1, "{out}");
        all[0]["rules"].as_array().expect("rules").clone()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Compiles `tests/fault/<name>.c`; none if there is no compiler or no library.
pub(crate) fn compile(scratch: &Scratch, name: &str) -> Option<PathBuf> {
    if !Path::new("/usr/include/infiniband/verbs.h").exists()
        || Command::new("cc").arg("--version").output().is_err()
    {
        eprintln!("**** SKIPPED: apt-get install gcc libibverbs-dev");
        return None;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fault/{name}.c"));
    let program = scratch.0.join(name);
    let flags = ["-std=gnu11", "-Wall", "-Werror", "-O1", "-o"];
    let built = Command::new("cc")
        .args(flags)
        .arg(&program)
        .arg(source)
        .args(["-libverbs", "-lrdmacm", "-lpthread"])
        .output();
    let built = built.expect("cc runs");
    assert!(built.status.success(), "cc: {}", String::from_utf8_lossy(&built.stderr));
    Some(program)
}

/// An address that no other test uses; `end` is its last number.
pub(crate) fn address(end: u8) -> String {
    let own = std::process::id();
    format!("127.{}.{}.{end}", 150 + (own >> 8 & 0x1f), own & 0xff)
}

/// A program that does what it is told by lines.
pub(crate) struct LineDrivenProgram {
    pub(crate) child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl LineDrivenProgram {
    /// Starts it on an address that no other test uses; `end` is the address's last number.
    pub(crate) fn start(scratch: &Scratch, program: &Path, end: u8, options: &[&str]) -> LineDrivenProgram {
        LineDrivenProgram::begin(scratch, program, end, &["run"], options)
    }

    /// The same by this command.
    pub(crate) fn begin(
        scratch: &Scratch,
        program: &Path,
        end: u8,
        by: &[&str],
        options: &[&str],
    ) -> LineDrivenProgram {
        LineDrivenProgram::on(scratch, program, &address(end), by, options)
    }

    /// The same on these addresses.
    pub(crate) fn on(
        scratch: &Scratch,
        program: &Path,
        addresses: &str,
        by: &[&str],
        options: &[&str],
    ) -> LineDrivenProgram {
        let mut command = scratch.pumice(by);
        command
            .args(["--addr", addresses])
            .args(options)
            .arg("--")
            .arg(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program can be run");
        let (to, from) = (child.stdin.take(), child.stdout.take().expect("a pipe"));
        LineDrivenProgram { child, to, from: BufReader::new(from) }
    }

    /// Starts one that sends to itself.
    pub(crate) fn alone(scratch: &Scratch, program: &Path, end: u8, options: &[&str]) -> LineDrivenProgram {
        let mut paced = LineDrivenProgram::start(scratch, program, end, options);
        paced.expect_line("ready\n");
        paced
    }

    pub(crate) fn read_line(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).expect("text");
        line
    }

    pub(crate) fn expect_line(&mut self, expected: &str) {
        assert_eq!(self.read_line(), expected);
    }

    pub(crate) fn send_line(&mut self, line: &str) {
        let to = self.to.as_mut().expect("it was not ended");
        writeln!(to, "{line}").expect("the program reads");
    }

    /// Does something with as many messages.
    pub(crate) fn run_command(&mut self, what: &str, messages: u32) {
        self.send_line(&format!("{what}{messages}"));
        self.expect_line(&format!("done {messages}\n"));
    }

    pub(crate) fn sends(&mut self, messages: u32) {
        self.run_command("", messages);
    }

    /// It ends; the rest of what it says, and its exit code.
    pub(crate) fn finish(mut self) -> (String, Option<i32>) {
        self.to = None;
        let mut rest = String::new();
        self.from.read_to_string(&mut rest).expect("text");
        (rest, self.child.wait().expect("it ends").code())
    }

    pub(crate) fn ends(self) {
        let (rest, code) = self.finish();
        assert_eq!(code, Some(0), "{rest}");
    }
}
