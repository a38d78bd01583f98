//! `pumice course`, and the programs of docs/course. What its pages print of the programs in C is compared by
//! tests/docs.rs; here are those in Python, those with two processes, and solutions of the exercises.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

const PYTHON: &str = "/usr/bin/python3";

fn course() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/course")
}

fn can_compile() -> bool {
    let can = ["infiniband/verbs.h", "rdma/rdma_cma.h"]
        .iter()
        .all(|header| Path::new("/usr/include").join(header).is_file());
    if !can {
        let _ = writeln!(std::io::stderr(), "**** SKIPPED: apt-get install gcc libibverbs-dev librdmacm-dev");
    }
    can
}

/// A folder that goes away with the value.
struct CourseFolder(PathBuf);

impl CourseFolder {
    fn new(name: &str) -> CourseFolder {
        let path = std::env::temp_dir().join(format!("pumice-course-test-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        CourseFolder(path)
    }

    /// Compiles a program of the course, or a solution of an exercise.
    fn compile(&self, source: &Path) -> PathBuf {
        let program = self.0.join(source.file_stem().unwrap());
        let output = Command::new("cc")
            .args(["-std=gnu11", "-Wall", "-Wextra", "-Wno-missing-field-initializers", "-Werror", "-o"])
            .args([&program, source])
            .arg("-I")
            .arg(course())
            .args(["-lrdmacm", "-libverbs"])
            .output()
            .unwrap();
        let stderr_text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {stderr_text}", source.display());
        program
    }
}

impl Drop for CourseFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn pumice() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
    command.env("PYTHONDONTWRITEBYTECODE", "1").stdin(Stdio::null());
    command
}

/// What it printed on standard output; it must have ended well, and `--check` have found nothing.
fn good(output: &Output) -> String {
    let stderr_text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !stderr_text.contains("findings"), "{}: {stderr_text}", output.status);
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// A server behind `pumice check` that has printed `ready`. It ends with the value.
struct CourseServer(Child, BufReader<ChildStdout>);

impl CourseServer {
    fn start(address: &str, words: &[&Path], more: &[&str]) -> CourseServer {
        let mut command = pumice();
        command.args(["check", "--addr", address, "--"]).args(words).args(more);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        CourseServer(child, lines)
    }

