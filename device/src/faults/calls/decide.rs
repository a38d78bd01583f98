//! Rules about calls at work: asked about each call, they say what happens to it.

use std::collections::BTreeMap;

use super::rule::{CallFault, CallRule};
use super::table::CallInfo;

/// Queue pairs for which a rule counts at a time.
const MAX_QUEUE_PAIRS: usize = 1 << 16;

/// Which call of a process it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallKey<'a> {
    /// Its name.
    pub call: &'a str,
    /// Its ordinal among the calls of this name in this process, from 1.
    pub ordinal: u64,
    /// The ordinal of its queue pair, from 0, if it is a call on one.
    pub qp: Option<u32>,
}

/// What happens to a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallFate {
    /// It does nothing, and fails with this.
    pub errno: Option<i32>,
    /// It takes so much longer.
    pub delay_ns: u64,
}

impl CallFate {
    /// Whether nothing happens.
    pub fn is_ordinary(&self) -> bool {
        *self == CallFate::default()
    }
}

/// A rule applied to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallFired<'a> {
    /// The name of the rule.
    pub rule: &'a str,
    /// The call.
    pub key: CallKey<'a>,
    /// What happens to it by this rule.
    pub fate: CallFate,
}

/// A rule that concerns this process.
#[derive(Debug)]
struct Armed {
    rule: CallRule,
    /// Calls that it was about; if it is about queue pairs, for each of them.
    matched: BTreeMap<Option<u32>, u64>,
    applied: u64,
}

/// Rules about calls at work.
#[derive(Debug, Default)]
pub struct CallFaults {
    rules: Vec<Armed>,
}

impl CallFaults {
    /// Those rules that concern a process of this tag; `None` if none does.
    pub fn new(rules: &[CallRule], tag: &str) -> Option<CallFaults> {
        let rules: Vec<Armed> = rules
            .iter()
            .filter(|rule| rule.selector.is_of(tag))
            .map(|rule| Armed { rule: rule.clone(), matched: BTreeMap::new(), applied: 0 })
            .collect();
        (!rules.is_empty()).then_some(CallFaults { rules })
    }

    /// Whether any rule asks for the queue pair of a call.
    pub fn need_queue_pairs(&self) -> bool {
        self.rules.iter().any(|armed| armed.rule.selector.qp.is_some())
    }

    /// What happens to a call, which is counted; `witness` is told of each rule that applies. The first rule
    /// that gives an errno wins; delays add up.
    pub fn decide(&mut self, key: &CallKey<'_>, witness: &mut dyn FnMut(&CallFired<'_>)) -> CallFate {
        let mut fate = CallFate::default();
        for armed in &mut self.rules {
            let Some(place) = armed.place_of(key) else { continue };
            if armed.matched.len() >= MAX_QUEUE_PAIRS && !armed.matched.contains_key(&place) {
                continue;
            }
            let matched = armed.matched.entry(place).or_default();
            *matched = matched.saturating_add(1);
            let rule = &armed.rule;
            if !rule.steps.has(*matched) || rule.times.is_some_and(|times| armed.applied >= times) {
                continue;
            }
            armed.applied = armed.applied.saturating_add(1);
            let more = match rule.fault {
                CallFault::Delay { ns } => CallFate { errno: None, delay_ns: ns },
                CallFault::Fail { .. } => CallFate { errno: rule.fault.errno_of(key.call), delay_ns: 0 },
            };
            fate.errno = fate.errno.or(more.errno);
            fate.delay_ns = fate.delay_ns.saturating_add(more.delay_ns);
            witness(&CallFired { rule: &rule.name, key: *key, fate: more });
        }
        fate
    }

    /// A call to which nothing happened turns out not to count: it found nothing, and how often a program
    /// looks depends on time.
    pub fn take_back(&mut self, key: &CallKey<'_>) {
        for armed in &mut self.rules {
            let Some(place) = armed.place_of(key) else { continue };
            if let Some(matched) = armed.matched.get_mut(&place) {
                *matched = matched.saturating_sub(1);
            }
        }
    }

    /// The names of rules that never applied.
    pub fn unfired(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().filter(|armed| armed.applied == 0).map(|armed| armed.rule.name.as_str())
    }
}

