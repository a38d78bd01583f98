//! The rules about calls in one process: asked about each call, they decide what happens to it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use fnv::FnvBuildHasher;
use pumice_calls::Call;

use super::{CallFault, CallRule};
use crate::armed::{ArmedRule, FROM_REPORT, RuleControl, RuleOrigin, RuleSubject, RuleTally, Rules};
use crate::plan::{FaultPlan, Rule, What};
use crate::waits::Triggers;
use pumice_model::fates::fired::CallFired;
use pumice_model::fates::trigger::Occurrence;
use pumice_model::fates::{CallFate, CallKey};

/// Most queue pairs for which one rule counts at the same time.
const MAX_QUEUE_PAIRS: usize = 1 << 16;

/// The calls that a rule of this process is about.
#[derive(Debug)]
enum CallAim {
    Calls {
        rule: CallRule,
        /// The calls that match the rule's pattern and can fail.
        calls: HashSet<Call, FnvBuildHasher>,
        /// The counts of the rule: for each queue pair if it is about queue pairs, else under `None`.
        counts: BTreeMap<Option<u32>, RuleTally>,
    },
    /// Calls and their ordinals, with their queue pair if the rule was about queue pairs.
    Recorded(HashMap<(Call, u64), (Option<u32>, CallFate), FnvBuildHasher>),
}

/// The rules of a plan about calls, in one process.
#[derive(Debug)]
pub struct CallFaults {
    seed: u64,
    tag: String,
    rules: Rules<CallAim>,
    triggers: Arc<Triggers>,
}

/// The holder of the rules about the calls of a process.
pub trait CallRules: Send + Sync {
    /// Changes the rules, and then determines anew which calls have to be asked about.
    fn change(&self, change: &mut dyn FnMut(&mut CallFaults));
}

impl CallFaults {
    /// Returns the rules about calls that concern a process with this tag. `triggers` are those of the plan
    /// in this process.
    pub fn new(plan: &FaultPlan, tag: &str, triggers: &Arc<Triggers>) -> CallFaults {
        let rules = Rules::of_plan(plan, triggers, |rule| CallAim::new(rule, tag));
        CallFaults { seed: plan.seed(), tag: tag.to_owned(), rules, triggers: Arc::clone(triggers) }
    }

    /// Adds a rule while the program runs, if it concerns this process. Returns whether it does.
    pub(crate) fn arm(&mut self, rule: &Rule, origin: RuleOrigin<'_>) -> bool {
        let Some(subject) = CallAim::new(rule, &self.tag) else { return false };
        self.rules.push(rule, subject, origin, &self.triggers);
        true
    }

    /// Returns the rules, for operations that are the same for every kind.
    pub fn roster(&mut self) -> &mut dyn RuleControl {
        &mut self.rules
    }

    /// Reports whether there are rules: without them no call has to be asked about.
    pub fn is_active(&self) -> bool {
        !self.rules.is_empty()
    }

    /// Returns the seed of the plan.
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the tag of this process.
    pub fn tag(&self) -> &str {
        &self.tag
    }

    /// Returns the names of the rules.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.rules.names()
    }

    /// Returns the names of the rules that existed when the program began.
    pub fn first_names(&self) -> impl Iterator<Item = &str> {
        self.rules.first_names()
    }

    /// Reports whether any rule depends on the queue pair of a call, or on the state that the call moves it
    /// to.
    pub fn need_queue_pairs(&self) -> bool {
        self.rules.all().any(|armed| match &armed.subject {
            CallAim::Calls { rule, .. } => rule.selector.qp.is_some() || rule.selector.to.is_some(),
            CallAim::Recorded(calls) => calls.values().any(|(qp, _)| qp.is_some()),
        })
    }

    /// Counts a call and decides what happens to it; `witness` is called with each rule that applies. The
    /// first rule that gives an errno wins; delays add up.
    pub fn decide(&mut self, key: &CallKey<'_>, witness: &mut dyn FnMut(&CallFired<'_>)) -> CallFate {
        let mut fate = CallFate::default();
        let Some(call) = Call::of(key.call) else { return fate };
        for armed in self.rules.active_mut() {
            let Some(more) = ask(armed, call, key, self.seed, &self.tag) else { continue };
            armed.apply();
            fate.errno = fate.errno.or(more.errno);
            fate.delay_ns = fate.delay_ns.saturating_add(more.delay_ns);
            self.triggers.note(Occurrence::Rule(&armed.name));
            witness(&CallFired { rule: &armed.name, tag: &self.tag, key: *key, fate: more });
        }
        fate
    }

    /// Takes back the count of a call to which nothing happened and that found nothing: how often a program
    /// polls depends on time.
    pub fn take_back(&mut self, key: &CallKey<'_>) {
        let Some(call) = Call::of(key.call) else { return };
        for armed in self.rules.active_mut() {
            let CallAim::Calls { rule, calls, counts } = &mut armed.subject else { continue };
            if !calls.contains(&call) {
                continue;
            }
            let count = count_key(rule, key).and_then(|of_qp| counts.get_mut(&of_qp));
            if let Some(count) = count.filter(|count| count.matched > 0) {
                count.matched -= 1;
                armed.uncount_match();
            }
        }
    }

    /// Returns the names of rules that never applied.
    pub fn unfired(&self) -> impl Iterator<Item = &str> {
        self.rules.unfired()
    }
}

