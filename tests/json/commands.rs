//! The commands whose JSON is judged, in a folder with what they read.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

/// Commands that need nothing, by the name of their schema.
pub(crate) const COMMANDS_ALONE: &[(&str, &[&str])] = &[
    ("devices", &["devices", "-v", "--devices", "2", "--json"]),
    ("personalities", &["devices", "--personalities", "--json"]),
    ("models", &["devices", "--models", "--json"]),
    ("doctor", &["doctor", "--json"]),
    ("explain", &["explain", "--json"]),
    ("hang", &["hang", "--json"]),
    ("fault-kinds", &["fault", "kinds", "--json"]),
    ("fault-plans", &["fault", "plans", "--json"]),
    ("topology", &["topology", "star.toml", "--json"]),
    ("perf", &["perf", "loop", "--op", "send", "--latency", "--size", "8", "--shared", "--json"]),
];
/// Commands that read what `CommandRuns::new` has left.
const COMMANDS_WITH_SERVER: &[(&str, &[&str])] = &[
    ("fault-check", &["fault", "check", "plan.toml", "--json"]),
    ("fault-assert", &["fault", "assert", "1.faults", "--json"]),
    ("fault-compare", &["fault", "compare", "1.faults", "2.faults", "--json"]),
    ("trace-why", &["trace", "why", "1.trace", "--json"]),
    ("trace-list", &["trace", "list", "1.trace", "--json"]),
    ("trace-diff", &["trace", "diff", "1.trace", "2.trace", "--json"]),
    ("world-compare", &["world", "compare", "1.trace", "2.trace", "--format", "json"]),
    ("trace-require", &["trace", "require", "--require", "rdma.bytes > 0", "1.trace", "--json"]),
    ("capture", &["capture", "1.pcapng", "--json"]),
    ("sweep", &["sweep", "--call", "ibv_reg_mr", "--json", "--", "./hello"]),
    ("replay", &["replay", "--json", "record", "--", "./hello"]),
    ("course-check", &["course", "check", "1", "--json", "--", "./hello"]),
];
/// Commands about a process that runs, in their order.
const RUNNING: &[(&str, &[&str])] = &[
    ("stat", &["stat", "--json"]),
    ("mrc", &["mrc", "--json"]),
    ("stat-watch", &["stat", "--watch", "0.1", "--count", "2", "--json"]),
    ("fault-changed", &["fault", "add", "drop chance=1%", "--json"]),
    ("fault-list", &["fault", "list", "--json"]),
    ("check-live", &["check", "live", "--for", "50ms", "--json"]),
    ("trace-live", &["trace", "live", "--for", "50ms", "--json"]),
    ("fault-changed", &["fault", "pause", "--json"]),
    ("fault-changed", &["fault", "clear", "--json"]),
];
const PLAN: &str = "[[rule]]\nname = \"third\"\ndo = \"drop\"\nnth = \"3\"\nopcode = \"send\"\n";
const STAR: &str = "kind = \"star\"\nhosts = [\"127.0.0.2\", \"127.0.0.3\"]\n[link]\nrate_mbps = 1000\n\
                    delay_ns = 5000\n[switch]\nqueue_bytes = 200000\n";

