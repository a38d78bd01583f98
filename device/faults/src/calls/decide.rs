//! Rules about calls at work: asked about each call, they say what happens to it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use fnv::FnvBuildHasher;
use pumice_calls::Call;
use pumice_ground::ordinal::{CallOrdinal, Ordinal};

use super::errno::errno_text;
use super::fate::{CallFate, CallKey, TIME};
use super::rule::{CallFault, CallRule};
use crate::armed::{About, Armed, OF_A_REPORT, Origin, Roster, Rules, Tries};
use crate::plan::{FaultPlan, Rule, What};
use crate::trigger::Occurrence;
use crate::waits::Triggers;

/// Queue pairs for which a rule counts at a time.
const MAX_QUEUE_PAIRS: usize = 1 << 16;

/// A rule applied to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallFired<'a> {
    /// The name of the rule.
    pub rule: &'a str,
    /// The tag of this process.
    pub tag: &'a str,
    /// The call.
    pub key: CallKey<'a>,
    /// What happens to it by this rule.
    pub fate: CallFate,
}

impl CallFired<'_> {
    /// What the rule did, in words.
    pub fn sentence(&self) -> String {
        let CallFired { rule, key: CallKey { call, ordinal, qp }, fate, .. } = self;
        let on = qp.map_or_else(String::new, |qp| format!(" on queue pair {}", Ordinal(qp)));
        let what = match (fate.errno, fate.incident) {
            (Some(errno), _) => format!("fails {call} with {}", errno_text(errno)),
            (None, Some(incident)) if *call == TIME => {
                return format!("fault \"{rule}\" has {incident} happen after {} us", ordinal / 1000);
            }
            (None, Some(incident)) => format!("has {incident} happen after {call}"),
            (None, None) => format!("delays {call} by {} us", fate.delay_ns / 1000),
        };
        format!("fault \"{rule}\" {what} (call {} of this name{on})", CallOrdinal(*ordinal))
    }
}

/// What a rule of this process's is about.
#[derive(Debug)]
enum Aim {
    Calls {
        rule: CallRule,
        /// Those of its name that can fail.
        calls: HashSet<Call, FnvBuildHasher>,
        /// What it has counted; if it is about queue pairs, for each of them.
        counts: BTreeMap<Option<u32>, Tries>,
    },
    /// Calls and their ordinals, with their queue pair if the rule was about queue pairs.
    Recorded(HashMap<(Call, u64), (Option<u32>, CallFate), FnvBuildHasher>),
}

/// The rules of a plan about calls at work.
#[derive(Debug)]
pub struct CallFaults {
    seed: u64,
    tag: String,
    rules: Rules<Aim>,
    triggers: Arc<Triggers>,
}

/// The gate that holds the rules about the calls of a process.
pub trait CallRules: Send + Sync {
    /// Changes them; which calls have to be looked at is found out anew afterwards.
    fn change(&self, change: &mut dyn FnMut(&mut CallFaults));
}

impl CallFaults {
    /// The rules about calls that concern a process of this tag. `triggers` are those of the plan in this
    /// process.
    pub fn new(plan: &FaultPlan, tag: &str, triggers: &Arc<Triggers>) -> CallFaults {
        let rules = Rules::of_plan(plan, triggers, |rule| Aim::new(rule, tag));
        CallFaults { seed: plan.seed(), tag: tag.to_owned(), rules, triggers: Arc::clone(triggers) }
    }

    /// Takes a rule while the program runs, if it concerns this process: true.
    pub(crate) fn arm(&mut self, rule: &Rule, origin: Origin<'_>) -> bool {
        let Some(aim) = Aim::new(rule, &self.tag) else { return false };
        self.rules.push(rule, aim, origin, &self.triggers);
        true
    }

    /// The rules, for what is done to rules of every kind.
    pub fn roster(&mut self) -> &mut dyn Roster {
        &mut self.rules
    }

    /// Whether there are rules: without them there is nothing to ask.
    pub fn is_active(&self) -> bool {
        !self.rules.is_empty()
    }

    /// The seed of the plan.
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// The tag of this process.
    pub fn tag(&self) -> &str {
        &self.tag
    }

    /// The names of the rules.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.rules.names()
    }

    /// The names of those rules that were there when the program began.
    pub fn first_names(&self) -> impl Iterator<Item = &str> {
        self.rules.first_names()
    }

    /// Whether any rule asks for the queue pair of a call.
    pub fn need_queue_pairs(&self) -> bool {
        self.rules.all().any(|armed| match &armed.aim {
            Aim::Calls { rule, .. } => rule.selector.qp.is_some(),
            Aim::Recorded(calls) => calls.values().any(|(qp, _)| qp.is_some()),
        })
    }

    /// What happens to a call, which is counted; `witness` is told of each rule that applies. The first rule
    /// that gives an errno wins; delays add up.
    pub fn decide(&mut self, key: &CallKey<'_>, witness: &mut dyn FnMut(&CallFired<'_>)) -> CallFate {
        let mut fate = CallFate::default();
        let Some(call) = Call::of(key.call) else { return fate };
        for armed in self.rules.awake_mut() {
            let Some(more) = ask(armed, call, key, self.seed, &self.tag) else { continue };
            armed.apply();
            fate.errno = fate.errno.or(more.errno);
            fate.delay_ns = fate.delay_ns.saturating_add(more.delay_ns);
            self.triggers.note(Occurrence::Rule(&armed.name));
            witness(&CallFired { rule: &armed.name, tag: &self.tag, key: *key, fate: more });
        }
        fate
    }

    /// A call to which nothing happened turns out not to count: it found nothing, and how often a program
    /// looks depends on time.
    pub fn take_back(&mut self, key: &CallKey<'_>) {
        let Some(call) = Call::of(key.call) else { return };
        for armed in self.rules.awake_mut() {
            let Aim::Calls { rule, calls, counts } = &mut armed.aim else { continue };
            if !calls.contains(&call) {
                continue;
            }
            let count = count_key(rule, key).and_then(|of_qp| counts.get_mut(&of_qp));
            if let Some(count) = count.filter(|count| count.matched > 0) {
                count.matched -= 1;
                armed.unmeet();
            }
        }
    }

    /// The names of rules that never applied.
    pub fn unfired(&self) -> impl Iterator<Item = &str> {
        self.rules.unfired()
    }
}

