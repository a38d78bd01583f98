//! `pumice stat` about queue pairs, and `pumice stat --watch`, while unmodified programs run.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

#[path = "fault/scratch.rs"]
mod scratch;

use scratch::{LineDrivenProgram, Scratch, compile};

/// Of this process only: other tests run beside this one.
fn stat(scratch: &Scratch, pid: &str) -> Value {
    let output = scratch.pumice(&["stat", "--json", "--pid", pid]).output().expect("it can be run");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn watch(scratch: &Scratch, pid: &str, options: &[&str]) -> Child {
    let mut command = scratch.pumice(&["stat", "--watch", "0.1", "--pid", pid]);
    command.args(options).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("it can be run")
}

fn lines(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    BufReader::new(child.stdout.take().expect("a pipe")).lines().map(|line| line.expect("text"))
}

#[test]
fn queue_pairs_are_shown_with_peer_counts_and_faults() {
    let scratch = Scratch::new("watch-qps");
    let Some(program) = compile(&scratch, "paced") else { return };
    let mut paced = LineDrivenProgram::alone(
        &scratch,
        &program,
        41,
        &["--tag", "one", "--fault", "drop opcode=send nth=3"],
    );
    paced.sends(5);
    let all = stat(&scratch, &paced.child.id().to_string());
    assert_eq!((&all[0]["tag"], all.as_array().map(Vec::len)), (&"one".into(), Some(1)), "{all}");
    let objects = &all[0]["objects"];
    let totals = &objects["totals"];
    assert_eq!((&totals["qps"], &totals["rules"]), (&1.into(), &1.into()), "{objects}");
    let qp = &objects["qps"][0];
    assert_eq!((&qp["service"], &qp["state"], &qp["ordinal"]), (&"RC".into(), &"RTS".into(), &0.into()));
    assert_eq!(qp["peer"]["qpn"], qp["qpn"], "it sends to itself");
    assert_eq!(qp["peer"]["address"], all[0]["address"]);
    assert_eq!((&qp["posted"], &qp["ended"], &qp["received"]), (&5.into(), &5.into(), &5.into()), "{qp}");
    // The third send was lost, and sent again.
    assert!(qp["repeated_packets"].as_u64() >= Some(1) && qp["sent_packets"].as_u64() >= Some(6), "{qp}");
    assert!(qp["received_bytes"].as_u64() >= Some(5 * (12 + 8 + 4)), "{qp}");
    assert!(qp["in_flight_packets"] == 0 && qp["rtt_ns"].is_u64(), "{qp}");
    let mut cqs = objects["cqs"].as_array().expect("an array").iter();
    let cq = cqs.find(|cq| cq["number"] == qp["send_cq"]).expect("its completion queue");
    assert_eq!((&cq["filled"], &cq["failed"], &cq["users"]), (&0.into(), &false.into(), &2.into()), "{cq}");
    assert!(cq["depth"].as_u64() >= Some(8), "{cq}");
    assert_eq!(objects["rules"][0]["applied"], 1);
    let text = scratch
        .pumice(&["stat", "--pid", &paced.child.id().to_string()])
        .output()
        .expect("it can be run")
        .stdout;
    let text = String::from_utf8(text).expect("text");
    assert!(
        text.contains("  RC RTS with 0x") && text.contains("5 of 5 sends ended, 5 messages received"),
        "{text}"
    );
    paced.ends();
}

#[test]
fn packets_go_through_shared_memory_unless_udp_is_set() {
    let scratch = Scratch::new("watch-wire");
    let Some(program) = compile(&scratch, "paced") else { return };
    let medium = |paced: &LineDrivenProgram| {
        let all = stat(&scratch, &paced.child.id().to_string());
        all[0]["objects"]["qps"][0]["medium"].as_str().expect("a peer has a medium").to_owned()
    };
    let mut paced = LineDrivenProgram::alone(&scratch, &program, 45, &["--wire", "udp"]);
    paced.sends(3);
    assert_eq!(medium(&paced), "UDP: this process uses UDP only");
    paced.ends();
    let mut paced = LineDrivenProgram::alone(&scratch, &program, 46, &[]);
    let begun = Instant::now();
    // The first packets go by UDP, until there is a ring.
    while medium(&paced) != "shared memory" {
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", medium(&paced));
        paced.sends(1);
    }
    paced.ends();
}

#[test]
fn rnr_naks_are_counted_for_the_queue_pair_that_they_are_for() {
    let scratch = Scratch::new("watch-rnr");
    let Some(program) = compile(&scratch, "paced") else { return };
    let rule = "answer with=rnr timer=0.01ms times=1 qp=0 message=1";
    let mut paced = LineDrivenProgram::alone(&scratch, &program, 42, &["--fault", rule]);
    paced.sends(3);
    let all = stat(&scratch, &paced.child.id().to_string());
    let qp = &all[0]["objects"]["qps"][0];
    assert_eq!((&qp["ended"], &qp["rnr_naks_received"]), (&3.into(), &1.into()), "{qp}");
    paced.ends();
}

#[test]
fn watching_gives_rates_until_it_is_interrupted() {
    let scratch = Scratch::new("watch-rates");
    let Some(program) = compile(&scratch, "paced") else { return };
    let mut paced = LineDrivenProgram::alone(&scratch, &program, 43, &["--tag", "one"]);
    let pid = paced.child.id().to_string();
    paced.sends(7);
    let mut child = watch(&scratch, &pid, &["--json"]);
    let mut lines = lines(&mut child);
    // It has looked before: what is sent from now on is in the rates.
    lines.next().expect("a line");
    paced.sends(5);
    let mut sent = 0.0;
    while sent < 4.99 {
        let line: Value = serde_json::from_str(&lines.next().expect("a line")).expect("JSON");
        let process = &line["processes"][0];
        let seconds = line["interval_ns"].as_f64().expect("a number") / 1e9;
        let (all, qp) = (&process["per_second"]["all"], &process["qps"][0]);
        sent += all["sends"].as_f64().expect("a rate") * seconds;
        assert_eq!(
            (&process["tag"], &qp["state"], &process["answers"]),
            (&"one".into(), &"RTS".into(), &true.into())
        );
        assert_eq!(qp["per_second"]["sends"], all["sends"], "it has one queue pair");
    }
    assert!((sent - 5.0).abs() < 0.01, "{sent}");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    paced.ends();
}

#[test]
fn watching_ends_after_its_count_and_with_its_reader() {
    let scratch = Scratch::new("watch-ends");
    let Some(program) = compile(&scratch, "paced") else { return };
    let mut paced = LineDrivenProgram::alone(&scratch, &program, 44, &["--tag", "a tag"]);
    let pid = paced.child.id().to_string();
    paced.sends(1);
    let mut child = watch(&scratch, &pid, &["--count", "2"]);
    let all: Vec<String> = lines(&mut child).collect();
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    assert_eq!(all.len(), 3, "{all:?}");
    assert!(all[0].trim_start().starts_with("TIME_S"), "{all:?}");
    let words: Vec<&str> = all[1].split_whitespace().collect();
    assert_eq!((words.len(), words[2], words[3], words[4]), (14, "paced", "a_tag", "1"), "{all:?}");
    let mut child = watch(&scratch, &pid, &["--json"]);
    lines(&mut child).next().expect("a line");
    assert_eq!(child.wait().expect("it ends").code(), Some(0), "its reader went away");
    paced.ends();
    let mut child = watch(&scratch, &pid, &["--json", "--count", "1"]);
    let line: Value = serde_json::from_str(&lines(&mut child).next().expect("a line")).expect("JSON");
    assert_eq!(line["processes"], Value::Array(Vec::new()), "{line}");
    assert!(child.wait().expect("it ends").success());
}
