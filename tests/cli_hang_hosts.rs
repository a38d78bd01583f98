//! `pumice hang --hosts`: what other hosts say, by a remote shell that this test plays.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// How long the tests wait for what has to come.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Runs a command on a host: some have a file, some are slow, some refuse, and some really run it.
const SHELL: &str = r#"#!/bin/sh
here=$(dirname "$0")
host=$1
shift
echo "$host $*" >> "$here/asked"
case $host in
slow) sleep 300 & sleep 300 ;;
closed) echo "ssh: connect to host closed port 22: Connection refused" >&2; exit 255 ;;
old) echo "hello" ;;
real*) XDG_RUNTIME_DIR="$here/$host" exec "$@" ;;
*) cat "$here/$host.json"; exit 1 ;;
esac
"#;

/// A folder with the remote shell.
struct HangScene(tempfile::TempDir);

impl HangScene {
    fn new() -> HangScene {
        let scene = HangScene(tempfile::tempdir().expect("the folder of temporary files is writable"));
        fs::write(scene.path("rsh"), SHELL).expect("the folder is ours");
        fs::set_permissions(scene.path("rsh"), fs::Permissions::from_mode(0o700)).expect("it is ours");
        for folder in ["own", "real-one"] {
            fs::create_dir(scene.path(folder)).expect("the folder is ours");
            fs::set_permissions(scene.path(folder), fs::Permissions::from_mode(0o700)).expect("it is ours");
        }
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A pumice whose programs meet in this folder.
    fn pumice(&self, folder: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
        for variable in pumice_device::settings::VARIABLES {
            command.env_remove(variable);
        }
        command.env("XDG_RUNTIME_DIR", self.path(folder)).args(arguments);
        command
    }

    /// `pumice hang` of these hosts.
    fn hang(&self, hosts: &str, arguments: &[&str]) -> Output {
        let rsh = self.path("rsh").to_string_lossy().into_owned();
        let words = ["hang", "--hosts", hosts, "--rsh", &rsh, "--remote", env!("CARGO_BIN_EXE_pumice")];
        let mut command = self.pumice("own", &[&words[..], arguments].concat());
        command.output().expect("it can be run")
    }
}

/// A program that waits in vain, until it is dropped.
struct WaitingProgram(Child);

impl Drop for WaitingProgram {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two processes that wait for each other, of which the programs of this folder know.
fn both_wait(scene: &HangScene, folder: &str) -> Option<WaitingProgram> {
    if !Path::new("/usr/include/rdma/rdma_cma.h").exists()
        || Command::new("cc").arg("--version").output().is_err()
    {
        eprintln!("**** SKIPPED: apt-get install gcc libibverbs-dev librdmacm-dev");
        return None;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = scene.path("both_wait");
    let mut command = Command::new("cc");
    let include = format!("-I{}", root.join("tests/check").display());
    command.args(["-g", "-std=gnu11", "-O1", &include, "-o"]).arg(&program);
    command.arg(root.join("tests/waits/both_wait.c")).args(["-libverbs", "-lrdmacm", "-lpthread"]);
    assert!(command.status().expect("cc runs").success());
    let own = std::process::id();
    let address = format!("127.{}.{}.9", 120 + (own >> 8 & 0x1f), own & 0xff);
    let words = ["run", "--log", "warn", "--hang-after", "60s", "--addr", &address, "--"];
    let mut command = scene.pumice(folder, &words);
    let child = command.arg(&program).arg(&address).stderr(Stdio::null()).spawn().expect("it can be run");
    Some(WaitingProgram(child))
}

/// What a host says once both processes wait.
fn circle(scene: &HangScene, host: &str) -> Value {
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < TIMEOUT, "they do not wait");
        let output = scene.hang(host, &["--json"]);
        let found: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        let verdicts = found["verdicts"].as_array().expect("a list");
        if verdicts.iter().any(|one| one["is_circle"] == true && one["is_certain"] == true) {
            assert_eq!(output.status.code(), Some(1));
            return found;
        }
    }
}

/// One of two processes as a host with this address has it, whose peer is at another address.
fn on(found: &Value, which: usize, name: &str, addresses: (&str, &str)) -> Value {
    let moved = |list: &str| {
        let mut one = found[list][which].clone();
        one["host"] = json!("");
        one["address"] = json!(addresses.0);
        for qp in one["objects"]["qps"].as_array_mut().into_iter().flatten() {
            if qp["peer"].is_object() {
                qp["peer"]["address"] = json!(addresses.1);
            }
        }
        one
    };
    json!({"host": name, "before": [moved("before")], "processes": [moved("processes")]})
}

#[test]
fn waits_are_joined_across_hosts() {
    let scene = HangScene::new();
    let Some(_waiting) = both_wait(&scene, "real-one") else { return };
    let found = circle(&scene, "real-one");
    // The remote shell ran the command, and its processes are those of that host.
    let asked = fs::read_to_string(scene.path("asked")).expect("it was asked");
    assert!(asked.contains("real-one ") && asked.contains(" hang --json --port 4791"), "{asked}");
    assert_eq!(found["processes"][0]["host"], "real-one");
    assert_eq!(found["hosts"], json!([{"host": "real-one", "problem": null}]));

    // Each of them on a host of its own.
    for (which, name, addresses) in [(0, "a", ("10.0.0.1", "10.0.0.2")), (1, "b", ("10.0.0.2", "10.0.0.1"))] {
        let output_text = on(&found, which, "the-same-name", addresses).to_string();
        fs::write(scene.path(&format!("{name}.json")), output_text).expect("the folder is ours");
    }
    let output = scene.hang("a,b", &[]);
    let output_text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        output_text.contains("(both_wait) on a and process ")
            && output_text.contains("(both_wait) on b wait for each other"),
        "{output_text}"
    );
    // Of one alone nothing is certain.
    let output = scene.hang("a", &[]);
    let output_text = String::from_utf8_lossy(&output.stdout);
    assert!(
        !output_text.contains("wait for each other")
            && output_text.contains("(as far as can be seen from here)"),
        "{output_text}"
    );
}