impl CallAim {
    fn new(rule: &Rule, tag: &str) -> Option<CallAim> {
        match &rule.what {
            What::Call(call) => call.selector.is_of(tag).then(|| {
                let (rule, calls) = ((**call).clone(), call.selector.calls());
                CallAim::Calls { rule, calls, counts: BTreeMap::new() }
            }),
            What::Recorded(recording) => {
                // Incidents of the device are applied by the device.
                let own = recording.calls.iter().filter(|one| one.tag == tag && one.fate.incident.is_none());
                // A recorded name that is no call of the table never matches.
                let own = own.filter_map(|one| Some(((Call::of(&one.call)?, one.nth), (one.qp, one.fate))));
                let own: HashMap<_, _, _> = own.collect();
                (!own.is_empty()).then_some(CallAim::Recorded(own))
            }
            _ => None,
        }
    }
}

impl RuleSubject for CallAim {
    fn kind(&self) -> &'static str {
        match self {
            CallAim::Calls { rule, .. } if matches!(rule.fault, CallFault::Delay { .. }) => "slow",
            CallAim::Calls { .. } => "fail",
            CallAim::Recorded(_) => FROM_REPORT,
        }
    }
}

/// Decides whether a rule applies to a call, and what it does.
fn ask(
    armed: &mut ArmedRule<CallAim>,
    call: Call,
    key: &CallKey<'_>,
    seed: u64,
    tag: &str,
) -> Option<CallFate> {
    let has_begun = armed.has_begun();
    let (of_qp, mut count) = match &armed.subject {
        CallAim::Recorded(calls) => {
            return calls.get(&(call, key.ordinal)).map(|(_, fate)| *fate);
        }
        CallAim::Calls { rule, calls, counts } => {
            let is_about = has_begun && calls.contains(&call);
            let of_qp = count_key(rule, key).filter(|_| is_about)?;
            let count = counts.get(&of_qp).copied();
            if count.is_none() && counts.len() >= MAX_QUEUE_PAIRS {
                return None;
            }
            (of_qp, count.unwrap_or_default())
        }
    };
    let applies = armed.tries(&mut count, || key.draw(seed, &armed.name, tag));
    let CallAim::Calls { rule, counts, .. } = &mut armed.subject else { return None };
    counts.insert(of_qp, count);
    applies.then(|| match rule.fault {
        CallFault::Delay { ns } => CallFate { delay_ns: ns, ..CallFate::default() },
        CallFault::Fail { .. } => CallFate { errno: rule.fault.errno_of(call), ..CallFate::default() },
    })
}

/// Returns the queue pair for which a rule counts a call of its name, or `Some(None)` if it counts for all
/// together; `None` if the rule is not about the call's queue pair or its target state.
fn count_key(rule: &CallRule, key: &CallKey<'_>) -> Option<Option<u32>> {
    let selector = &rule.selector;
    let is_about = selector.has_queue_pair(key.qp) && selector.has_target(key.to);
    is_about.then(|| key.qp.filter(|_| selector.qp.is_some()))
}

#[cfg(test)]
mod tests {
    use pumice_platform::clock::Clock;
    use pumice_transport::types::QpState;

    use super::*;

    fn faults(lines: &[&str]) -> CallFaults {
        let plan = lines.iter().try_fold(FaultPlan::seeded(7), |plan, line| plan.with_line(line)).unwrap();
        CallFaults::new(&plan, "server", &Triggers::new(&plan, &Clock::monotonic()))
    }

    /// Returns the ordinals of the calls that fail, of ten.
    fn failing(faults: &mut CallFaults, call: &str, qp: Option<u32>) -> Vec<u64> {
        (1..=10)
            .filter(|ordinal| {
                let key = CallKey { call, ordinal: *ordinal, qp, to: None };
                faults.decide(&key, &mut |_| {}).errno.is_some()
            })
            .collect()
    }

