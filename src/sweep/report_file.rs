//! The reports of libpumice.so on the calls of a run (PUMICE_CALL_REPORT) and its completions
//! (PUMICE_FAULT_REPORT).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use pumice_device::faults::{NthField, OrdinalField};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// An object that a process left.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct LeftObject {
    pub(super) kind: String,
    /// Name of the call that made it.
    pub(super) call: String,
    pub(super) nth: NthField,
}

/// A work request to which a rule applied, and that has a completion.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(super) struct CompletedRequest {
    /// Operation of the work request.
    pub(super) completion: String,
    pub(super) qp: OrdinalField,
    pub(super) connection: u32,
    pub(super) message: u64,
}

/// The first transmission of a message of connection management to which a rule applied.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct ConnectionMessage {
    /// Receiver of the message.
    pub(super) peer: String,
    /// Number of connections with this peer that this side began before.
    pub(super) connection: OrdinalField,
    /// `requester` if this process requested the connection; `responder` if its peer did.
    pub(super) side: String,
    /// Kind of message: `req`, `rep`, `rtu` …
    #[serde(rename = "opcode")]
    pub(super) kind: String,
}

/// A report of faults, by the rule that applied.
pub(super) struct FaultReportFile(String);

impl FaultReportFile {
    /// Reads the report in a file; it is empty if there is none.
    pub(super) fn read(path: &Path) -> FaultReportFile {
        FaultReportFile(fs::read_to_string(path).unwrap_or_default())
    }

    /// Reports whether this rule applied to something.
    pub(super) fn has(&self, rule: &str) -> bool {
        self.lines::<serde::de::IgnoredAny>(rule).next().is_some()
    }

    /// Returns the completions to which this rule applied, in order.
    pub(super) fn completed(&self, rule: &str) -> Vec<CompletedRequest> {
        let mut all: Vec<CompletedRequest> = self.lines(rule).collect();
        all.sort();
        all
    }

    /// Returns the messages of connection management to which this rule applied, in the order of sending,
    /// without retransmissions.
    pub(super) fn messages(&self, rule: &str) -> Vec<ConnectionMessage> {
        let mut all: Vec<ConnectionMessage> = Vec::new();
        for message in self.lines(rule) {
            if !all.contains(&message) {
                all.push(message);
            }
        }
        all
    }

    /// Returns the parsed lines of a rule. A line that was cut off, or that has another form, is left out.
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
    Ended { calls: BTreeMap<String, u64>, left: Option<Vec<LeftObject>> },
}

/// The report of a run, of all its processes together.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CallReport {
    /// A rule applied.
    pub(super) fired: bool,
    /// A process listens for connections.
    pub(super) listening: bool,
    /// Number of calls by name: of several processes, the largest one.
    pub(super) calls: BTreeMap<String, u64>,
    /// Objects that were left; `None` if no process ended normally.
    pub(super) left: Option<Vec<LeftObject>>,
}

impl CallReport {
    /// Reads the report in a file; it is empty if there is none. A line that was cut off is left out.
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
        let report = FaultReportFile(
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
