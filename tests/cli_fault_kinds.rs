//! `pumice fault` with rules of every kind: calls, completions, events of channels, and rules that wait.

use std::fs;

use serde_json::Value;

#[path = "fault/place.rs"]
mod place;

use place::{Paced, Place, compile};

/// Adds a rule to the only process.
fn add(place: &Place, line: &str) {
    let (code, out, said) = place.fault(&["add", line]);
    assert_eq!(code, Some(0), "{line}: {out}{said}");
}

/// How often a rule was met and applied.
fn tally(place: &Place, name: &str) -> (u64, u64) {
    let rules = place.rules(&[]);
    let rule = rules.iter().find(|rule| rule["name"] == name).expect("a rule of this name");
    (rule["met"].as_u64().expect("a number"), rule["applied"].as_u64().expect("a number"))
}

fn asks(paced: &mut Paced, what: &str, answer: &str) {
    paced.is_told(what);
    paced.hears(answer);
}

const ENOMEM: i32 = 12;

#[test]
fn calls_of_a_program_without_a_plan_fail_from_now_on() {
    let place = Place::new("calls");
    let Some(program) = compile(&place, "driven") else { return };
    let report = place.0.join("report");
    let report = report.to_str().expect("UTF-8");
    let mut paced = Paced::alone(&place, &program, 1, &["--tag", "one", "--fault-report", report]);
    asks(&mut paced, "send 5", "done 5\n");
    add(&place, "fail call=ibv_post_send nth=3");
    asks(&mut paced, "send 5", "failed 2 ibv_post_send\n");
    assert_eq!(tally(&place, "fail"), (3, 1));
    assert_eq!(place.fault(&["pause", "fail"]).0, Some(0));
    asks(&mut paced, "send 5", "done 5\n");
    assert_eq!(tally(&place, "fail"), (3, 1));
    add(&place, "fail name=domain call=ibv_alloc_pd times=1 after=\"call ibv_alloc_pd 2\"");
    for errno in [0, 0, ENOMEM, 0] {
        asks(&mut paced, "domain 0", &format!("domain {errno}\n"));
    }
    add(&place, "slow call=ibv_post_recv qp=0 time=1ms every=2 times=3");
    add(&place, "fail name=never call=ibv_reg_mr");
    asks(&mut paced, "send 10", "done 10\n");
    assert_eq!(tally(&place, "slow"), (10, 3));
    let (_, cleared, _) = place.fault(&["clear"]);
    assert!(cleared.ends_with("cleared fail, domain, slow, never\n"), "{cleared}");
    asks(&mut paced, "send 5", "done 5\n");
    add(&place, "fail name=unused call=ibv_reg_mr");
    paced.ends();

    let text = fs::read_to_string(report).expect("a report");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let of = |rule: &str| -> Vec<&Value> {
        lines.iter().filter(|line| line["rule"] == rule && line["call"].is_string()).collect()
    };
    let domain = of("domain");
    assert_eq!((domain.len(), &domain[0]["nth"]), (1, &4.into()), "counted from the beginning: {text}");
    assert_eq!((of("fail").len(), of("slow").len()), (1, 3), "{text}");
    assert_eq!(lines.iter().filter(|line| line["live"] == "added").count(), 5, "{text}");
    let never: Vec<&Value> = lines.iter().filter_map(|line| line["never"].as_array()).flatten().collect();
    assert_eq!(never, ["unused"], "{text}");
}

#[test]
fn completions_of_a_program_without_a_plan_are_named_from_its_beginning() {
    let place = Place::new("completions");
    let Some(program) = compile(&place, "driven") else { return };
    let report = place.0.join("report");
    let report = report.to_str().expect("UTF-8");
    let mut paced = Paced::alone(&place, &program, 2, &["--tag", "one", "--fault-report", report]);
    asks(&mut paced, "send 5", "done 5\n");
    add(&place, "late side=receive message=7 time=1ms");
    add(&place, "late name=held side=send time=1ms nth=2 after=\"completions 4 qp=0\"");
    asks(&mut paced, "send 5", "done 5\n");
    assert_eq!((tally(&place, "late"), tally(&place, "held").1), ((1, 1), 1));
    assert_eq!(place.fault(&["clear"]).0, Some(0));
    asks(&mut paced, "send 3", "done 3\n");
    add(&place, "complete status=general side=send message=15");
    asks(&mut paced, "send 5", "failed 2 general error\n");
    paced.ends();

    let text = fs::read_to_string(report).expect("a report");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let message = |rule: &str| {
        let of = |line: &&Value| line["rule"] == rule && line["message"].is_u64();
        lines.iter().find(of).map(|line| &line["message"])
    };
    assert_eq!((message("late"), message("complete")), (Some(&7.into()), Some(&15.into())), "{text}");
    // The report names the same requests in a run from the beginning.
    let mut again = Paced::alone(&place, &program, 2, &["--tag", "one", "--faults", report]);
    asks(&mut again, "send 20", "failed 15 general error\n");
    assert_eq!((tally(&place, "late").1, tally(&place, "held").1), (1, 1));
    again.ends();
}

#[test]
fn events_of_channels_and_of_the_device_are_met_in_a_program_without_a_plan() {
    const PORT_ERR: i32 = 10;
    const PORT_ACTIVE: i32 = 9;
    let place = Place::new("events");
    let Some(program) = compile(&place, "driven") else { return };
    let report = place.0.join("report");
    let report = report.to_str().expect("UTF-8");
    let mut paced = Paced::alone(&place, &program, 3, &["--tag", "one", "--fault-report", report]);
    asks(&mut paced, "wait 3", "done 3\n");
    add(&place, "late-event cq=0 time=2ms nth=2");
    asks(&mut paced, "wait 4", "done 4\n");
    assert_eq!(tally(&place, "late-event"), (4, 1));
    add(&place, "event kind=port-down time=1ms after=\"call ibv_alloc_pd 1\"");
    asks(&mut paced, "domain 0", "domain 0\n");
    asks(&mut paced, "async 0", &format!("event {PORT_ERR}\n"));
    asks(&mut paced, "async 0", &format!("event {PORT_ACTIVE}\n"));
    asks(&mut paced, "send 3", "done 3\n");
    add(&place, "drop opcode=send times=1 after=\"event lid-change\"");
    add(&place, "event name=at-once kind=lid-change");
    asks(&mut paced, "send 3", "done 3\n");
    asks(&mut paced, "async 0", "event 11\n");
    asks(&mut paced, "send 3", "done 3\n");
    assert_eq!(tally(&place, "drop").1, 1);
    paced.ends();

    let text = fs::read_to_string(report).expect("a report");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let late = lines.iter().find(|line| line["rule"] == "late-event" && line["nth"].is_u64());
    assert_eq!(late.map(|line| &line["nth"]), Some(&5.into()), "{text}");
}