impl Armed {
    /// Where a rule counts a call; `None` if it is not about it.
    fn place_of(&self, key: &CallKey<'_>) -> Option<Option<u32>> {
        let selector = &self.rule.selector;
        // A call that cannot fail is none of theirs.
        let is_about = selector.is_about(key.call)
            && selector.has_queue_pair(key.qp)
            && CallInfo::of(key.call).is_some();
        is_about.then(|| key.qp.filter(|_| selector.qp.is_some()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(lines: &[&str]) -> CallFaults {
        let rules: Vec<CallRule> =
            lines.iter().enumerate().map(|(index, line)| CallRule::parse(line, index).unwrap()).collect();
        CallFaults::new(&rules, "server").unwrap()
    }

    /// The ordinals of the calls that fail, of ten.
    fn failing(faults: &mut CallFaults, call: &str, qp: Option<u32>) -> Vec<u64> {
        (1..=10)
            .filter(|ordinal| {
                let key = CallKey { call, ordinal: *ordinal, qp };
                faults.decide(&key, &mut |_| {}).errno.is_some()
            })
            .collect()
    }

    #[test]
    fn calls_are_met_by_name_and_ordinal() {
        let third = "call=ibv_reg_mr nth=3 errno=ENOMEM";
        assert_eq!(failing(&mut faults(&[third]), "ibv_reg_mr", None), [3]);
        assert!(failing(&mut faults(&[third]), "ibv_alloc_pd", None).is_empty());
        assert_eq!(failing(&mut faults(&["call=ibv_reg_mr* every=4"]), "ibv_reg_mr_iova", None), [4, 8]);
        assert_eq!(failing(&mut faults(&["call=* on=2..9+3 times=2"]), "ibv_alloc_pd", None), [2, 5]);
    }

    #[test]
    fn a_pattern_counts_all_calls_that_it_is_about() {
        let mut faults = faults(&["call=* nth=3"]);
        let mut ask = |call| faults.decide(&CallKey { call, ordinal: 1, qp: None }, &mut |_| {}).errno;
        assert_eq!([ask("ibv_get_device_list"), ask("ibv_open_device")], [None, None]);
        assert_eq!(ask("ibv_destroy_cq"), Some(libc::EBUSY));
        assert_eq!(ask("ibv_destroy_cq"), None);
    }

    #[test]
    fn queue_pairs_are_counted_apart() {
        let mut faults = faults(&["call=ibv_post_send qp=1..2 nth=2"]);
        assert!(failing(&mut faults, "ibv_post_send", Some(0)).is_empty());
        assert!(failing(&mut faults, "ibv_post_send", None).is_empty());
        assert_eq!(failing(&mut faults, "ibv_post_send", Some(1)), [2]);
        assert_eq!(failing(&mut faults, "ibv_post_send", Some(2)), [2]);
    }

    #[test]
    fn what_is_taken_back_does_not_count() {
        let mut faults = faults(&["call=ibv_poll_cq nth=2"]);
        let key = CallKey { call: "ibv_poll_cq", ordinal: 1, qp: None };
        for _ in 0..5 {
            assert!(faults.decide(&key, &mut |_| {}).is_ordinary());
            faults.take_back(&key);
        }
        assert!(faults.decide(&key, &mut |_| {}).is_ordinary());
        assert_eq!(faults.decide(&key, &mut |_| {}).errno, Some(libc::EIO));
    }

    #[test]
    fn rules_add_up_and_are_told_one_by_one() {
        let mut faults = faults(&[
            "name=slow call=ibv_reg_mr delay=5ms",
            "name=slower call=ibv_* delay=1us",
            "call=ibv_reg_mr errno=EINVAL",
            "call=ibv_reg_mr errno=ENOMEM",
            "name=other call=rdma_listen",
            "call=ibv_reg_mr tag=client",
        ]);
        let mut told = Vec::new();
        let key = CallKey { call: "ibv_reg_mr", ordinal: 1, qp: None };
        let fate = faults.decide(&key, &mut |fired| told.push(fired.rule.to_owned()));
        assert_eq!(fate, CallFate { errno: Some(libc::EINVAL), delay_ns: 5_001_000 });
        assert_eq!(told, ["slow", "slower", "rule 3", "rule 4"]);
        assert_eq!(faults.unfired().collect::<Vec<_>>(), ["other"]);
    }
}