impl Aim {
    fn new(rule: &Rule, tag: &str) -> Option<Aim> {
        match &rule.what {
            What::Call(call) => call.selector.is_of(tag).then(|| {
                let (rule, calls) = ((**call).clone(), call.selector.calls());
                Aim::Calls { rule, calls, counts: BTreeMap::new() }
            }),
            What::Recorded(recording) => {
                // What happens to the device is for the device.
                let own = recording.calls.iter().filter(|one| one.tag == tag && one.fate.incident.is_none());
                // A call that is none is never made.
                let own = own.filter_map(|one| Some(((Call::of(&one.call)?, one.nth), (one.qp, one.fate))));
                let own: HashMap<_, _, _> = own.collect();
                (!own.is_empty()).then_some(Aim::Recorded(own))
            }
            _ => None,
        }
    }
}

impl About for Aim {
    fn kind(&self) -> &'static str {
        match self {
            Aim::Calls { rule, .. } if matches!(rule.fault, CallFault::Delay { .. }) => "slow",
            Aim::Calls { .. } => "fail",
            Aim::Recorded(_) => OF_A_REPORT,
        }
    }
}

/// Whether a rule applies to a call, and how.
fn ask(armed: &mut Armed<Aim>, call: Call, key: &CallKey<'_>, seed: u64, tag: &str) -> Option<CallFate> {
    let has_begun = armed.has_begun();
    let (of_qp, mut count) = match &armed.aim {
        Aim::Recorded(calls) => {
            return calls.get(&(call, key.ordinal)).map(|(_, fate)| *fate);
        }
        Aim::Calls { rule, calls, counts } => {
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
    let Aim::Calls { rule, counts, .. } = &mut armed.aim else { return None };
    counts.insert(of_qp, count);
    applies.then(|| match rule.fault {
        CallFault::Delay { ns } => CallFate { delay_ns: ns, ..CallFate::default() },
        CallFault::Fail { .. } => CallFate { errno: rule.fault.errno_of(call), ..CallFate::default() },
    })
}

/// The queue pair for which a rule counts a call of its name, or none, if it counts for all together; `None`:
/// it is not about the call's queue pair.
fn count_key(rule: &CallRule, key: &CallKey<'_>) -> Option<Option<u32>> {
    let selector = &rule.selector;
    selector.has_queue_pair(key.qp).then(|| key.qp.filter(|_| selector.qp.is_some()))
}

#[cfg(test)]
mod tests {
    use pumice_ground::clock::Clock;

    use super::*;

    fn faults(lines: &[&str]) -> CallFaults {
        let plan = lines.iter().try_fold(FaultPlan::seeded(7), |plan, line| plan.with_line(line)).unwrap();
        CallFaults::new(&plan, "server", &Triggers::new(&plan, &Clock::monotonic()))
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
        let third = "fail call=ibv_reg_mr nth=3 errno=ENOMEM";
        assert_eq!(failing(&mut faults(&[third]), "ibv_reg_mr", None), [3]);
        assert!(failing(&mut faults(&[third]), "ibv_alloc_pd", None).is_empty());
        assert_eq!(failing(&mut faults(&["fail call=ibv_reg_mr* every=4"]), "ibv_reg_mr_iova", None), [4, 8]);
        assert_eq!(failing(&mut faults(&["fail call=* nth=2..9+3 times=2"]), "ibv_alloc_pd", None), [2, 5]);
    }

    #[test]
    fn a_pattern_counts_all_calls_that_it_is_about() {
        let mut faults = faults(&["fail call=* nth=3"]);
        let mut ask = |call| faults.decide(&CallKey { call, ordinal: 1, qp: None }, &mut |_| {}).errno;
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
            "slow call=ibv_reg_mr time=5ms",
            "slow name=slower call=ibv_* time=1us",
            "fail call=ibv_reg_mr errno=EINVAL",
            "fail call=ibv_reg_mr errno=ENOMEM",
            "fail name=other call=rdma_listen",
            "fail call=ibv_reg_mr tag=client",
        ]);
        let mut told = Vec::new();
        let key = CallKey { call: "ibv_reg_mr", ordinal: 1, qp: None };
        let fate = faults.decide(&key, &mut |fired| told.push(fired.rule.to_owned()));
        assert_eq!(fate, CallFate { errno: Some(libc::EINVAL), delay_ns: 5_001_000, incident: None });
        assert_eq!(told, ["slow", "slower", "fail", "fail-2"]);
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
