//! `pumice fault`: rules that come and go while unmodified programs run.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

use serde_json::Value;

/// A folder of a test's own, where its processes meet.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let folder = std::env::temp_dir().join(format!("pumice-fault-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::DirBuilder::new().mode(0o700).create(&folder).expect("the folder of temporary files is writable");
        Place(folder)
    }

    fn pumice(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
        for variable in pumice_device::settings::VARIABLES {
            command.env_remove(variable);
        }
        command.env("XDG_RUNTIME_DIR", &self.0).args(arguments);
        command
    }

    /// Exit code, standard output and standard error of `pumice fault`.
    fn fault(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let mut command = self.pumice(&["fault"]);
        let Output { status, stdout, stderr } = command.args(arguments).output().expect("it can be run");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        (status.code(), text(stdout), text(stderr))
    }

    /// The rules of the only process, or of the one with this tag.
    fn rules(&self, selector: &[&str]) -> Vec<Value> {
        let (code, out, said) = self.fault(&[&["list", "--json"], selector].concat());
        assert_eq!(code, Some(0), "{out}{said}");
        let all: Value = serde_json::from_str(&out).expect("JSON");
        let all = all.as_array().expect("an array");
        assert_eq!(all.len(), 1, "{out}");
        all[0]["rules"].as_array().expect("rules").clone()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Compiles `tests/fault/paced.c`; none if there is no compiler or no library.
fn compile(place: &Place) -> Option<PathBuf> {
    if !Path::new("/usr/include/infiniband/verbs.h").exists()
        || Command::new("cc").arg("--version").output().is_err()
    {
        eprintln!("**** SKIPPED: apt-get install gcc libibverbs-dev");
        return None;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fault/paced.c");
    let program = place.0.join("paced");
    let flags = ["-std=gnu11", "-Wall", "-Werror", "-O1", "-o"];
    let built = Command::new("cc").args(flags).arg(&program).arg(source).arg("-libverbs").output();
    let built = built.expect("cc runs");
    assert!(built.status.success(), "cc: {}", String::from_utf8_lossy(&built.stderr));
    Some(program)
}

/// A program that sends as many messages as it is told, one after the other.
struct Paced {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Paced {
    /// Starts it on an address that no other test uses; `end` is the address's last number.
    fn start(place: &Place, program: &Path, end: u8, options: &[&str]) -> Paced {
        let own = std::process::id();
        let address = format!("127.{}.{}.{end}", 150 + (own >> 8 & 0x1f), own & 0xff);
        let mut command = place.pumice(&["run", "--addr", &address]);
        command.args(options).arg("--").arg(program).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program can be run");
        let (to, from) = (child.stdin.take(), child.stdout.take().expect("a pipe"));
        let mut paced = Paced { child, to, from: BufReader::new(from) };
        paced.hears("ready\n");
        paced
    }

    fn hears(&mut self, expected: &str) {
        let mut line = String::new();
        self.from.read_line(&mut line).expect("text");
        assert_eq!(line, expected);
    }

    fn sends(&mut self, messages: u32) {
        let to = self.to.as_mut().expect("it was not ended");
        writeln!(to, "{messages}").expect("the program reads");
        self.hears(&format!("done {messages}\n"));
    }

    fn ends(mut self) {
        self.to = None;
        assert!(self.child.wait().expect("it ends").success());
    }
}

#[test]
fn a_program_without_a_plan_takes_rules_and_gives_them_up() {
    let place = Place::new("alone");
    let Some(program) = compile(&place) else { return };
    let report = place.0.join("report");
    let report_text = report.to_str().expect("UTF-8");
    let mut paced = Paced::start(&place, &program, 1, &["--tag", "one", "--fault-report", report_text]);
    paced.sends(5);
    assert!(place.rules(&[]).is_empty() && !report.exists(), "nothing is written without rules");

    let (code, out, said) = place.fault(&["add", "drop opcode=send nth=3"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(out.ends_with("(paced) tag one: added drop\n"), "{out}");
    paced.sends(10);
    let rules = place.rules(&["--tag", "o*"]);
    // The third is sent twice, and both are met.
    assert_eq!((&rules[0]["met"], &rules[0]["applied"]), (&11.into(), &1.into()), "{rules:?}");
    assert_eq!((&rules[0]["live"], &rules[0]["does"]), (&true.into(), &"drop opcode=send nth=3".into()));

    assert_eq!(place.fault(&["add", "duplicate name=twice opcode=send"]).0, Some(0));
    assert_eq!(place.fault(&["pause", "twice"]).0, Some(0));
    paced.sends(4);
    assert_eq!(place.rules(&[])[1]["met"], 0);
    assert_eq!(place.fault(&["resume"]).0, Some(0));
    paced.sends(4);
    let twice = &place.rules(&[])[1];
    assert_eq!((&twice["met"], &twice["applied"]), (&4.into(), &4.into()));
    let (_, shown, _) = place.fault(&["list"]);
    assert!(shown.contains("  twice  met 4, applied 4, live: duplicate name=twice"), "{shown}");
    assert_eq!(place.fault(&["clear"]).0, Some(0));
    assert!(place.rules(&[]).is_empty());
    paced.sends(3);
    // Where traffic stands is found again.
    assert_eq!(place.fault(&["add", "drop name=again opcode=send nth=2"]).0, Some(0));
    paced.sends(3);
    assert_eq!(place.rules(&[])[0]["applied"], 1);
    paced.ends();

    let text = fs::read_to_string(&report).expect("the report of a program that took rules");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((&lines[0]["process"], &lines[0]["rules"]), (&"one".into(), &Value::Array(Vec::new())));
    assert_eq!((&lines[1]["live"], &lines[1]["line"]), (&"added".into(), &"drop opcode=send nth=3".into()));
    assert_eq!((&lines[1]["rule"], &lines[1]["after_queue_pairs"]), (&"drop".into(), &1.into()));
    assert_eq!(lines[1]["note"], "this moment is not reproducible");
    let lost = (&lines[2]["rule"], &lines[2]["message"], &lines[2]["lost"]);
    assert_eq!(lost, (&"drop".into(), &7.into(), &true.into()), "the third after five");
    // The report is a plan: with it the same messages are lost in a run from the beginning.
    let checked = place.pumice(&["faults", "check", report_text]).output().expect("it can be run");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let mut again = Paced::start(&place, &program, 1, &["--tag", "one", "--faults", report_text]);
    again.sends(40);
    let rules = place.rules(&[]);
    let applied = |name: &str| rules.iter().find(|rule| rule["name"] == name).map(|rule| &rule["applied"]);
    assert_eq!((applied("drop"), applied("again")), (Some(&1.into()), Some(&1.into())), "{rules:?}");
    again.ends();
}

#[test]
fn of_several_processes_one_has_to_be_named() {
    let place = Place::new("several");
    let Some(program) = compile(&place) else { return };
    let mut one = Paced::start(&place, &program, 2, &["--tag", "one", "--fault", "drop opcode=ack nth=1"]);
    let mut other = Paced::start(&place, &program, 3, &["--tag", "other"]);
    let (code, _, said) = place.fault(&["add", "drop opcode=send nth=1"]);
    assert_eq!(code, Some(2), "{said}");
    for part in ["2 processes run", "--pid", "tag one", "tag other", &one.child.id().to_string()] {
        assert!(said.contains(part), "{said}");
    }
    assert!(place.rules(&["--tag", "other"]).is_empty());
    let pid = other.child.id().to_string();
    assert_eq!(place.fault(&["add", "drop name=x opcode=send nth=1", "--pid", &pid]).0, Some(0));
    assert_eq!(place.fault(&["add", "drop name=y opcode=send nth=2", "--all"]).0, Some(0));
    one.sends(2);
    other.sends(2);
    let count =
        |tag: &str| place.rules(&["--tag", tag]).iter().map(|rule| rule["applied"] == 1).collect::<Vec<_>>();
    assert_eq!((count("one"), count("other")), (vec![true; 2], vec![true; 2]));

    let (code, out, _) = place.fault(&["clear", "x", "--all"]);
    assert_eq!(code, Some(1), "{out}");
    assert!(out.contains("tag one: refused: there is no rule \"x\": it has drop, y\n"), "{out}");
    assert!(out.contains("tag other: cleared x\n"), "{out}");
    let (code, out, _) = place.fault(&["add", "drop tag=third", "--tag", "one"]);
    assert!(code == Some(1) && out.contains("this one has one"), "{out}");
    let (code, _, said) = place.fault(&["add", "dorp", "--all"]);
    assert!(code == Some(2) && said.contains("dorp is no kind of fault"), "{said}");
    let (code, _, said) = place.fault(&["list", "--tag", "third"]);
    assert!(code == Some(1) && said.contains("with the tag third"), "{said}");
    one.ends();
    other.ends();
}
