//! Calls that fail or take longer because a fault plan says so.
//!
//! A call is named by its name and its ordinal: the n-th call of that name in this process. **Invariant**: no
//! rule depends on a time or a thread. Threads that make calls of one name race for its ordinals; ordinals on
//! one object do not have that race.
//!
//! Rules about calls.

use std::collections::HashSet;

use fnv::FnvBuildHasher;
use pumice_calls::Call;
use pumice_model::fates::trigger::matches;
use pumice_platform::ordinal::OrdinalSpan;
use pumice_transport::types::QpState;

use crate::select::check_ordinals;

/// Selects the calls that a rule is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallSelector {
    /// The tag of the process; `*` at its end stands for anything.
    pub tag: Option<String>,
    /// The name of the call; `*` stands for any characters.
    pub call: String,
    /// Ordinals of queue pairs: only calls on these, counted for each queue pair.
    pub qp: Option<OrdinalSpan>,
    /// The target state of `ibv_modify_qp`: only calls that move a queue pair to it.
    pub to: Option<QpState>,
}

/// The fault of a rule about calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallFault {
    /// The call is not carried out, and fails.
    Fail {
        /// The errno; `None`: the usual one of the call, which is the first of its [`CallInfo::errnos`].
        errno: Option<i32>,
    },
    /// The call takes longer.
    Delay {
        /// The additional time, in ns.
        ns: u64,
    },
}

/// A rule about calls: which ones, and what happens to them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallRule {
    /// The calls that the rule is about.
    pub selector: CallSelector,
    /// The fault of these calls.
    pub fault: CallFault,
}

impl CallSelector {
    /// Reports whether the selector is about calls of a process with this tag.
    fn is_of(&self, tag: &str) -> bool {
        self.tag.as_deref().is_none_or(|wanted| matches(wanted, tag))
    }

    /// Reports whether the selector is about calls of this name.
    pub fn is_about(&self, call: &str) -> bool {
        matches(&self.call, call)
    }

    /// Returns the calls that the selector is about, among those that can fail.
    fn calls(&self) -> HashSet<Call, FnvBuildHasher> {
        CALLS.iter().filter(|info| self.is_about(info.name)).filter_map(CallInfo::call).collect()
    }

    /// Reports whether the selector is about calls on this queue pair.
    fn has_queue_pair(&self, qp: Option<u32>) -> bool {
        self.qp.is_none_or(|span| qp.is_some_and(|qp| span.has(qp)))
    }

    /// Reports whether the selector is about calls that move a queue pair to this state.
    fn has_target(&self, to: Option<QpState>) -> bool {
        self.to.is_none_or(|wanted| to == Some(wanted))
    }

    /// Checks that the selector can match a call.
    ///
    /// # Errors
    /// No call has such a name, or none of them is on a queue pair; the sentence says what to write.
    pub fn check(&self) -> Result<(), String> {
        let met: Vec<&CallInfo> = CALLS.iter().filter(|info| self.is_about(info.name)).collect();
        if met.is_empty() {
            let asked = self.call.trim_matches('*');
            let names = CALLS.iter().map(|info| info.name);
            let like = names.filter(|name| name.contains(asked)).min_by_key(|name| name.len());
            let hint = like.map_or_else(String::new, |name| format!("; is {name} meant?"));
            return Err(format!("no call that can fail is named {}{hint}", self.call));
        }
        if self.to.is_some() && !met.iter().any(|info| info.call() == Some(Call::ibv_modify_qp)) {
            return Err(format!("{} brings no queue pair to a state: leave out to", self.call));
        }
        match self.qp {
            Some(span) if span.last < span.first => check_ordinals("qp", self.qp),
            Some(_) if !met.iter().any(|info| info.call().is_some_and(Call::is_on_queue_pair)) => {
                Err(format!("{} is not a call on a queue pair: leave out qp", self.call))
            }
            _ => Ok(()),
        }
    }
}

