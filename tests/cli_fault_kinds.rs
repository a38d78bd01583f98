//! `pumice fault` with rules of every kind: calls, completions, events of channels, and rules that wait.

use std::fs;
use std::process::Output;

use serde_json::Value;

#[path = "fault/scratch.rs"]
mod scratch;

use scratch::{LineDrivenProgram, Scratch, compile};

/// Adds a rule to the only process.
fn add(scratch: &Scratch, line: &str) {
    let (code, out, output_text) = scratch.fault(&["add", line]);
    assert_eq!(code, Some(0), "{line}: {out}{output_text}");
}

/// How often a rule was met and applied.
fn tally(scratch: &Scratch, name: &str) -> (u64, u64) {
    let rules = scratch.rules(&[]);
    let rule = rules.iter().find(|rule| rule["name"] == name).expect("a rule of this name");
    (rule["met"].as_u64().expect("a number"), rule["applied"].as_u64().expect("a number"))
}

fn asks(paced: &mut LineDrivenProgram, what: &str, answer: &str) {
    paced.send_line(what);
    paced.expect_line(answer);
}

const ENOMEM: i32 = 12;

#[test]
fn calls_of_a_program_without_a_plan_fail_from_now_on() {
    let scratch = Scratch::new("calls");
    let Some(program) = compile(&scratch, "driven") else { return };
    let report = scratch.0.join("report");
    let report = report.to_str().expect("UTF-8");
    let mut paced =
        LineDrivenProgram::alone(&scratch, &program, 1, &["--tag", "one", "--fault-report", report]);
    asks(&mut paced, "send 5", "done 5\n");
    add(&scratch, "fail call=ibv_post_send nth=3");
    asks(&mut paced, "send 5", "failed 2 ibv_post_send\n");
    assert_eq!(tally(&scratch, "fail"), (3, 1));
    assert_eq!(scratch.fault(&["pause", "fail"]).0, Some(0));
    asks(&mut paced, "send 5", "done 5\n");
    assert_eq!(tally(&scratch, "fail"), (3, 1));
    add(&scratch, "fail name=domain call=ibv_alloc_pd times=1 after=\"call ibv_alloc_pd 2\"");
    for errno in [0, 0, ENOMEM, 0] {
        asks(&mut paced, "domain 0", &format!("domain {errno}\n"));
    }
    add(&scratch, "slow call=ibv_post_recv qp=0 time=1ms every=2 times=3");
    add(&scratch, "fail name=never call=ibv_reg_mr");
    asks(&mut paced, "send 10", "done 10\n");
    assert_eq!(tally(&scratch, "slow"), (10, 3));
    let (_, cleared, _) = scratch.fault(&["clear"]);
    assert!(cleared.ends_with("cleared fail, domain, slow, never\n"), "{cleared}");
    asks(&mut paced, "send 5", "done 5\n");
    add(&scratch, "fail name=unused call=ibv_reg_mr");
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
    assert_eq!(never, ["never", "unused"], "one was cleared before, and is named too: {text}");
}

#[test]
fn completions_of_a_program_without_a_plan_are_named_from_its_beginning() {
    let scratch = Scratch::new("completions");
    let Some(program) = compile(&scratch, "driven") else { return };
    let report = scratch.0.join("report");
    let report = report.to_str().expect("UTF-8");
    let mut paced =
        LineDrivenProgram::alone(&scratch, &program, 2, &["--tag", "one", "--fault-report", report]);
    asks(&mut paced, "send 5", "done 5\n");
    add(&scratch, "late side=receive message=7 time=1ms");
    add(&scratch, "late name=held side=send time=1ms nth=2 after=\"completions 4 qp=0\"");
    asks(&mut paced, "send 5", "done 5\n");
    assert_eq!((tally(&scratch, "late"), tally(&scratch, "held").1), ((1, 1), 1));
    assert_eq!(scratch.fault(&["clear"]).0, Some(0));
    asks(&mut paced, "send 3", "done 3\n");
    add(&scratch, "complete status=general side=send message=15");
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
    let mut again = LineDrivenProgram::alone(&scratch, &program, 2, &["--tag", "one", "--faults", report]);
    asks(&mut again, "send 20", "failed 15 general error\n");
    assert_eq!((tally(&scratch, "late").1, tally(&scratch, "held").1), (1, 1));
    again.ends();
}

