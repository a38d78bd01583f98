//! `pumice fault`, and plans that `pumice run` refuses.

#[path = "scratch/file.rs"]
mod file;

use std::process::{Command, Output};

use file::{path_of, scratch};

fn pumice(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pumice")).args(arguments).output().unwrap()
}

fn texts(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn kinds_are_listed_with_examples() {
    let (code, out, _) = texts(&pumice(&["fault", "kinds"]));
    assert_eq!(code, Some(0));
    for kind in ["drop", "duplicate", "delay", "reorder", "corrupt", "truncate", "mark", "partition"] {
        assert!(out.contains(&format!("\n{kind}: ")) || out.starts_with(&format!("{kind}: ")), "{out}");
        assert!(out.contains(&format!("--fault '{kind}")), "{out}");
    }
}

#[test]
fn plans_are_checked_with_line_and_remedy() {
    let good = scratch("good.toml", "seed = 3\n[[rule]]\ndo = \"drop\"\nchance = \"1%\"\n");
    let (code, out, _) = texts(&pumice(&["fault", "check", path_of(&good)]));
    assert_eq!((code, out.as_str()), (Some(0), "seed 3, 1 rules\n  drop\n"));
    let bad = scratch("bad.toml", "seed = 3\n\n[[rule]]\ndo = \"drop\"\nqpn = 1\n");
    let (code, out, stderr_text) = texts(&pumice(&["fault", "check", path_of(&bad)]));
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(stderr_text.contains("line 3: qpn is no field of drop: it has name, chance"), "{stderr_text}");
    let (code, _, stderr_text) = texts(&pumice(&["run", "--faults", path_of(&bad), "--", "true"]));
    assert_eq!(code, Some(2), "{stderr_text}");
    assert!(stderr_text.contains("--faults ") && stderr_text.contains("line 3: "), "{stderr_text}");
    let (code, _, stderr_text) = texts(&pumice(&["run", "--faults", "/nowhere.toml", "--", "true"]));
    assert_eq!(code, Some(2), "{stderr_text}");
    let (code, _, stderr_text) =
        texts(&pumice(&["run", "--fault", "drop opcode=ack side=requester", "--", "true"]));
    assert_eq!(code, Some(2), "{stderr_text}");
    assert!(stderr_text.contains("ack is sent by the responder: write that as side"), "{stderr_text}");
}

#[test]
fn a_rule_that_can_never_begin_is_refused_before_the_program_starts() {
    let marker = scratch("began", "");
    for (rules, sentence) in [
        (
            &["drop after=\"rule other\""][..],
            "it waits for rule \"other\", which the plan lacks: write the name of a rule of the plan",
        ),
        (&["drop after=\"rule drop\""], "it waits for itself, so it never begins: name another rule"),
        (
            &["drop name=a after=\"rule b\"", "mark name=b after=\"rule c\"", "mark name=c after=\"rule a\""],
            "rules that wait for it in turn are what it waits for: break the circle",
        ),
        (&["late side=send until=\"rule other\""], "it waits for rule \"other\", which the plan lacks"),
        (&["drop after=\"call reg_mr 3\""], "no call that can fail is named reg_mr; is ibv_reg_mr meant?"),
        (&["drop after=\"call ibv_wc_status_str\""], "no call that can fail is named ibv_wc_status_str"),
        (&["drop after=\"event fire\""], "fire is none of cq-error, "),
        (&["drop after=\"completions 0\""], "is nothing that can be waited for: write \"rule NAME\""),
        (&["fail call=ibv_reg_mr after=\"bytes 1 qp=x\""], "is nothing that can be waited for"),
        (&["drop after=\"time soon\""], "soon is no time: write it as 500ns"),
    ] {
        std::fs::write(path_of(&marker), "").unwrap();
        let mut arguments = vec!["run"];
        arguments.extend(rules.iter().flat_map(|rule| ["--fault", rule]));
        arguments.extend(["--", "rm", path_of(&marker)]);
        let (code, out, stderr_text) = texts(&pumice(&arguments));
        assert_eq!((code, out.as_str()), (Some(2), ""), "{rules:?}: {stderr_text}");
        assert!(
            stderr_text.contains(sentence) && stderr_text.trim_end().lines().count() == 1,
            "{rules:?}: {stderr_text}"
        );
        assert!(std::path::Path::new(path_of(&marker)).exists(), "{rules:?}: the program started");
    }
}

#[test]
fn a_rule_that_never_applied_is_found() {
    let begin = "{\"process\":\"a\",\"seed\":1,\"rules\":[\"one\",\"two\"]}\n";
    let packet = r#"{"rule":"one","tag":"a","service":"rc","qp":0,"connection":0,"side":"requester","#;
    let packet =
        packet.to_owned() + r#""opcode":"send","message":1,"packet":2,"transmission":1,"lost":true}"# + "\n";
    let killed = scratch("killed.jsonl", &format!("{begin}{packet}"));
    let (code, out, _) = texts(&pumice(&["fault", "assert", path_of(&killed)]));
    assert_eq!((code, out.as_str()), (Some(1), "       1  one\n       0  two  never applied\n"));
    let second = scratch("second.jsonl", &packet.replace("\"one\"", "\"two\""));
    let (code, ..) = texts(&pumice(&["fault", "assert", path_of(&killed), path_of(&second)]));
    assert_eq!(code, Some(0));
    let (code, out, _) = texts(&pumice(&["fault", "assert", "--json", path_of(&killed)]));
    let found: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(found, serde_json::json!({ "all_applied": false, "rules": { "one": 1, "two": 0 } }));
    assert_eq!(code, Some(1));
    let empty = scratch("empty.jsonl", "");
    assert_eq!(pumice(&["fault", "assert", path_of(&empty)]).status.code(), Some(1));
}

/// A packet of a report; `rest` says what happened to it.
fn packet(ordinal: u64, rest: &str) -> String {
    format!(
        "{{\"rule\":\"one\",\"tag\":\"a\",\"service\":\"rc\",\"qp\":0,\"connection\":0,\
         \"side\":\"requester\",\"opcode\":\"send\",\"message\":{ordinal},\
         \"packet\":{ordinal},\"transmission\":1,{rest}}}\n"
    )
}

#[test]
fn reports_of_two_runs_are_compared() {
    let (long, short, lost) = ("\"bytes\":90", "\"bytes\":60", "\"lost\":true");
    let one = scratch("one.jsonl", &(packet(0, short) + &packet(1, short) + &packet(1, lost)));
    let again = scratch("again.jsonl", &(packet(1, lost) + &packet(0, short) + &packet(1, short)));
    let (code, out, _) = texts(&pumice(&["fault", "compare", path_of(&one), path_of(&again)]));
    assert_eq!((code, out.as_str()), (Some(0), "same\n"));
    let other = scratch("other.jsonl", &(packet(0, short) + &packet(1, long)));
    let (code, out, _) = texts(&pumice(&["fault", "compare", path_of(&one), path_of(&other)]));
    assert_eq!(code, Some(0), "{out}");
    assert!(
        out.contains("another message: a, rc, queue pair 0, connection 0, requests: message 1 "),
        "{out}"
    );
    assert!(out.contains("send of 90 bytes") && out.contains("send of 60 bytes"), "{out}");
    let defect = scratch("defect.jsonl", &(packet(0, short) + &packet(1, short)));
    let (code, out, _) =
        texts(&pumice(&["fault", "compare", path_of(&one), path_of(&again), path_of(&defect)]));
    assert_eq!(code, Some(1), "{out}");
    assert!(out.contains("another fate, in ") && !out.contains("another message"), "{out}");
    let reports = [path_of(&one), path_of(&again), path_of(&other), path_of(&defect)];
    let (code, out, _) = texts(&pumice(&[&["fault", "compare", "--json"][..], &reports].concat()));
    assert_eq!(code, Some(1), "{out}");
    let found: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((&found["first"], &found["reports"][0]["same"]), (&path_of(&one).into(), &true.into()));
    let kind = |report: usize| &found["reports"][report]["differences"][0]["kind"];
    assert_eq!((kind(0), kind(1), kind(2)), (&serde_json::Value::Null, &"message".into(), &"fate".into()));
    let (code, _, stderr_text) = texts(&pumice(&["fault", "compare", path_of(&one), "/nowhere.jsonl"]));
    assert_eq!(code, Some(2), "{stderr_text}");
}

#[test]
fn ready_plans_are_listed_printed_and_used_by_name() {
    let (code, listed, _) = texts(&pumice(&["fault", "plans"]));
    assert_eq!(code, Some(0));
    for plan in pumice_device::faults::READY {
        assert!(listed.contains(&format!("\n{} ", plan.name)) || listed.starts_with(plan.name), "{listed}");
        let (code, printed, _) = texts(&pumice(&["fault", "plans", plan.name]));
        assert_eq!((code, printed.as_str()), (Some(0), plan.text));
        let (code, _, stderr_text) = texts(&pumice(&["run", "--faults", plan.name, "--", "true"]));
        assert_eq!(code, Some(0), "{}: {stderr_text}", plan.name);
    }
    let (code, _, stderr_text) = texts(&pumice(&["fault", "plans", "flaky-cables"]));
    assert_eq!(code, Some(2));
    assert!(stderr_text.contains("flaky-cables is no ready plan"), "{stderr_text}");
    let (code, _, stderr_text) = texts(&pumice(&["run", "--faults", "flaky-cables", "--", "true"]));
    assert_eq!(code, Some(2));
    assert!(stderr_text.contains("it is neither a file nor a ready plan (flaky-cable, "), "{stderr_text}");
}
