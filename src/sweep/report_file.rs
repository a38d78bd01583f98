//! What libpumice.so says about the calls of a run (PUMICE_CALL_REPORT) and its completions
//! (PUMICE_FAULT_REPORT).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use pumice_device::faults::{NthField, OrdinalField};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// An object that a process left.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Object {
    pub(super) kind: String,
    /// The call that made it, and its ordinal.
    pub(super) call: String,
    pub(super) nth: NthField,
}

/// A work request that a rule was about, and that has a completion.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(super) struct Completed {
    /// What it did.
    pub(super) completion: String,
    pub(super) qp: OrdinalField,
    pub(super) connection: u32,
    pub(super) message: u64,
}

/// The first transmission of a message of connection management that a rule was about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct ConnectionMessage {
    /// Who it was for.
    pub(super) peer: String,
    /// How many connections with this peer were begun before from this side.
    pub(super) connection: OrdinalField,
    /// `requester`: this process asked for the connection; `responder`: its peer did.
    pub(super) side: String,
    /// What it is: `req`, `rep`, `rtu` …
    #[serde(rename = "opcode")]
    pub(super) kind: String,
}

/// A report of faults, by the rule that applied.
pub(super) struct FaultReport(String);

impl FaultReport {
    /// The report in a file; an empty one if there is none.
    pub(super) fn read(path: &Path) -> FaultReport {
        FaultReport(fs::read_to_string(path).unwrap_or_default())
    }

    /// Whether this rule applied to something.
    pub(super) fn has(&self, rule: &str) -> bool {
        self.lines::<serde::de::IgnoredAny>(rule).next().is_some()
    }

    /// The completions to which this rule applied, in order.
    pub(super) fn completed(&self, rule: &str) -> Vec<Completed> {
        let mut all: Vec<Completed> = self.lines(rule).collect();
        all.sort();
        all
    }

    /// The messages of connection management to which this rule applied, in the order of sending; one that
    /// was sent again is there once.
    pub(super) fn messages(&self, rule: &str) -> Vec<ConnectionMessage> {
        let mut all: Vec<ConnectionMessage> = Vec::new();
        for message in self.lines(rule) {
            if !all.contains(&message) {
                all.push(message);
            }
        }
        all
    }

    /// What the lines of a rule say. A line that was cut off, or that says something else, is left out.
    fn lines<'a, T: DeserializeOwned>(&'a self, rule: &'a str) -> impl Iterator<Item = T> + 'a {
        #[derive(Deserialize)]
        struct Line {
            rule: String,
        }
        let is_it = move |line: &&str| serde_json::from_str::<Line>(line).is_ok_and(|line| line.rule == rule);
        self.0.lines().filter(is_it).filter_map(|line| serde_json::from_str(line).ok())
    }
}

#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Line {
    Fired {},
    Listening {},
    Ended { calls: BTreeMap<String, u64>, left: Option<Vec<Object>> },
}

/// The report of a run, of all its processes together.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CallReport {
    /// Whether a rule applied.
    pub(super) fired: bool,
    /// Whether a process listens for connections.
    pub(super) listening: bool,
    /// Calls by name: of several processes, the most that one of them made.
    pub(super) calls: BTreeMap<String, u64>,
    /// What was left; `None` if no process came to its end on purpose.
    pub(super) left: Option<Vec<Object>>,
}

impl CallReport {
    /// The report in a file; an empty one if there is none. A line that was cut off is left out.
    pub(super) fn read(path: &Path) -> CallReport {
        CallReport::parse(&fs::read_to_string(path).unwrap_or_default())
    }

    fn parse(text: &str) -> CallReport {
        let mut report = CallReport::default();
        for line in text.lines().filter_map(|line| serde_json::from_str(line).ok()) {
            match line {
                Line::Fired {} => report.fired = true,
                Line::Listening {} => report.listening = true,
                Line::Ended { calls, left } => {
                    for (call, count) in calls {
                        let most = report.calls.entry(call).or_default();
                        *most = count.max(*most);
                    }
                    if let Some(left) = left {
                        report.left.get_or_insert_default().extend(left);
                    }
                }
            }
        }
        if let Some(left) = &mut report.left {
            left.sort();
        }
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_of_faults_tells_completions_from_messages() {
        let report = FaultReport(
            r#"{"process":"a","seed":1,"rules":["census"]}
{"rule":"steps","service":"cm","connection":0,"side":"requester","opcode":"req","peer":"::1","packet":0}
{"rule":"steps","service":"cm","connection":0,"side":"requester","opcode":"req","peer":"::1","packet":0}
{"rule":"census","completion":"send","qp":0,"connection":0,"message":3}
{"rule":"steps","service":"cm","connec"#
                .to_owned(),
        );
        assert_eq!(report.completed("census").len(), 1);
        let messages = report.messages("steps");
        assert_eq!(messages.len(), 1, "{messages:?}");
        assert_eq!((messages[0].kind.as_str(), messages[0].peer.as_str()), ("req", "::1"));
        assert!(report.has("steps") && !report.has("sweep"));
    }

    #[test]
    fn processes_are_put_together() {
        let report = CallReport::parse(
            r#"{"event":"fired","pid":1,"rule":"sweep","call":"ibv_alloc_pd","nth":1,"errno":"ENOMEM"}
{"event":"ended","pid":1,"program":"a","calls":{"ibv_alloc_pd":2,"ibv_reg_mr":1},"left":[]}
{"event":"ended","calls":{"ibv_alloc_pd":1},"left":[{"kind":"context","call":"ibv_open_device","nth":1}]}
{"event":"ended","pid":3,"pro"#,
        );
        assert!(report.fired && !report.listening);
        assert_eq!(report.calls, [("ibv_alloc_pd".to_owned(), 2), ("ibv_reg_mr".to_owned(), 1)].into());
        assert_eq!(report.left.map(|left| left.len()), Some(1));
        assert_eq!(CallReport::parse("").left, None);
    }
}
