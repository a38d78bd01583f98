//! Which calls to fail, and with what.

use std::collections::BTreeMap;

use pumice_device::faults::calls::{CallInfo, CallSelector, errno_text};
use serde::{Deserialize, Serialize};

use super::options::SweepOptions;

/// A call that a run fails.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Case {
    /// Its name.
    pub(super) call: String,
    /// Its ordinal among the calls of this name, from 1.
    pub(super) nth: u64,
    /// What it fails with, by name.
    pub(super) errno: String,
}

impl Case {
    /// The rule that fails it.
    pub(super) fn rule(&self) -> String {
        let Case { call, nth, errno } = self;
        format!("fail name=sweep call={call} nth={nth} errno={errno}")
    }
}

/// The calls of a run without faults, and what of them is to be failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cases {
    pub(super) all: Vec<Case>,
    /// Calls that can fail and are not failed, because there are many of their name.
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
                    cases.all.push(Case { call: call.clone(), nth, errno: errno_text(*errno) });
                }
            }
        }
        cases
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
}
