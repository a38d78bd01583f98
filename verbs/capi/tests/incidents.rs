//! What a fault plan makes happen to the device, met by a C program; and the report of it.

mod kit;

use std::fs;
use std::path::{Path, PathBuf};

/// What `incidents.c` expects.
const RULES: &str = "
    event name=lid kind=lid-change qp=0 message=1
    event name=away kind=gid-move to=5 qp=0 message=2
    event name=back kind=gid-move gid=5 to=0 qp=0 message=3
    event name=flap kind=port-down time=20ms qp=0 message=4
    event name=queue-pair kind=qp-fatal qp=2 message=1
    event name=queue kind=cq-error cq=0 qp=0 message=5
    event name=lost kind=device-fatal qp=4 message=0";

/// The program with this plan; what the report says happened, sorted.
fn run(program: &Path, folder: &Path, variable: &str, plan: &str) -> (String, PathBuf) {
    let report = folder.join(format!("{variable}.jsonl"));
    let mut command = kit::on(kit::address(), program);
    command.env(variable, plan).env("PUMICE_FAULT_REPORT", &report).env("PUMICE_TAG", "one");
    kit::succeeded("incidents", &command.output().expect("timeout(1) runs"));
    let text = fs::read_to_string(&report).expect("the report is written");
    let mut lines: Vec<&str> = text.lines().filter(|line| line.contains("\"rule\":")).collect();
    lines.sort_unstable();
    (lines.join("\n"), report)
}

#[test]
fn what_happens_to_the_device_happens_at_its_request_and_again_by_the_report() {
    let Some(program) = kit::compile("incidents") else { return };
    let folder = kit::scratch("incidents");
    let (first, report) = run(&program, &folder, "PUMICE_FAULT", RULES);
    assert_eq!(first.lines().count(), 7, "{first}");
    let report = report.to_str().expect("the target folder has a name");
    assert_eq!(run(&program, &folder, "PUMICE_FAULTS", report).0, first);
}

/// What `cm_faults.c` expects.
const OF_CONNECTIONS: &str = "
    unreachable name=down
    event name=bond kind=addr-change after=\"call ibv_query_pkey 1\"";

#[test]
fn peers_are_unreachable_at_once_and_addresses_change_by_a_plan() {
    let Some(program) = kit::compile("cm_faults") else { return };
    let address = kit::address();
    let report = kit::scratch("cm-faults").join("report.jsonl");
    let mut command = kit::on(address, program);
    command.arg(address.to_string()).env("PUMICE_FAULT", OF_CONNECTIONS).env("PUMICE_FAULT_REPORT", &report);
    kit::succeeded("cm_faults", &command.output().expect("timeout(1) runs"));
    let text = fs::read_to_string(&report).expect("the report is written");
    let of = |rule: &str| text.lines().filter(|line| line.contains(&format!("\"rule\":\"{rule}\""))).count();
    assert_eq!((of("down"), of("bond")), (2, 1), "{text}");
}