    #[test]
    fn a_transition_of_a_queue_pair_is_counted_alone() {
        let mut faults = faults(&["fail call=ibv_modify_qp to=rtr nth=2 errno=ETIMEDOUT"]);
        let states = [QpState::Init, QpState::Rtr, QpState::Rts, QpState::Init, QpState::Rtr, QpState::Rts];
        let mut failed = Vec::new();
        for (ordinal, to) in (1..).zip(states) {
            let key = CallKey { call: "ibv_modify_qp", ordinal, qp: None, to: Some(to) };
            failed.extend(faults.decide(&key, &mut |_| {}).errno.map(|errno| (ordinal, errno)));
        }
        assert_eq!(failed, [(5, libc::ETIMEDOUT)]);
    }

    #[test]
    fn calls_are_met_by_name_and_ordinal() {
        let third = "fail call=ibv_reg_mr nth=3 errno=ENOMEM";
        assert_eq!(failing(&mut faults(&[third]), "ibv_reg_mr", None), [3]);
        assert!(failing(&mut faults(&[third]), "ibv_alloc_pd", None).is_empty());
        assert_eq!(failing(&mut faults(&["fail call=ibv_reg_mr* every=4"]), "ibv_reg_mr_iova", None), [4, 8]);
        assert_eq!(failing(&mut faults(&["fail call=* nth=2..9+3 times=2"]), "ibv_alloc_pd", None), [2, 5]);
    }

    #[test]
    fn a_pattern_counts_all_calls_that_it_is_about() {
        let mut faults = faults(&["fail call=* nth=3"]);
        let mut ask =
            |call| faults.decide(&CallKey { call, ordinal: 1, qp: None, to: None }, &mut |_| {}).errno;
        assert_eq!([ask("ibv_get_device_list"), ask("ibv_open_device")], [None, None]);
        assert_eq!(ask("ibv_destroy_cq"), Some(libc::EBUSY));
        assert_eq!(ask("ibv_destroy_cq"), None);
    }

    #[test]
    fn each_queue_pair_has_its_own_budget() {
        let mut faults = faults(&["fail call=ibv_post_send qp=0.. every=3 times=2"]);
        assert_eq!(failing(&mut faults, "ibv_post_send", Some(0)), [3, 6]);
        assert_eq!(failing(&mut faults, "ibv_post_send", Some(1)), [3, 6]);
    }

    #[test]
    fn queue_pairs_are_counted_apart() {
        let mut faults = faults(&["fail call=ibv_post_send qp=1..2 nth=2"]);
        assert!(failing(&mut faults, "ibv_post_send", Some(0)).is_empty());
        assert!(failing(&mut faults, "ibv_post_send", None).is_empty());
        assert_eq!(failing(&mut faults, "ibv_post_send", Some(1)), [2]);
        assert_eq!(failing(&mut faults, "ibv_post_send", Some(2)), [2]);
    }

    #[test]
    fn what_is_taken_back_does_not_count() {
        let mut faults = faults(&["fail call=ibv_poll_cq nth=2"]);
        let key = CallKey { call: "ibv_poll_cq", ordinal: 1, qp: None, to: None };
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
            "slow call=ibv_reg_mr time=5ms",
            "slow name=slower call=ibv_* time=1us",
            "fail call=ibv_reg_mr errno=EINVAL",
            "fail call=ibv_reg_mr errno=ENOMEM",
            "fail name=other call=rdma_listen",
            "fail call=ibv_reg_mr tag=client",
        ]);
        let mut applied_rules = Vec::new();
        let key = CallKey { call: "ibv_reg_mr", ordinal: 1, qp: None, to: None };
        let fate = faults.decide(&key, &mut |fired| applied_rules.push(fired.rule.to_owned()));
        assert_eq!(fate, CallFate { errno: Some(libc::EINVAL), delay_ns: 5_001_000, incident: None });
        assert_eq!(applied_rules, ["slow", "slower", "fail", "fail-2"]);
        assert_eq!(faults.unfired().collect::<Vec<_>>(), ["other"]);
    }

    #[test]
    fn a_rule_counts_from_when_another_one_has_applied() {
        let first = "fail name=first call=ibv_alloc_pd nth=4";
        let mut faults = faults(&["fail call=ibv_reg_mr nth=2 after=\"rule first\"", first]);
        assert!(failing(&mut faults, "ibv_reg_mr", None).is_empty());
        assert_eq!(failing(&mut faults, "ibv_alloc_pd", None), [4]);
        assert_eq!(failing(&mut faults, "ibv_reg_mr", None), [2]);
    }

    #[test]
    fn chance_depends_on_the_call_and_on_no_other_rule() {
        let lines = ["fail name=some call=ibv_reg_mr chance=50%"];
        let one = failing(&mut faults(&lines), "ibv_reg_mr", None);
        assert!((1..10).contains(&one.len()), "{one:?}");
        let with_others = ["slow call=ibv_* chance=10% time=1us", lines[0]];
        assert_eq!(failing(&mut faults(&with_others), "ibv_reg_mr", None), one);
    }
}