#[test]
fn a_host_that_cannot_be_asked_is_named_and_waited_for_no_longer_than_was_said() {
    let scene = HangScene::new();
    let begun = Instant::now();
    let output = scene.hang("slow,closed,old", &["--within", "500ms"]);
    let output_text = String::from_utf8_lossy(&output.stdout);
    assert!(begun.elapsed() < TIMEOUT, "{output_text}");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    for wanted in [
        "host slow is not known: ",
        "has not answered within 0.5 s",
        "host closed is not known: ",
        "ended with exit status: 255: ssh: connect to host closed port 22: Connection refused",
        "host old is not known: ",
        "is not what `pumice hang --json` prints",
    ] {
        assert!(output_text.contains(wanted), "{wanted}: {output_text}");
    }
    let output = scene.hang("closed", &["--json"]);
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(found["hosts"][0]["problem"].as_str().is_some_and(|why| why.contains("Connection refused")));
}

#[test]
fn names_that_are_none_are_refused_before_a_host_is_asked() {
    let scene = HangScene::new();
    for hosts in ["-oProxyCommand=true", "a b", "a,,b"] {
        let words = [&format!("--hosts={hosts}")[..], "--rsh", "false"];
        let output = scene.pumice("own", &[&["hang"], &words[..]].concat()).output().expect("it can be run");
        let output_text = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(2) && output_text.contains("is no name of a host"),
            "{hosts}: {output_text}"
        );
    }
    let words = ["hang", "--hosts", "a", "--rsh", "/nowhere/ssh"];
    let output = scene.pumice("own", &words).output().expect("it can be run");
    let output_text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output_text.contains("/nowhere/ssh cannot be run") && output_text.contains("--rsh"),
        "{output:?}"
    );
}
