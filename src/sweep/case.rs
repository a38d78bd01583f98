//! Which calls to fail, and with what.

use std::collections::BTreeMap;

use pumice_device::faults::calls::{CallInfo, CallSelector, errno_text};
use serde::{Deserialize, Serialize};

use super::options::SweepOptions;
use super::report_file::Completed;

/// The rule of a run.
pub(super) const RULE: &str = "sweep";

/// What a run fails.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Case {
    /// A call.
    Call {
        /// Its name.
        call: String,
        /// Its ordinal among the calls of this name, from 1.
        nth: u64,
        /// What it fails with, by name.
        errno: String,
    },
    /// A completion.
    Completion {
        /// What the work request did: send, recv, write …
        completion: String,
        /// Ordinal of the queue pair.
        qp: u32,
        /// How often the queue pair was reset before.
        connection: u32,
        /// Ordinal of the work request on its work queue.
        message: u64,
        /// What it ends with, by name.
        status: String,
    },
}

/// What completions end with: a status that every service and both work queues have.
const STATUS: &str = "general";

impl Case {
    /// The rule that fails it.
    pub(super) fn rule(&self) -> String {
        match self {
            Case::Call { call, nth, errno } => {
                format!("fail name={RULE} call={call} nth={nth} errno={errno}")
            }
            Case::Completion { completion, qp, connection, message, status } => format!(
                "complete name={RULE} status={status} opcode={completion} qp={qp} connection={connection} \
                 message={message}"
            ),
        }
    }

    /// What fails, in a word or two: "ibv_reg_mr", "recv on qp 0".
    pub(super) fn subject(&self) -> String {
        match self {
            Case::Call { call, .. } => call.clone(),
            Case::Completion { completion, qp, .. } => format!("{completion} on qp {qp}"),
        }
    }

    /// Which one of these: calls from 1, work requests from 0.
    pub(super) fn ordinal(&self) -> u64 {
        match self {
            Case::Call { nth, .. } => *nth,
            Case::Completion { message, .. } => *message,
        }
    }

    /// What it fails with, by name.
    pub(super) fn failure(&self) -> &str {
        match self {
            Case::Call { errno, .. } => errno,
            Case::Completion { status, .. } => status,
        }
    }
}

/// The calls of a run without faults, and what of them is to be failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cases {
    pub(super) all: Vec<Case>,
    /// Calls and completions that can fail and are not failed, because there are many of their kind.
    pub(super) left_out: u64,
}

/// Whether the patterns of calls are met by any.
///
/// # Errors
/// A sentence about one that is not.
pub(super) fn check(options: &SweepOptions) -> Result<(), String> {
    options.call.iter().try_for_each(|pattern| {
        selector(pattern).check().map_err(|problem| format!("--call {pattern}: {problem}"))
    })
}

fn selector(pattern: &str) -> CallSelector {
    CallSelector { call: pattern.to_owned(), ..CallSelector::default() }
}

impl Cases {
    /// Those of a census: how many calls of each name were made.
    pub(super) fn of(census: &BTreeMap<String, u64>, options: &SweepOptions) -> Cases {
        let mut cases = Cases { all: Vec::new(), left_out: 0 };
        let asked: Vec<CallSelector> = options.call.iter().map(|pattern| selector(pattern)).collect();
        for (call, count) in census {
            let Some(info) = CallInfo::of(call) else { continue };
            if !asked.is_empty() && !asked.iter().any(|selector| selector.is_about(call)) {
                continue;
            }
            let most = if options.most == 0 { *count } else { options.most.min(*count) };
            cases.left_out += count - most;
            let errnos =
                if options.all_errnos { info.errnos() } else { info.errnos().get(..1).unwrap_or_default() };
            for nth in 1..=most {
                for errno in errnos {
                    cases.all.push(Case::Call { call: call.clone(), nth, errno: errno_text(*errno) });
                }
            }
        }
        cases
    }

    /// Adds the completions of a run in which none failed, of each queue pair and kind the first ones.
    pub(super) fn add(&mut self, completed: &[Completed], options: &SweepOptions) {
        let mut seen = BTreeMap::<(u32, u32, &str), u64>::new();
        for Completed { completion, qp, connection, message } in completed {
            let count = seen.entry((*qp, *connection, completion)).or_default();
            *count += 1;
            if options.most != 0 && *count > options.most {
                self.left_out += 1;
                continue;
            }
            self.all.push(Case::Completion {
                completion: completion.clone(),
                qp: *qp,
                connection: *connection,
                message: *message,
                status: STATUS.to_owned(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: SweepOptions,
    }

    fn cases(arguments: &[&str]) -> Cases {
        let line = Line::parse_from(["sweep"].iter().chain(arguments).chain(&["--", "true"]));
        let census =
            [("ibv_fork_init", 1), ("ibv_post_send", 25), ("ibv_qp_to_qp_ex", 3), ("rdma_notify", 1)];
        Cases::of(&census.map(|(call, count)| (call.to_owned(), count)).into(), &line.options)
    }

    #[test]
    fn every_call_that_can_fail_is_a_case_up_to_a_limit() {
        let usual = cases(&[]);
        assert_eq!((usual.all.len(), usual.left_out), (1 + 10 + 1, 15));
        assert_eq!(usual.all[0].rule(), "fail name=sweep call=ibv_fork_init nth=1 errno=EINVAL");
        assert_eq!(cases(&["--most", "0"]).all.len(), 27);
        assert_eq!(cases(&["--most", "1", "--all-errnos"]).all.len(), 1 + 3 + 4);
        assert_eq!(cases(&["--call", "ibv_*", "--call", "rdma_listen", "--most", "2"]).all.len(), 3);
    }

    #[test]
    fn completions_are_cases_up_to_a_limit_for_each_queue_pair() {
        let completed = |qp, message| Completed { completion: "recv".to_owned(), qp, connection: 0, message };
        let line = Line::parse_from(["sweep", "--completions", "--most", "2", "--", "true"]);
        let mut cases = Cases { all: Vec::new(), left_out: 0 };
        cases.add(&[completed(0, 0), completed(0, 1), completed(0, 2), completed(1, 0)], &line.options);
        assert_eq!((cases.all.len(), cases.left_out), (3, 1));
        let rule = "complete name=sweep status=general opcode=recv qp=1 connection=0 message=0";
        assert_eq!(cases.all[2].rule(), rule);
        let written = serde_json::to_string(&cases.all[2]).expect("it is a value of JSON");
        assert_eq!(serde_json::from_str::<Case>(&written).expect("it was written so"), cases.all[2]);
    }
}
