//! The cases of a sweep: which calls to fail, and how.

use std::collections::BTreeMap;

use pumice_device::faults::OrdinalField;
use pumice_device::faults::calls::{CallInfo, CallSelector, errno_text};
use pumice_device::platform::ordinal::Ordinal;
use serde::{Deserialize, Serialize};

use super::options::SweepOptions;
use super::report_file::{CompletedRequest, ConnectionMessage};

/// Name of the rule that a run adds.
pub(super) const RULE: &str = "sweep";

/// The fault of one run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum SweepCase {
    /// A call.
    Call {
        /// Name of the call.
        call: String,
        /// Ordinal of the call among the calls of this name, from 1.
        nth: u64,
        /// Name of the errno that the call returns.
        errno: String,
    },
    /// A completion.
    Completion {
        /// Operation of the work request: send, recv, write …
        completion: String,
        /// Ordinal of the queue pair.
        qp: OrdinalField,
        /// Number of resets of the queue pair before.
        connection: u32,
        /// Ordinal of the work request on its work queue.
        message: u64,
        /// Name of the status.
        status: String,
    },
    /// A step of connection management.
    Step {
        /// Fate of the message: `rejected` or `lost`.
        step: String,
        /// The message of connection management.
        #[serde(flatten)]
        message: ConnectionMessage,
    },
}

/// Fate of a connection request.
const REJECTED: &str = "rejected";
/// Fate of every other message: its sender or its peer sends it again.
const LOST: &str = "lost";

/// Status of failed completions: one that every service and both work queues have.
const STATUS: &str = "general";

impl SweepCase {
    /// Returns the rule that makes the case fail.
    pub(super) fn rule(&self) -> String {
        match self {
            SweepCase::Call { call, nth, errno } => {
                format!("fail name={RULE} call={call} nth={nth} errno={errno}")
            }
            SweepCase::Completion { completion, qp, connection, message, status } => format!(
                "complete name={RULE} status={status} opcode={completion} qp={qp} connection={connection} \
                 message={message}"
            ),
            SweepCase::Step { step, message } => {
                let ConnectionMessage { peer, connection, side, kind } = message;
                let deed = if step == REJECTED { "reject" } else { "drop" };
                let times = if step == REJECTED { "" } else { " times=1" };
                format!(
                    "{deed} name={RULE} service=cm opcode={kind} side={side} connection={connection} \
                     peer={peer}{times}"
                )
            }
        }
    }

    /// Describes what fails in a word or two: "ibv_reg_mr", "recv on qp 0".
    pub(super) fn subject(&self) -> String {
        match self {
            SweepCase::Call { call, .. } => call.clone(),
            SweepCase::Completion { completion, qp, .. } => format!("{completion} on qp {qp}"),
            SweepCase::Step { message: ConnectionMessage { kind, peer, .. }, .. } => {
                format!("{kind} to {peer}")
            }
        }
    }

    /// Returns the ordinal of what fails: calls from 1, work requests and connections from 0.
    pub(super) fn ordinal(&self) -> u64 {
        match self {
            SweepCase::Call { nth, .. } => *nth,
            SweepCase::Completion { message, .. } => *message,
            SweepCase::Step { message, .. } => Ordinal(message.connection.0).parts().1.into(),
        }
    }

    /// Returns the name of the errno, the status or the fate.
    pub(super) fn failure(&self) -> &str {
        match self {
            SweepCase::Call { errno, .. } => errno,
            SweepCase::Completion { status, .. } => status,
            SweepCase::Step { step, .. } => step,
        }
    }

    /// Reports whether the protocol repairs the fault: the program need not report it, but waits for the
    /// protocol's timers.
    pub(super) fn is_made_good(&self) -> bool {
        matches!(self, SweepCase::Step { step, .. } if step == LOST)
    }
}

/// The cases to run, found in the calls of a run without faults.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SweepCases {
    pub(super) all: Vec<SweepCase>,
    /// Number of calls and completions that can fail and are left out, because there are many of their kind.
    pub(super) left_out: u64,
}

/// Checks that each pattern of calls matches a call.
///
/// # Errors
/// A sentence about one that does not.
pub(super) fn check(options: &SweepOptions) -> Result<(), String> {
    options.call.iter().try_for_each(|pattern| {
        selector(pattern).check().map_err(|problem| format!("--call {pattern}: {problem}"))
    })
}

fn selector(pattern: &str) -> CallSelector {
    CallSelector { call: pattern.to_owned(), ..CallSelector::default() }
}

