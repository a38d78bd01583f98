use pumice_platform::clock::Clock;
use pumice_transport::types::{QpType, WcOpcode};

use super::*;

fn faults(lines: &[&str]) -> CompletionFaults {
    let plan = lines.iter().try_fold(FaultPlan::seeded(7), |plan, line| plan.with_line(line)).unwrap();
    plan.check().unwrap();
    CompletionFaults::new(&plan, "server", &Triggers::new(&plan, &Clock::monotonic()))
}

const SEND: Ended = Ended {
    connection: 0,
    qp_type: QpType::Rc,
    opcode: WcOpcode::Send,
    length_bytes: 10,
    reports: true,
    before: 0,
};
const RECV: Ended = Ended { opcode: WcOpcode::Recv, ..SEND };

/// Returns the ordinals of the requests that end with an error, of ten.
fn failing(faults: &mut CompletionFaults, qp: u32, ended: &Ended) -> Vec<u64> {
    (0..10).filter(|_| faults.decide(qp, ended, &mut |_| {}).status.is_some()).collect()
}

#[test]
fn requests_are_met_by_queue_and_ordinal() {
    let one = ["complete status=retry-exceeded qp=1 message=3"];
    let mut rules = faults(&one);
    assert!(failing(&mut rules, 0, &SEND).is_empty());
    assert!(failing(&mut rules, 1, &RECV).is_empty());
    assert_eq!(failing(&mut rules, 1, &SEND), [3]);
    // A reset queue pair counts again, and so do rules.
    assert!(failing(&mut rules, 1, &SEND).is_empty());
    assert_eq!(failing(&mut rules, 1, &Ended { connection: 1, ..SEND }), [3]);
    let mut rules = faults(&["complete status=general side=receive every=4 times=2"]);
    assert!(failing(&mut rules, 0, &SEND).is_empty());
    assert_eq!(failing(&mut rules, 0, &RECV), [3, 7]);
    assert!(failing(&mut rules, 0, &RECV).is_empty());
}

#[test]
fn a_status_happens_only_where_it_can() {
    let mut rules = faults(&["complete status=retry-exceeded"]);
    assert!(failing(&mut rules, 0, &RECV).is_empty());
    assert!(failing(&mut rules, 1, &Ended { qp_type: QpType::Ud, ..SEND }).is_empty());
    assert_eq!(failing(&mut rules, 2, &SEND).len(), 10);
}

#[test]
fn what_makes_no_completion_is_not_late_unless_it_fails() {
    let mut rules = faults(&["late time=5ms nth=1", "complete status=general message=2 vendor-err=7"]);
    let silent = Ended { reports: false, ..SEND };
    let verdicts = [(); 4].map(|()| rules.decide(0, &silent, &mut |_| {}));
    assert_eq!(verdicts.each_ref().map(|verdict| verdict.delay_ns), [0, 0, 5_000_000, 0]);
    assert_eq!((verdicts[2].status, verdicts[2].vendor_err), (Some(WcStatus::GeneralErr), 7));
}

#[test]
fn rules_begin_after_completions_and_bytes_of_a_queue_pair() {
    let mut rules = faults(&["complete status=general qp=1 nth=2 after=\"completions 3 qp=0\""]);
    assert!(failing(&mut rules, 1, &SEND).is_empty());
    for _ in 0..3 {
        rules.decide(0, &RECV, &mut |_| {});
    }
    assert_eq!(failing(&mut rules, 1, &SEND), [1]);
    let mut rules = faults(&["complete status=general side=send after=\"bytes 25 qp=0\""]);
    assert_eq!(failing(&mut rules, 0, &SEND), [3, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn chance_depends_on_the_request_and_on_no_other_rule() {
    let lines = ["complete name=some status=general chance=50%"];
    let one = failing(&mut faults(&lines), 0, &SEND);
    assert!((1..10).contains(&one.len()), "{one:?}");
    let with_others = ["late chance=10% time=1us", lines[0], "complete status=fatal message=40"];
    assert_eq!(failing(&mut faults(&with_others), 0, &SEND), one);
}

#[test]
fn rules_are_told_one_by_one_and_replay() {
    let lines = ["complete status=flushed message=1", "late time=2us until=\"rule complete\" message=1"];
    let mut report_lines = Vec::new();
    let mut rules = faults(&lines);
    for _ in 0..3 {
        rules
            .decide(4, &SEND, &mut |fired| report_lines.push(crate::ReportLine::of_completion(fired).text()));
    }
    assert_eq!(report_lines.len(), 2, "{report_lines:?}");
    let plan = FaultPlan::parse(&report_lines.concat(), 1).unwrap();
    let mut again = CompletionFaults::new(&plan, "server", &Triggers::new(&plan, &Clock::monotonic()));
    let mut repeated = Vec::new();
    for _ in 0..3 {
        again.decide(4, &SEND, &mut |it| repeated.push(crate::ReportLine::of_completion(it).text()));
    }
    assert_eq!(repeated, report_lines);
}
