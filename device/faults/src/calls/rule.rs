//! Rules about calls.

use std::collections::HashSet;

use fnv::FnvBuildHasher;
use pumice_calls::{CALLS, Call, CallInfo};
use pumice_ground::ordinal::OrdinalSpan;

use super::errno::errno_text;
use crate::select::check_ordinals;

/// Which calls a rule is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallSelector {
    /// The tag of the process; `*` at its end stands for anything.
    pub tag: Option<String>,
    /// The name of the call; `*` stands for any characters.
    pub call: String,
    /// Ordinals of queue pairs, from here to there: calls on those only, counted for each queue pair.
    pub qp: Option<OrdinalSpan>,
}

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallFault {
    /// It does nothing, and fails.
    Fail {
        /// With this; `None`: the usual one of the call, which is the first of its [`CallInfo::errnos`].
        errno: Option<i32>,
        /// Also with an errno that the call does not give.
        force: bool,
    },
    /// It takes so much longer.
    Delay {
        /// How much.
        ns: u64,
    },
}

/// Something that happens to calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallRule {
    /// Which calls.
    pub selector: CallSelector,
    /// What happens to them.
    pub fault: CallFault,
}

impl CallSelector {
    /// Whether it is about calls of a process with this tag.
    pub(super) fn is_of(&self, tag: &str) -> bool {
        self.tag.as_deref().is_none_or(|wanted| matches(wanted, tag))
    }

    /// Whether it is about calls of this name.
    pub fn is_about(&self, call: &str) -> bool {
        matches(&self.call, call)
    }

    /// The calls that it is about, among those that can fail.
    pub(super) fn calls(&self) -> HashSet<Call, FnvBuildHasher> {
        CALLS.iter().filter(|info| self.is_about(info.name)).filter_map(CallInfo::call).collect()
    }

    /// Whether it is about calls on this queue pair.
    pub(super) fn has_queue_pair(&self, qp: Option<u32>) -> bool {
        self.qp.is_none_or(|span| qp.is_some_and(|qp| span.has(qp)))
    }

    /// Whether it can apply to anything.
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
    /// Whether the rule makes sense.
    ///
    /// # Errors
    /// It can apply to nothing, or no call that it is about fails with its errno; the sentence says what to
    /// write.
    pub fn check(&self) -> Result<(), String> {
        self.selector.check()?;
        self.fault.check(&self.selector)
    }
}

impl CallFault {
    /// Whether it can happen to these calls.
    ///
    /// # Errors
    /// See [`CallRule::check`].
    pub fn check(&self, selector: &CallSelector) -> Result<(), String> {
        if let CallFault::Delay { ns: 0 } = self {
            return Err("a call that takes 0 ns longer is not slow: write a time above 0".to_owned());
        }
        let CallFault::Fail { errno: Some(errno), force: false } = *self else { return Ok(()) };
        for info in CALLS.iter().filter(|info| selector.is_about(info.name)) {
            if !info.errnos().contains(&errno) {
                let others: Vec<String> = info.errnos().iter().map(|one| errno_text(*one)).collect();
                let (name, others) = (info.name, others.join(", "));
                return Err(format!(
                    "{name} does not fail with {}: write one of {others}, or force = true",
                    errno_text(errno)
                ));
            }
        }
        Ok(())
    }

    /// What a call fails with; `None` if it does not fail.
    pub(super) fn errno_of(self, call: Call) -> Option<i32> {
        match self {
            CallFault::Fail { errno: Some(errno), .. } => Some(errno),
            CallFault::Fail { errno: None, .. } => {
                let usual = call.errnos().and_then(|errnos| errnos.all().first().copied());
                Some(usual.unwrap_or(libc::EIO))
            }
            CallFault::Delay { .. } => None,
        }
    }
}

/// Whether a text is like a pattern, in which `*` stands for any characters.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut left) = text.strip_prefix(start) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let end = parts.pop().unwrap_or_default();
    for part in parts {
        let Some((_, after)) = left.split_once(part) else { return false };
        left = after;
    }
    left.ends_with(end)
}

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
        let fail = |errno: i32, force| CallFault::Fail { errno: Some(errno), force };
        let of = |call: &str, fault: CallFault| {
            let selector = selector(call);
            selector.check().and_then(|()| fault.check(&selector))
        };
        assert_eq!(of("ibv_reg_mr", fail(libc::ENOMEM, false)), Ok(()));
        let sentence = of("ibv_fork_init", fail(libc::ENOMEM, false)).unwrap_err();
        assert_eq!(sentence, "ibv_fork_init does not fail with ENOMEM: write one of EINVAL, or force = true");
        assert_eq!(of("ibv_fork_init", fail(libc::ENOMEM, true)), Ok(()));
        assert!(of("ibv_create_*", fail(libc::ECONNREFUSED, false)).is_err());
        let usual = CallFault::Fail { errno: None, force: false };
        assert_eq!(of("*", usual), Ok(()));
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
        let usual = CallFault::Fail { errno: None, force: false };
        assert_eq!(usual.errno_of(Call::ibv_destroy_cq), Some(libc::EBUSY));
        assert_eq!(usual.errno_of(Call::ibv_reg_mr), Some(libc::ENOMEM));
    }
}
