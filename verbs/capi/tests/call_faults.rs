//! Rules about calls, met by C programs; and the report of calls.

mod kit;

use std::fs;
use std::path::Path;

/// What `call_faults.c` expects.
const RULES: &str = "
    fail name=full call=ibv_reg_mr nth=2 errno=ENOSPC
    fail name=in-use call=ibv_dereg_mr times=1
    fail name=no-room call=ibv_post_recv nth=1
    fail name=dead call=ibv_post_send qp=0 nth=2 errno=EIO
    fail name=no-queue call=ibv_poll_cq nth=2
    fail name=no-gid call=ibv_query_gid nth=2
    slow name=slow call=ibv_req_notify_* time=50ms
    fail name=stuck call=ibv_destroy_qp nth=1..2 errno=EBUSY
    fail name=never call=rdma_listen
    fail name=elsewhere call=ibv_alloc_pd tag=another";

#[test]
fn calls_fail_by_rule_as_their_manual_pages_say() {
    let Some(program) = kit::compile("call_faults") else { return };
    let folder = kit::scratch("call-faults");
    let (report, faults) = (folder.join("calls.jsonl"), folder.join("faults.jsonl"));
    let mut command = kit::on(kit::address(), &program);
    command.env("PUMICE_FAULT", RULES).env("PUMICE_CALL_REPORT", &report);
    let output = command.env("PUMICE_FAULT_REPORT", &faults).env("PUMICE_TAG", "one").output();
    let text = kit::succeeded("call_faults", &output.expect("timeout(1) runs"));
    for sentence in [
        "fault \"full\" fails ibv_reg_mr with ENOSPC (call 2 of this name)",
        "fault \"dead\" fails ibv_post_send with EIO (call 2 of this name on queue pair 0)",
        "fault \"slow\" delays ibv_req_notify_cq by 50000 us (call 1 of this name)",
        "these rules of the fault plan never applied: \"never\"",
    ] {
        assert!(text.contains(sentence), "{sentence}\n{text}");
    }
    let report = fs::read_to_string(report).expect("the report is written");
    let fired = report.lines().filter(|line| line.contains("\"event\":\"fired\"")).count();
    assert_eq!(fired, 9, "{report}");
    let destroyed = r#""rule":"stuck","call":"ibv_destroy_qp","nth":2,"qp":0,"errno":"EBUSY"}"#;
    assert!(report.contains(destroyed), "{report}");
    let end = report.lines().last().unwrap_or_default();
    assert!(end.contains(r#""ibv_reg_mr":3,"#) && end.contains(r#""ibv_destroy_qp":3,"#), "{end}");
    let (_, left) = end.split_once("\"left\":").expect("the objects are listed");
    for (kind, call, nth) in [
        ("queue pair", "ibv_create_qp", 2),
        ("memory region", "ibv_reg_mr", 1),
        ("completion queue", "ibv_create_cq", 1),
        ("completion channel", "ibv_create_comp_channel", 1),
        ("protection domain", "ibv_alloc_pd", 1),
        ("context", "ibv_open_device", 1),
    ] {
        let object = format!("{{\"kind\":\"{kind}\",\"call\":\"{call}\",\"nth\":{nth}}}");
        assert!(left.contains(&object), "{object}: {left}");
    }
    assert_eq!(left.matches("kind").count(), 6, "{left}");
    replay(&program, &faults);
}

/// The report is itself a plan, by which the same happens again.
fn replay(program: &Path, faults: &Path) {
    let again = faults.with_extension("again");
    let mut command = kit::on(kit::address(), program);
    command.env("PUMICE_FAULTS", faults).env("PUMICE_TAG", "one").env("PUMICE_FAULT_REPORT", &again);
    kit::succeeded("call_faults by its report", &command.output().expect("timeout(1) runs"));
    let calls = |file: &Path| {
        let text = fs::read_to_string(file).expect("the report is written");
        let calls = text.lines().filter(|line| line.contains("\"call\":")).map(str::to_owned);
        calls.collect::<Vec<_>>()
    };
    // Queue pairs are looked up only where a rule asks for them.
    let without_qp = |lines: Vec<String>| {
        lines
            .into_iter()
            .map(|line| line.replace(",\"qp\":0", "").replace(",\"qp\":1", ""))
            .collect::<Vec<_>>()
    };
    assert_eq!(calls(faults).len(), 9);
    assert_eq!(without_qp(calls(faults)), without_qp(calls(&again)));
}

/// `ibv_get_cq_event` looks every 100 ms whether its thread was cancelled, and waits again. That it did so is
/// none of the plan's business: the call counts once, is delayed once, and what waits for its return begins.
#[test]
fn a_call_that_waits_in_several_attempts_is_one_call() {
    let Some(program) = kit::compile("slow_waiting") else { return };
    let report = kit::scratch("slow-waiting").join("calls.jsonl");
    let mut command = kit::on(kit::address(), &program);
    let rules = "
        slow call=ibv_get_cq_event time=150ms
        late-event time=450ms
        fail name=after call=ibv_alloc_pd errno=ENOMEM after=\"call ibv_get_cq_event 2\" times=1";
    command.env("PUMICE_FAULT", rules).env("PUMICE_CALL_REPORT", &report);
    let text = kit::succeeded("slow_waiting", &command.output().expect("timeout(1) runs"));
    assert!(!text.contains("never applied"), "{text}");
    let report = fs::read_to_string(report).expect("the report is written");
    let delayed: Vec<&str> = report.lines().filter(|line| line.contains("\"rule\":\"slow\"")).collect();
    assert_eq!(delayed.len(), 2, "{report}");
    for (line, nth) in delayed.iter().zip(1..) {
        assert!(line.contains(&format!("\"call\":\"ibv_get_cq_event\",\"nth\":{nth},")), "{report}");
    }
    let end = report.lines().last().unwrap_or_default();
    assert!(end.contains(r#""ibv_get_cq_event":2,"#), "{end}");
}

/// Two calls close XRC domains, and each is counted, logged and failed as itself.
#[test]
fn a_call_is_failed_and_counted_under_its_own_name() {
    let Some(program) = kit::compile("call_names") else { return };
    let report = kit::scratch("call-names").join("calls.jsonl");
    let mut command = kit::on(kit::address(), &program);
    let rules = "
        fail name=open call=ibv_close_xrc_domain nth=1 errno=ENODEV
        fail name=options call=ibv_query_ece qp=1 nth=1 errno=EOPNOTSUPP
        fail name=clock call=ibv_query_rt_values_ex nth=1 errno=EIO";
    command.env("PUMICE_FAULT", rules).env("PUMICE_CALL_REPORT", &report);
    let text = kit::succeeded("call_names", &command.output().expect("timeout(1) runs"));
    let sentence = "fault \"open\" fails ibv_close_xrc_domain with ENODEV (call 1 of this name)";
    assert!(text.contains(sentence), "{text}");
    assert!(text.contains("fails ibv_query_rt_values_ex with EIO"), "{text}");
    let report = fs::read_to_string(report).expect("the report is written");
    let end = report.lines().last().unwrap_or_default();
    assert!(end.contains(r#""ibv_close_xrc_domain":2,"#) && !end.contains("ibv_close_xrcd"), "{end}");
}

#[test]
fn a_capture_records_what_was_done_to_a_call() {
    let Some(program) = kit::compile("completion_faults") else { return };
    let file = kit::scratch("call-capture").join("packets.pcapng");
    let mut command = kit::on(kit::address(), &program);
    let rules = "
        slow call=ibv_post_send time=1us nth=1
        complete status=retry-exceeded vendor-err=129 qp=0 side=send after=\"call ibv_query_gid 2\"";
    command.env("PUMICE_FAULT", rules).env("PUMICE_CAPTURE", &file);
    kit::succeeded("completion_faults", &command.output().expect("timeout(1) runs"));
    let output_text = b"fault \"slow\" delays ibv_post_send by 1 us (call 1 of this name)";
    let file = fs::read(file).expect("the capture is written");
    assert!(file.windows(output_text.len()).any(|part| part == output_text));
}

#[test]
fn something_happens_to_the_device_at_a_call() {
    let Some(program) = kit::compile("call_faults") else { return };
    let report = kit::scratch("at-call").join("faults.jsonl");
    let mut command = kit::on(kit::address(), &program);
    let rules = format!("{RULES}\nevent name=lid kind=lid-change after=\"call ibv_reg_mr 2\"");
    command.env("PUMICE_FAULT", rules).env("PUMICE_FAULT_REPORT", &report).env("PUMICE_TAG", "one");
    kit::succeeded("call_faults", &command.output().expect("timeout(1) runs"));
    let text = fs::read_to_string(report).expect("the report is written");
    let line = r#"{"rule":"lid","tag":"one","call":"ibv_reg_mr","nth":2,"event":"lid-change"}"#;
    assert!(text.lines().any(|known| known == line), "{text}");
}

#[test]
fn a_wrong_rule_is_named_before_a_device_is_opened() {
    let Some(program) = kit::compile("call_faults") else { return };
    let mut command = kit::on(kit::address(), &program);
    let output = command.env("PUMICE_FAULT", "fail call=ibv_reg_mr errno=ENOPE").output();
    let output = output.expect("timeout(1) runs");
    let output_text = String::from_utf8_lossy(&output.stderr);
    assert!(output_text.contains("\"ENOPE\" is no errno of Linux"), "{output_text}");
    assert!(!output.status.success());
}

#[test]
fn completions_fail_by_rule_after_a_call() {
    let Some(program) = kit::compile("completion_faults") else { return };
    let rules = "complete status=retry-exceeded vendor-err=129 qp=0 side=send after=\"call ibv_query_gid 2\"";
    let folder = kit::scratch("completion-faults");
    let (first, again) = (folder.join("first.jsonl"), folder.join("again.jsonl"));
    let run = |variable: &str, plan: &std::ffi::OsStr, report: &Path| {
        let mut command = kit::on(kit::address(), &program);
        command.env(variable, plan).env("PUMICE_TAG", "one").env("PUMICE_FAULT_REPORT", report);
        kit::succeeded("completion_faults", &command.output().expect("timeout(1) runs"));
        let text = fs::read_to_string(report).expect("the report is written");
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    let lines = run("PUMICE_FAULT", rules.as_ref(), &first);
    let request = r#""completion":"write","qp":0,"connection":0,"message":1,"#;
    let end = r#""status":"retry-exceeded","vendor_err":129}"#;
    assert!(lines.iter().any(|line| line.contains(&format!("{request}{end}"))), "{lines:?}");
    assert_eq!(run("PUMICE_FAULTS", first.as_os_str(), &again), lines);
}