/// A folder, and a registry of processes, of this test alone.
pub(crate) struct CommandRuns {
    folder: PathBuf,
    /// What the commands about a running process have printed.
    running: Vec<(&'static str, Output)>,
}

impl CommandRuns {
    /// `None`: there is no compiler or no ibverbs-utils, which is said.
    pub(crate) fn new() -> Option<CommandRuns> {
        let folder = std::env::temp_dir().join(format!("pumice-json-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("run")).expect("a folder can be made");
        let mut stage = CommandRuns { folder, running: Vec::new() };
        fs::write(stage.folder.join("plan.toml"), PLAN).expect("it is ours");
        fs::write(stage.folder.join("star.toml"), STAR).expect("it is ours");
        let tutorial = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/tutorials/first-program.md");
        let tutorial = fs::read_to_string(tutorial).expect("the tutorial is there");
        let program = tutorial.split("```c\n").nth(1).and_then(|rest| rest.split("```").next());
        fs::write(stage.folder.join("hello.c"), program.expect("it has its program")).expect("it is ours");
        let mut compiler = Command::new("cc");
        compiler.args(["-g", "-o", "hello", "hello.c", "-libverbs"]).current_dir(&stage.folder);
        let built = compiler.output();
        if !built.is_ok_and(|built| built.status.success()) || !has_program("ibv_rc_pingpong") {
            eprintln!("**** SKIPPED: apt-get install gcc libibverbs-dev ibverbs-utils");
            return None;
        }
        for number in ["1", "2"] {
            let files = ["fault-report", "trace", "capture"].into_iter().zip(["faults", "trace", "pcapng"]);
            let options = files.map(|(option, end)| format!("--{option}={number}.{end}"));
            let options: Vec<String> = options.collect();
            let mut words = vec!["run", "--log", "off", "--faults", "plan.toml"];
            words.extend(options.iter().map(String::as_str).chain(["--", "./hello"]));
            stage.good(&words);
        }
        stage.good(&["run", "--log", "off", "--record", "record", "--", "./hello"]);
        stage.good(&["check", "--check-report", "found.json", "--", "./hello"]);
        stage.run_with_server();
        Some(stage)
    }

    /// What the commands of a schema print.
    pub(crate) fn values(&self, schema: &str) -> Vec<Value> {
        let is_of_it = |&&(name, _): &&(&str, &[&str])| name == schema;
        let mut values: Vec<Value> = Vec::new();
        for (_, words) in COMMANDS_ALONE.iter().chain(COMMANDS_WITH_SERVER).filter(is_of_it) {
            let output = self.output(words);
            values.extend(parsed(&output, words));
        }
        for (_, output) in self.running.iter().filter(|(name, _)| *name == schema) {
            values.extend(parsed(output, &[schema]));
        }
        if schema == "check-report" {
            values.push(serde_json::from_slice(&self.read("found.json")).expect("it is JSON"));
        }
        if schema == "world-result" {
            let words =
                ["world", "search", "--seeds", "1..2", "--jobs", "1", "--report", "w.json", "--", "true"];
            self.output(&words);
            values.push(serde_json::from_slice(&self.read("w.json")).expect("it is JSON"));
        }
        if schema == "world-vary" {
            let words = [
                "world", "vary", "--model", "wire", "--delay", "1us..2us", "--points", "2", "--data",
                "v.json",
            ];
            self.output(&[&words[..], &["--", "true"]].concat());
            values.push(serde_json::from_slice(&self.read("v.json")).expect("it is JSON"));
        }
        values
    }

    /// Asks a server that waits for its client, and lives until this ends.
    fn run_with_server(&mut self) {
        let server =
            ["run", "--log", "off", "--", "ibv_rc_pingpong", "-d", "pumice0", "-g", "0", "-p", "18671"];
        let mut server =
            EndedOnDrop(self.command(&server).stdout(Stdio::null()).spawn().expect("it can be run"));
        // Other programs of this machine are left alone.
        let process = server.0.id().to_string();
        let look = ["stat", "--json", "--pid", process.as_str()];
        while !String::from_utf8_lossy(&self.output(&look).stdout).contains("\"qpn\"") {
            assert!(server.0.try_wait().expect("it is ours").is_none(), "the server ended");
        }
        for (name, words) in RUNNING.iter().copied() {
            let mut words = words.to_vec();
            words.extend(["--pid", process.as_str()]);
            let output = self.output(&words);
            self.running.push((name, output));
        }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
        command.args(words).current_dir(&self.folder).stdin(Stdio::null());
        command.env("XDG_RUNTIME_DIR", self.folder.join("run"));
        command
    }

    fn output(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("it can be run")
    }

    fn good(&self, words: &[&str]) {
        let output = self.output(words);
        assert!(output.status.success(), "{words:?}: {output:?}");
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }
}

impl Drop for CommandRuns {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A process that ends with the value.
struct EndedOnDrop(Child);

impl Drop for EndedOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn has_program(name: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join(name).is_file())
}

/// All values of JSON in what a command has printed, which may begin with what a program printed.
fn parsed(output: &Output, words: &[&str]) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    let begins = |line: &str| line.starts_with(['{', '[']);
    let from: String =
        text.lines().skip_while(|line| !begins(line)).map(|line| format!("{line}\n")).collect();
    let values: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(&from).into_iter().collect();
    let values = values.unwrap_or_else(|error| panic!("{words:?}: {error}: {output:?}"));
    assert!(!values.is_empty(), "{words:?}: {output:?}");
    values
}