impl CallRule {
    /// Checks that the rule can apply to a call.
    ///
    /// # Errors
    /// The rule can apply to nothing; the sentence says what to write.
    pub fn check(&self) -> Result<(), String> {
        self.selector.check()?;
        self.fault.check()
    }
}

impl CallFault {
    /// Checks that the fault can happen to a call.
    ///
    /// # Errors
    /// See [`CallRule::check`].
    pub fn check(&self) -> Result<(), String> {
        if let CallFault::Delay { ns: 0 } = self {
            return Err("a call that takes 0 ns longer is not slow: write a time above 0".to_owned());
        }
        Ok(())
    }

    /// Returns the errno with which a call fails; `None` if it does not fail.
    fn errno_of(self, call: Call) -> Option<i32> {
        match self {
            CallFault::Fail { errno: Some(errno) } => Some(errno),
            CallFault::Fail { errno: None } => {
                let usual = call.errnos().and_then(|errnos| errnos.all().first().copied());
                Some(usual.unwrap_or(libc::EIO))
            }
            CallFault::Delay { .. } => None,
        }
    }
}

mod decide;

pub use decide::{CallFaults, CallRules};
pub use pumice_calls::{CALLS, CallInfo, Errnos};
pub use pumice_model::fates::fired::{CallFired, errno_from, errno_name, errno_text};
pub(super) use pumice_model::fates::trigger::matches as matches_tag;
pub use pumice_model::fates::{CallFate, CallKey};

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(call: &str) -> CallSelector {
        CallSelector { call: call.to_owned(), ..CallSelector::default() }
    }

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, text, is_like) in [
            ("ibv_reg_mr", "ibv_reg_mr", true),
            ("ibv_reg_mr", "ibv_reg_mr_iova", false),
            ("ibv_reg_mr*", "ibv_reg_mr_iova2", true),
            ("*", "rdma_listen", true),
            ("*_qp*", "ibv_create_qp_ex", true),
            ("ibv_*_qp", "ibv_create_qp_ex", false),
            ("ibv_*_qp", "ibv_qp", false),
            ("a*a", "a", false),
            ("**", "", true),
        ] {
            assert_eq!(matches(pattern, text), is_like, "{pattern} {text}");
        }
    }

    #[test]
    fn what_cannot_happen_is_refused_with_a_remedy() {
        let of = |call: &str, fault: CallFault| {
            let rule = CallRule { selector: selector(call), fault };
            rule.check()
        };
        // Drivers and firmware give errnos that no manual page has: EREMOTEIO, ENOTSUPP.
        for errno in [libc::ENOMEM, 121, 524] {
            assert_eq!(of("ibv_fork_init", CallFault::Fail { errno: Some(errno) }), Ok(()));
        }
        let usual = CallFault::Fail { errno: None };
        assert_eq!(of("*", usual), Ok(()));
        let towards = |call| CallSelector { to: Some(QpState::Rtr), ..selector(call) }.check();
        assert_eq!((towards("ibv_modify_qp"), towards("ibv_*")), (Ok(()), Ok(())));
        assert!(towards("ibv_reg_mr").unwrap_err().contains("leave out to"));
        let sentence = of("reg_mr", usual).unwrap_err();
        assert_eq!(sentence, "no call that can fail is named reg_mr; is ibv_reg_mr meant?");
        assert!(of("ibv_wc_status_str", usual).is_err());
        let on = |call: &str, qp| CallSelector { qp, ..selector(call) }.check();
        assert_eq!(on("ibv_post_*", "0..3".parse().ok()), Ok(()));
        assert!(on("ibv_reg_mr", Some(OrdinalSpan::one(0))).unwrap_err().contains("leave out qp"));
        assert!(on("ibv_post_send", "1..0".parse().ok()).unwrap_err().contains("smaller number first"));
    }

    #[test]
    fn the_usual_errno_is_that_of_the_call() {
        let usual = CallFault::Fail { errno: None };
        assert_eq!(usual.errno_of(Call::ibv_destroy_cq), Some(libc::EBUSY));
        assert_eq!(usual.errno_of(Call::ibv_reg_mr), Some(libc::ENOMEM));
    }
}
