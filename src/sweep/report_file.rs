//! What libpumice.so says about the calls of a run (PUMICE_CALL_REPORT) and its completions
//! (PUMICE_FAULT_REPORT).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// An object that a process left.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Object {
    pub(super) kind: String,
    /// The call that made it, and its ordinal.
    pub(super) call: String,
    pub(super) nth: u64,
}

/// A work request that a rule was about, and that has a completion.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(super) struct Completed {
    /// What it did.
    pub(super) completion: String,
    pub(super) qp: u32,
    pub(super) connection: u32,
    pub(super) message: u64,
}

/// The completions in a report of faults to which this rule applied, in order.
pub(super) fn completed(path: &Path, rule: &str) -> Vec<Completed> {
    #[derive(Deserialize)]
    struct Line {
        rule: String,
        #[serde(flatten)]
        completed: Completed,
    }
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
    let mut all: Vec<Completed> = lines.filter(|line| line.rule == rule).map(|line| line.completed).collect();
    all.sort();
    all
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