impl SweepCases {
    /// Returns the cases of a census, which has the number of calls of each name.
    pub(super) fn of(census: &BTreeMap<String, u64>, options: &SweepOptions) -> SweepCases {
        let mut cases = SweepCases { all: Vec::new(), left_out: 0 };
        let selectors: Vec<CallSelector> = options.call.iter().map(|pattern| selector(pattern)).collect();
        for (call, count) in census {
            let Some(info) = CallInfo::of(call) else { continue };
            if !selectors.is_empty() && !selectors.iter().any(|selector| selector.is_about(call)) {
                continue;
            }
            let most = if options.most == 0 { *count } else { options.most.min(*count) };
            cases.left_out += count - most;
            let errnos =
                if options.all_errnos { info.errnos() } else { info.errnos().get(..1).unwrap_or_default() };
            for nth in 1..=most {
                for errno in errnos {
                    cases.all.push(SweepCase::Call { call: call.clone(), nth, errno: errno_text(*errno) });
                }
            }
        }
        cases
    }

    /// Adds the completions of a run without faults: the first ones of each queue pair and kind.
    pub(super) fn add(&mut self, completed: &[CompletedRequest], options: &SweepOptions) {
        let mut seen = BTreeMap::<(u32, u32, &str), u64>::new();
        for CompletedRequest { completion, qp, connection, message } in completed {
            let count = seen.entry((qp.0, *connection, completion)).or_default();
            *count += 1;
            if options.most != 0 && *count > options.most {
                self.left_out += 1;
                continue;
            }
            self.all.push(SweepCase::Completion {
                completion: completion.clone(),
                qp: *qp,
                connection: *connection,
                message: *message,
                status: STATUS.to_owned(),
            });
        }
    }

    /// Adds the steps of connection management of a run without faults: the first ones of each peer and kind.
    pub(super) fn add_steps(&mut self, messages: &[ConnectionMessage], options: &SweepOptions) {
        let mut seen = BTreeMap::<(&str, &str), u64>::new();
        for message in messages {
            let count = seen.entry((&message.peer, &message.kind)).or_default();
            *count += 1;
            if options.most != 0 && *count > options.most {
                self.left_out += 1;
                continue;
            }
            let step = if message.kind == "req" { REJECTED } else { LOST };
            self.all.push(SweepCase::Step { step: step.to_owned(), message: message.clone() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        options: SweepOptions,
    }

    fn cases(arguments: &[&str]) -> SweepCases {
        let line = CommandLine::parse_from(["sweep"].iter().chain(arguments).chain(&["--", "true"]));
        let census =
            [("ibv_fork_init", 1), ("ibv_post_send", 25), ("ibv_qp_to_qp_ex", 3), ("rdma_notify", 1)];
        SweepCases::of(&census.map(|(call, count)| (call.to_owned(), count)).into(), &line.options)
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
        let completed = |qp, message| CompletedRequest {
            completion: "recv".to_owned(),
            qp: OrdinalField(qp),
            connection: 0,
            message,
        };
        let line = CommandLine::parse_from(["sweep", "--completions", "--most", "2", "--", "true"]);
        let mut cases = SweepCases { all: Vec::new(), left_out: 0 };
        cases.add(&[completed(0, 0), completed(0, 1), completed(0, 2), completed(1, 0)], &line.options);
        assert_eq!((cases.all.len(), cases.left_out), (3, 1));
        let rule = "complete name=sweep status=general opcode=recv qp=1 connection=0 message=0";
        assert_eq!(cases.all[2].rule(), rule);
        let written = serde_json::to_string(&cases.all[2]).expect("it is a value of JSON");
        assert_eq!(serde_json::from_str::<SweepCase>(&written).expect("it was written so"), cases.all[2]);
    }

    #[test]
    fn a_request_is_rejected_and_other_messages_are_lost_once() {
        let message = |kind: &str, connection| ConnectionMessage {
            peer: "127.0.0.1".to_owned(),
            connection: OrdinalField(connection),
            side: "requester".to_owned(),
            kind: kind.to_owned(),
        };
        let line = CommandLine::parse_from(["sweep", "--cm", "--most", "1", "--", "true"]);
        let mut cases = SweepCases { all: Vec::new(), left_out: 0 };
        cases.add_steps(&[message("req", 0), message("rtu", 0), message("req", 1)], &line.options);
        assert_eq!((cases.all.len(), cases.left_out), (2, 1));
        let about = "side=requester connection=0 peer=127.0.0.1";
        assert_eq!(cases.all[0].rule(), format!("reject name=sweep service=cm opcode=req {about}"));
        assert_eq!(cases.all[1].rule(), format!("drop name=sweep service=cm opcode=rtu {about} times=1"));
        assert!(!cases.all[0].is_made_good() && cases.all[1].is_made_good());
        let written = serde_json::to_string(&cases.all[1]).expect("it is a value of JSON");
        assert_eq!(serde_json::from_str::<SweepCase>(&written).expect("it was written so"), cases.all[1]);
    }
}
