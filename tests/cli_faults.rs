//! `pumice faults`, and plans that `pumice run` refuses.

use std::path::PathBuf;
use std::process::{Command, Output};

fn pumice(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pumice")).args(arguments).output().unwrap()
}

fn texts(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// A file of this process that goes away with the value.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, contents: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("pumice-{}-{name}", std::process::id()));
        std::fs::write(&path, contents).unwrap();
        Scratch(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn kinds_are_listed_with_examples() {
    let (code, out, _) = texts(&pumice(&["faults", "list"]));
    assert_eq!(code, Some(0));
    for kind in ["drop", "duplicate", "delay", "reorder", "corrupt", "truncate", "mark", "partition"] {
        assert!(out.contains(&format!("\n{kind}: ")) || out.starts_with(&format!("{kind}: ")), "{out}");
        assert!(out.contains(&format!("--fault '{kind}")), "{out}");
    }
}

#[test]
fn plans_are_checked_with_line_and_remedy() {
    let good = Scratch::new("good.toml", "seed = 3\n[[rule]]\ndo = \"drop\"\nchance = \"1%\"\n");
    let (code, out, _) = texts(&pumice(&["faults", "check", good.path()]));
    assert_eq!((code, out.as_str()), (Some(0), "seed 3, 1 rules\n  drop\n"));
    let bad = Scratch::new("bad.toml", "seed = 3\n\n[[rule]]\ndo = \"drop\"\nqpn = 1\n");
    let (code, out, said) = texts(&pumice(&["faults", "check", bad.path()]));
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(said.contains("line 3: qpn is no field of drop: it has name, chance"), "{said}");
    let (code, _, said) = texts(&pumice(&["run", "--faults", bad.path(), "--", "true"]));
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("--faults ") && said.contains("line 3: "), "{said}");
    let (code, _, said) = texts(&pumice(&["run", "--faults", "/nowhere.toml", "--", "true"]));
    assert_eq!(code, Some(2), "{said}");
    let (code, _, said) = texts(&pumice(&["run", "--fault", "drop opcode=ack side=requester", "--", "true"]));
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("ack is sent by the responder: write that as side"), "{said}");
}

#[test]
fn a_rule_that_never_applied_is_found() {
    let begin = "{\"process\":\"a\",\"seed\":1,\"rules\":[\"one\",\"two\"]}\n";
    let packet = r#"{"rule":"one","tag":"a","service":"rc","qp":0,"connection":0,"side":"requester","#;
    let packet =
        packet.to_owned() + r#""opcode":"send","message":1,"packet":2,"transmission":1,"lost":true}"# + "\n";
    let killed = Scratch::new("killed.jsonl", &format!("{begin}{packet}"));
    let (code, out, _) = texts(&pumice(&["faults", "assert", killed.path()]));
    assert_eq!((code, out.as_str()), (Some(1), "       1  one\n       0  two  never applied\n"));
    let second = Scratch::new("second.jsonl", &packet.replace("\"one\"", "\"two\""));
    let (code, ..) = texts(&pumice(&["faults", "assert", killed.path(), second.path()]));
    assert_eq!(code, Some(0));
    let empty = Scratch::new("empty.jsonl", "");
    assert_eq!(pumice(&["faults", "assert", empty.path()]).status.code(), Some(1));
}

#[test]
fn ready_plans_are_listed_printed_and_used_by_name() {
    let (code, listed, _) = texts(&pumice(&["faults", "plans"]));
    assert_eq!(code, Some(0));
    for plan in pumice_device::faults::READY {
        assert!(listed.contains(&format!("\n{} ", plan.name)) || listed.starts_with(plan.name), "{listed}");
        let (code, printed, _) = texts(&pumice(&["faults", "plans", plan.name]));
        assert_eq!((code, printed.as_str()), (Some(0), plan.text));
        let (code, _, said) = texts(&pumice(&["run", "--faults", plan.name, "--", "true"]));
        assert_eq!(code, Some(0), "{}: {said}", plan.name);
    }
    let (code, _, said) = texts(&pumice(&["faults", "plans", "flaky-cables"]));
    assert_eq!(code, Some(2));
    assert!(said.contains("flaky-cables is no ready plan"), "{said}");
    let (code, _, said) = texts(&pumice(&["run", "--faults", "flaky-cables", "--", "true"]));
    assert_eq!(code, Some(2));
    assert!(said.contains("it is neither a file nor a ready plan (flaky-cable, "), "{said}");
}