#[test]
fn events_of_channels_and_of_the_device_are_met_in_a_program_without_a_plan() {
    const PORT_ERR: i32 = 10;
    const PORT_ACTIVE: i32 = 9;
    let scratch = Scratch::new("events");
    let Some(program) = compile(&scratch, "driven") else { return };
    let report = scratch.0.join("report");
    let report = report.to_str().expect("UTF-8");
    let mut paced =
        LineDrivenProgram::alone(&scratch, &program, 3, &["--tag", "one", "--fault-report", report]);
    asks(&mut paced, "wait 3", "done 3\n");
    add(&scratch, "late-event cq=0 time=2ms nth=2");
    asks(&mut paced, "wait 4", "done 4\n");
    assert_eq!(tally(&scratch, "late-event"), (4, 1));
    add(&scratch, "event kind=port-down time=1ms after=\"call ibv_alloc_pd 1\"");
    asks(&mut paced, "domain 0", "domain 0\n");
    asks(&mut paced, "async 0", &format!("event {PORT_ERR}\n"));
    asks(&mut paced, "async 0", &format!("event {PORT_ACTIVE}\n"));
    asks(&mut paced, "send 3", "done 3\n");
    add(&scratch, "drop opcode=send times=1 after=\"event lid-change\"");
    add(&scratch, "event name=at-once kind=lid-change");
    asks(&mut paced, "send 3", "done 3\n");
    asks(&mut paced, "async 0", "event 11\n");
    asks(&mut paced, "send 3", "done 3\n");
    assert_eq!(tally(&scratch, "drop").1, 1);
    paced.ends();

    let text = fs::read_to_string(report).expect("a report");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let late = lines.iter().find(|line| line["rule"] == "late-event" && line["nth"].is_u64());
    assert_eq!(late.map(|line| &line["nth"]), Some(&5.into()), "{text}");
}

#[test]
fn calls_of_rsockets_fail_by_their_names() {
    let scratch = Scratch::new("sockets");
    let Some(program) = compile(&scratch, "sockets") else { return };
    let report = scratch.0.join("report");
    let own = std::process::id();
    let address = format!("127.{}.{}.9", 150 + (own >> 8 & 0x1f), own & 0xff);
    let run = |faults: &[&str]| -> Output {
        let mut command = scratch.pumice(&["run", "--addr", &address, "--tag", "one"]);
        command.args(faults).arg("--").arg(&program).arg(&address);
        command.output().expect("it can be run")
    };
    let output_text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();

    let none = run(&[]);
    let steps = ["rsocket", "rbind", "rlisten", "rsocket", "rconnect", "rwrite", "rread", "rclose"];
    let all_good: String = steps.map(|step| format!("{step} 0\n")).concat();
    assert_eq!((output_text(&none), none.status.code()), (all_good, Some(0)), "{}", errors(&none));

    let report_text = report.to_str().expect("UTF-8");
    let rules = ["fail call=rsocket nth=2 errno=EMFILE", "fail name=bind call=rbind times=1"];
    let more =
        ["fail name=peer call=rconnect nth=1", "fail name=data call=rwrite nth=1 errno=ENOSPC force=true"];
    let mut faults = vec!["--fault-report", report_text];
    rules.iter().chain(&more).for_each(|rule| faults.extend(["--fault", rule]));
    let output = run(&faults);
    let expected = "rsocket 0\nrbind 98\nrbind 0\nrlisten 0\nrsocket 24\nrsocket 0\nrconnect 111\n\
                    rconnect 0\nrwrite 28\nrwrite 0\nrread 0\nrclose 0\n";
    assert_eq!(
        (output_text(&output).as_str(), output.status.code()),
        (expected, Some(0)),
        "{}",
        errors(&output)
    );
    let report_lines = fs::read_to_string(&report).expect("a report");
    for part in ["\"call\":\"rsocket\",\"nth\":2", "\"call\":\"rconnect\",\"nth\":1"] {
        assert!(report_lines.contains(part), "{part}: {report_lines}");
    }

    let wrong = run(&["--fault", "fail call=rread errno=ENOPE"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(errors(&wrong).contains("\"ENOPE\" is no errno of Linux"), "{}", errors(&wrong));
}