    /// What it prints until it ends.
    fn rest(mut self) -> String {
        let mut rest = String::new();
        self.1.read_to_string(&mut rest).unwrap();
        assert!(self.0.wait().unwrap().success());
        rest
    }
}

impl Drop for CourseServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn client(address: &str, words: &[&Path], more: &[&str]) -> Output {
    pumice().args(["check", "--addr", address, "--"]).args(words).args(more).output().unwrap()
}

#[test]
fn the_exercises_are_listed() {
    let listed = good(&pumice().arg("course").output().unwrap());
    for number in 1..=6 {
        assert!(listed.lines().any(|line| line.starts_with(&format!("{number}  "))), "{listed}");
    }
    let output = pumice().args(["course", "check", "7"]).output().unwrap();
    let stderr_text = String::from_utf8_lossy(&output.stderr).into_owned();
    let wanted = "pumice: there is no exercise 7: say one from 1 to 6\n";
    assert_eq!((output.status.code(), stderr_text.as_str()), (Some(2), wanted));
    let output = pumice().args(["course", "check", "1", "--", "/nowhere/program"]).output().unwrap();
    assert_eq!(output.status.code(), Some(127));
}

#[test]
fn programs_are_short_and_compile_without_a_warning() {
    if !can_compile() {
        return;
    }
    let scratch = CourseFolder::new("compile");
    for entry in fs::read_dir(course()).unwrap() {
        let file = entry.unwrap().path();
        if file.extension().is_some_and(|end| end == "c") {
            let is_last = file.file_name().is_some_and(|name| name == "7-server.c" || name == "7-client.c");
            let lines = fs::read_to_string(&file).unwrap().lines().count();
            assert!(lines <= if is_last { 150 } else { 80 }, "{} has {lines} lines", file.display());
            scratch.compile(&file);
        }
    }
}

#[test]
fn programs_in_python_print_what_those_in_c_print() {
    let has_pyverbs = Command::new(PYTHON).args(["-c", "import pyverbs.cmid"]).output();
    if !has_pyverbs.is_ok_and(|output| output.status.success()) {
        let _ = writeln!(std::io::stderr(), "**** SKIPPED: apt-get install python3-pyverbs");
        return;
    }
    for (name, wanted) in [
        ("1-memory.py", "4096 bytes: lkey 0x"),
        ("2-states.py", "queue pair 1: RTS"),
        ("3-messages.py", "receive 2: 9 bytes: message 2"),
        (
            "4-one-sided.py",
            "read back: written by the asker\nthe counter was 0\nthe counter was 10\nthe counter was 20",
        ),
        ("5-events.py", "1000 messages, 125 times more room"),
    ] {
        let printed =
            good(&pumice().args(["check", "--", PYTHON]).arg(course().join(name)).output().unwrap());
        assert!(printed.contains(wanted), "{name}: {printed}");
    }
    let program = course().join("6-connect.py");
    let words = [Path::new(PYTHON), program.as_path()];
    let server = CourseServer::start("127.0.0.91", &words, &["server", "127.0.0.91"]);
    let output = client("127.0.0.92", &words, &["client", "127.0.0.91", "stone"]);
    assert_eq!((good(&output).as_str(), server.rest().as_str()), ("STONE\n", "STONE\n"));
}

#[test]
fn a_client_connects_by_address() {
    if !can_compile() {
        return;
    }
    let scratch = CourseFolder::new("connect");
    let program = scratch.compile(&course().join("6-connect.c"));
    let server = CourseServer::start("127.0.0.93", &[&program], &["server", "127.0.0.93"]);
    let output = client("127.0.0.94", &[&program], &["client", "127.0.0.93", "stone"]);
    assert_eq!((good(&output).as_str(), server.rest().as_str()), ("STONE\n", "STONE\n"));
}

#[test]
fn the_key_value_server_keeps_what_clients_put() {
    if !can_compile() {
        return;
    }
    let scratch = CourseFolder::new("key-value");
    let (serves, asks) = (course().join("7-server.c"), course().join("7-client.c"));
    let (serves, asks) = (scratch.compile(&serves), scratch.compile(&asks));
    let _server = CourseServer::start("127.0.0.95", &[&serves], &["127.0.0.95"]);
    let ask = |words: &[&str]| client("127.0.0.96", &[&asks], &[&["127.0.0.95"], words].concat());
    let nothing = ask(&["get", "stone"]);
    assert_eq!((nothing.status.code(), nothing.stdout.as_slice()), (Some(1), b"not there\n".as_slice()));
    assert_eq!(good(&ask(&["put", "stone", "pumice"])), "pumice\n");
    assert_eq!(good(&ask(&["put", "rock", "granite"])), "granite\n");
    assert_eq!(good(&ask(&["put", "stone", "basalt"])), "basalt\n");
    assert_eq!(good(&ask(&["get", "rock"])), "granite\n");
    assert_eq!(good(&ask(&["get", "stone"])), "basalt\n");
}

/// Checks an exercise: the exit code, and what is printed.
fn check(number: &str, program: &[&str]) -> (Option<i32>, String) {
    let output = pumice().args(["course", "check", number, "--"]).args(program).output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn solutions_pass_and_missing_parts_are_reported() {
    if !can_compile() {
        return;
    }
    let scratch = CourseFolder::new("solutions");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/course");
    let passes = |number: &str, source: &Path| {
        let program = scratch.compile(source);
        let (code, printed) = check(number, &[program.to_str().unwrap()]);
        assert_eq!(
            (code, printed),
            (Some(0), format!("exercise {number}: passed\n")),
            "{}",
            source.display()
        );
        program
    };
    passes("1", &folder.join("memory.c"));
    passes("2", &folder.join("states.c"));
    let messages = passes("3", &folder.join("messages.c"));
    passes("4", &folder.join("one_sided.c"));
    // The chapter's own program, with more room and fewer signals.
    let replaced = |name: &str, from: &str, to: &str| {
        let text = fs::read_to_string(course().join(name)).unwrap();
        assert!(text.contains(from), "{name} lacks {from}");
        fs::write(scratch.0.join(name), text.replace(from, to)).unwrap();
    };
    replaced("ends.h", "REQUESTS = 32", "REQUESTS = 128");
    let more = "MESSAGES = 1024, WINDOW = 64, PART = 32";
    replaced("5-events.c", "MESSAGES = 1000, WINDOW = 16, PART = 8", more);
    passes("5", &scratch.0.join("5-events.c"));
    passes("6", &folder.join("connections.c"));

    let (code, printed) = check("3", &[messages.to_str().unwrap(), "few"]);
    let wanted = "exercise 3: something is missing\n  no SEND of 10 bytes was posted\n  \
                  no line says that 10 bytes arrived\n";
    assert_eq!((code, printed.as_str()), (Some(1), wanted));
    let (code, printed) = check("5", &[scratch.compile(&course().join("5-events.c")).to_str().unwrap()]);
    assert_eq!(code, Some(1));
    assert!(printed.ends_with("\n  more than one send in 20 is signaled\n"), "{printed}");
    let (code, printed) = check("2", &["true"]);
    assert_eq!(code, Some(1));
    assert!(printed.contains("the program opened no device"), "{printed}");
    let (code, printed) = check("6", &["true"]);
    assert_eq!(code, Some(1));
    assert!(printed.contains("the server did not print \"ready\" on a line of its own"), "{printed}");
}
