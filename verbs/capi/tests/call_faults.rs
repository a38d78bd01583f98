//! Rules about calls, met by C programs; and the report of calls.

mod kit;

use std::fs;

/// What `call_faults.c` expects.
const RULES: &str = "
    name=full call=ibv_reg_mr nth=2 errno=ENOSPC
    name=in-use call=ibv_dereg_mr times=1
    name=no-room call=ibv_post_recv nth=1
    name=dead call=ibv_post_send qp=0 nth=2 errno=EIO
    name=no-queue call=ibv_poll_cq nth=2
    name=no-gid call=ibv_query_gid nth=2
    name=slow call=ibv_req_notify_* delay=50ms
    name=stuck call=ibv_destroy_qp on=1..2 errno=EBUSY
    name=never call=rdma_listen
    name=elsewhere call=ibv_alloc_pd tag=another";

#[test]
fn calls_fail_by_rule_as_their_manual_pages_say() {
    let Some(program) = kit::compile("call_faults") else { return };
    let report = kit::scratch("call-faults").join("report.jsonl");
    let mut command = kit::on(kit::address(), &program);
    let output = command.env("PUMICE_CALL_FAULTS", RULES).env("PUMICE_CALL_REPORT", &report).output();
    let text = kit::succeeded("call_faults", &output.expect("timeout(1) runs"));
    for sentence in [
        "ibv_reg_mr, call 2 of this name, fails with ENOSPC: fault rule \"full\"",
        "ibv_post_send, call 2 of this name on queue pair 0, fails with EIO: fault rule \"dead\"",
        "ibv_req_notify_cq, call 1 of this name, takes 50000 µs longer: fault rule \"slow\"",
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
}

#[test]
fn a_wrong_rule_is_named_before_a_device_is_opened() {
    let Some(program) = kit::compile("call_faults") else { return };
    let mut command = kit::on(kit::address(), &program);
    let output = command.env("PUMICE_CALL_FAULTS", "call=ibv_reg_mr errno=ECONNREFUSED").output();
    let output = output.expect("timeout(1) runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("ibv_reg_mr does not fail with ECONNREFUSED: write one of ENOMEM,"), "{said}");
    assert!(!output.status.success());
}
