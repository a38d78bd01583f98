use std::sync::{Arc, Mutex, PoisonError};

use pumice_platform::clock::Clock;

use super::*;
use crate::calls::CallFaults;
use crate::plan::FaultPlan;
use crate::waits::Triggers;
use pumice_model::fates::CallKey;

const NOW: ProcessProgress = ProcessProgress { packets: 7, queue_pairs: 2 };

struct Calls(Mutex<CallFaults>);

impl CallRules for Calls {
    fn change(&self, change: &mut dyn FnMut(&mut CallFaults)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// A process with a plan, and the changes of it that were reported.
struct FaultedProcess {
    packets: Faults,
    completions: CompletionFaults,
    events: CompletionEventFaults,
    calls: Calls,
    changes: Vec<String>,
}

impl FaultedProcess {
    fn new(lines: &[&str]) -> FaultedProcess {
        let clock = Clock::monotonic();
        let plan = lines.iter().try_fold(FaultPlan::seeded(3), |plan, line| plan.with_line(line)).unwrap();
        let triggers: Arc<Triggers> = Triggers::new(&plan, &clock);
        FaultedProcess {
            packets: Faults::new(&plan, "server", &triggers, clock),
            completions: CompletionFaults::new(&plan, "server", &triggers),
            events: CompletionEventFaults::new(&plan, "server", &triggers),
            calls: Calls(Mutex::new(CallFaults::new(&plan, "server", &triggers))),
            changes: Vec::new(),
        }
    }

    fn ask(&mut self, order: FaultCommand) -> FaultReply {
        let FaultedProcess { packets, completions, events, calls, changes } = self;
        let mut parts = PlanParts {
            packets,
            completions: Some(completions),
            completion_events: Some(events),
            calls: Some(calls),
        };
        parts.apply_command(&order, NOW, &mut |change| {
            changes
                .push(format!("{} {} {:?} {}", change.what, change.rule, change.line, change.after_packets));
        })
    }

    fn add(&mut self, line: &str) -> FaultReply {
        self.ask(FaultCommand::Add { line: line.to_owned() })
    }

    /// Returns the errno that a call gets.
    fn call(&mut self, call: &str, ordinal: u64) -> Option<i32> {
        let mut calls = self.calls.0.lock().unwrap();
        let errno = calls.decide(&CallKey { call, ordinal, qp: None, to: None }, &mut |_| {}).errno;
        drop(calls);
        self.packets.triggers.called(call, ordinal);
        errno
    }
}

fn names(answer: &FaultReply) -> Vec<&str> {
    answer.rules.iter().map(|rule| rule.name.as_str()).collect()
}

#[test]
fn rules_come_rest_and_go() {
    let mut process = FaultedProcess::new(&[]);
    assert!(!process.packets.is_active());
    assert_eq!(names(&process.add("drop chance=2%")), ["drop"]);
    let answer = process.add("drop chance=3%");
    assert_eq!(
        (names(&answer), answer.changed.as_slice()),
        (vec!["drop", "drop-2"], &["drop-2".to_owned()][..])
    );
    assert!(process.packets.is_active() && answer.rules[1].live);
    assert_eq!(answer.rules[1].does, "drop chance=3%");
    for wrong in [
        "drop name=drop",
        "drop tag=client",
        "fail call=ibv_reg_mr tag=client",
        "complete status=general name=drop-2",
        "dorp",
        "",
        "fail call=ibv_wc_status_str",
        "fail call=ibv_reg_mr errno=ENOPE",
        "drop name=x after=\"rule x\"",
        "late until=\"rule nothing\"",
    ] {
        let answer = process.add(wrong);
        assert!(answer.refused.is_some() && answer.rules.len() == 2, "{wrong}: {answer:?}");
    }
    let one = Some("drop-2".to_owned());
    assert!(process.ask(FaultCommand::Pause { rule: one.clone() }).rules[1].paused);
    assert!(process.ask(FaultCommand::Pause { rule: one.clone() }).changed.is_empty());
    assert_eq!(process.ask(FaultCommand::Resume { rule: None }).changed, ["drop-2"]);
    let answer = process.ask(FaultCommand::Clear { rule: Some("loss".to_owned()) });
    assert_eq!(answer.refused.unwrap(), "there is no rule \"loss\": it has drop, drop-2");
    assert_eq!(names(&process.ask(FaultCommand::Clear { rule: one })), ["drop"]);
    assert_eq!(process.ask(FaultCommand::Clear { rule: None }).changed, ["drop"]);
    assert!(!process.packets.is_active());
    assert_eq!(process.changes[0], "added drop Some(\"drop chance=2%\") 7");
    assert_eq!(process.changes.len(), 6);
}

#[test]
fn rules_of_every_kind_are_listed_in_their_order_and_cleared_together() {
    let first = ["fail call=ibv_alloc_pd nth=9", "drop nth=9"];
    let mut process = FaultedProcess::new(&first);
    for line in ["late-event time=1ms", "complete status=general nth=9", "slow call=ibv_reg_mr time=1us"] {
        assert_eq!(process.add(line).refused, None, "{line}");
    }
    let answer = process.add("event kind=port-down time=1ms after=\"call ibv_reg_mr 2\"");
    assert_eq!(answer.refused, None);
    assert_eq!(names(&answer), ["fail", "drop", "late-event", "complete", "slow", "event"]);
    let does = |index: usize| answer.rules[index].does.as_str();
    assert_eq!([does(0), does(1), does(3)], ["fail", "drop", "complete status=general nth=9"]);
    assert_eq!(answer.rules.iter().filter(|rule| rule.live).count(), 4);
    assert!(process.completions.is_active() && process.events.is_active());
    let answer = process.ask(FaultCommand::Clear { rule: None });
    assert_eq!(answer.changed, ["fail", "drop", "late-event", "complete", "slow", "event"]);
    assert!(answer.rules.is_empty() && !process.completions.is_active() && !process.events.is_active());
}

#[test]
fn a_rule_counts_and_waits_from_when_it_came() {
    let mut process =
        FaultedProcess::new(&["fail name=first call=ibv_reg_mr nth=2 after=\"call ibv_alloc_pd 2\""]);
    process.call("ibv_alloc_pd", 1);
    // The trigger equals one of the plan, which has begun to count.
    let line = "fail name=second call=ibv_create_cq after=\"call ibv_alloc_pd 2\"";
    assert_eq!(process.add(line).refused, None);
    process.call("ibv_alloc_pd", 2);
    assert_eq!((process.call("ibv_reg_mr", 1), process.call("ibv_create_cq", 1)), (None, None));
    process.call("ibv_alloc_pd", 3);
    assert_eq!(process.call("ibv_create_cq", 2), Some(libc::ENOMEM));
    assert_eq!(process.call("ibv_reg_mr", 2), Some(libc::ENOMEM));
    // The rule that it waits for exists and has applied: it has to apply again.
    assert_eq!(process.add("fail name=third call=ibv_create_ah after=\"rule second\"").refused, None);
    assert_eq!(process.call("ibv_create_ah", 1), None);
    process.call("ibv_create_cq", 3);
    assert_eq!(process.call("ibv_create_ah", 2), Some(libc::ENOMEM));
    let rules = process.ask(FaultCommand::List).rules;
    let third = rules.iter().find(|rule| rule.name == "third").unwrap();
    assert_eq!((third.met, third.applied), (1, 1));
}

#[test]
fn what_a_rule_that_is_gone_waited_for_is_not_counted() {
    let mut process = FaultedProcess::new(&[]);
    let triggers = Arc::clone(&process.packets.triggers);
    assert_eq!(process.add("drop after=\"completions 5\"").refused, None);
    assert_eq!(process.add("mark after=\"call ibv_reg_mr 5\"").refused, None);
    assert!(triggers.count_work() && triggers.count_calls());
    process.ask(FaultCommand::Clear { rule: None });
    assert!(!triggers.count_work() && !triggers.count_calls());
}
