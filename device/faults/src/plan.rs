//! Fault plans: the rules that say what goes wrong, and when.

use std::collections::BTreeSet;

use pumice_transport::types::Fate;

use super::action::Fault;
use super::calls::CallRule;
use super::completion_events::{CompletionEventRule, RecordedCompletionEvent};
use super::completions::{CompletionFault, CompletionRule};
use super::select::PacketSelector;
pub use super::select::{Bursts, RuleConditions, Steps};
use pumice_model::fates::completion::{CompletionFate, CompletionKey};
use pumice_model::fates::fired::RejData;
use pumice_model::fates::incident::Incident;
use pumice_model::fates::trigger::Trigger;
use pumice_model::fates::{CallFate, PacketClass, PacketKey};

/// The name of the rule that `--loss` stands for.
const LOSS: &str = "loss";
/// The remedy for a rule that waits for a rule that does not exist.
const KNOWN_RULE: &str = "write the name of a rule of the plan";

/// The subject and the effect of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// The rule is about packets.
    Packet(Box<PacketRule>),
    /// The rule is about calls.
    Call(Box<CallRule>),
    /// The rule is about completions.
    Completion(Box<CompletionRule>),
    /// The rule is about events of completion channels.
    CompletionEvent(Box<CompletionEventRule>),
    /// The rule repeats what a report says.
    Recorded(Recording),
}

/// A rule about packets: which ones, and what happens to them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketRule {
    /// The packets that the rule is about.
    pub selector: PacketSelector,
    /// The fault of these packets.
    pub fault: Fault,
}

/// Everything that reports say about one rule.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recording {
    /// The processes that the rule concerned.
    pub tags: BTreeSet<String>,
    /// The packets that it applied to.
    pub packets: Vec<Recorded>,
    /// The calls that it applied to.
    pub calls: Vec<RecordedCall>,
    /// The completions that it applied to.
    pub completions: Vec<RecordedCompletion>,
    /// The events of completion channels that it applied to.
    pub completion_events: Vec<RecordedCompletionEvent>,
}

impl Recording {
    /// Returns the part of the recording that belongs to one device.
    fn of_device(&self, name: &str) -> Recording {
        let is_own = |device: &Option<String>| device.as_deref().is_none_or(|device| device == name);
        let mut own = self.clone();
        own.packets.retain(|one| is_own(&one.device));
        own.calls.retain(|one| is_own(&one.device));
        own.completions.retain(|one| is_own(&one.device));
        own.completion_events.retain(|one| is_own(&one.device));
        own
    }

    /// Reports whether the recording is about packets, or the rule never applied.
    pub fn is_of_packets(&self) -> bool {
        self.calls.is_empty() && self.completions.is_empty() && self.completion_events.is_empty()
    }
}

/// A completion that a report says a rule applied to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedCompletion {
    /// The tag of the process.
    pub tag: String,
    /// The name of the device; `None`: the only device of the process.
    pub device: Option<String>,
    /// The identity of the completion.
    pub key: CompletionKey,
    /// The fate of the completion.
    pub fate: CompletionFate,
}

/// A call that a report says a rule applied to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedCall {
    /// The tag of the process.
    pub tag: String,
    /// The name of the device; `None`: the only device of the process.
    pub device: Option<String>,
    /// The name of the call.
    pub call: String,
    /// The ordinal of the call among those of this name in its process, from 1.
    pub nth: u64,
    /// The ordinal of the call's queue pair, if the rule was about queue pairs.
    pub qp: Option<u32>,
    /// The fate of the call.
    pub fate: CallFate,
}

/// A packet that a report says a rule applied to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// The tag of the process.
    pub tag: String,
    /// The name of the device; `None`: the only device of the process.
    pub device: Option<String>,
    /// The identity of the packet.
    pub key: PacketKey,
    /// The fate of the packet.
    pub fate: Fate,
    /// Duration of the partition that began here, in ns, if one began; `Some(None)` means without end.
    pub partition_ns: Option<Option<u64>>,
    /// The incident of the device, if there was one.
    pub incident: Option<Incident>,
    /// The private data with which a connection request was rejected.
    pub private_data: Option<Box<RejData>>,
    /// True if the packet was only noted.
    pub noted: bool,
}

/// A rule of a fault plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The name of the rule: no other rule of the plan has it. What the rule draws depends on it.
    pub name: String,
    /// The name of the device that the rule is about; `None`: all devices of the process.
    pub device: Option<String>,
    /// The trigger that the rule waits for; what comes earlier is not counted.
    pub after: Option<Trigger>,
    /// The condition under which the rule applies.
    pub when: RuleConditions,
    /// The subject and the effect of the rule.
    pub what: What,
}

/// A fault plan: the rules that say what goes wrong. Several rules may apply to the same packet, and then all
/// of their faults happen.
///
/// ```
/// use pumice_faults::{
///     Fault, FaultPlan, PacketClass, PacketRule, PacketSelector, Rule, Steps, What, RuleConditions,
/// };
///
/// let selector = PacketSelector { opcode: vec![PacketClass::Ack], ..PacketSelector::default() };
/// let third = Some(Steps { first: 3, last: 3, step: 1 });
/// let plan = FaultPlan::seeded(7).losing(10_000).with(Rule {
///     name: "third ACK".to_owned(),
///     device: None,
///     after: None,
///     when: RuleConditions { steps: third, ..RuleConditions::default() },
///     what: What::Packet(Box::new(PacketRule { selector, fault: Fault::Drop })),
/// });
/// assert_eq!(plan.check(), Ok(()));
/// assert_eq!(plan.rules().len(), 2);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FaultPlan {
    seed: u64,
    rules: Vec<Rule>,
}

/// The reason why a plan cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rule \"{rule}\": {problem}")]
pub struct PlanError {
    /// The name of the rule.
    pub rule: String,
    /// The problem of the rule, and the remedy.
    pub problem: String,
}

impl FaultPlan {
    /// Returns a plan without rules.
    pub fn new() -> FaultPlan {
        FaultPlan::default()
    }

    /// Returns a plan without rules whose random draws follow from this seed.
    pub fn seeded(seed: u64) -> FaultPlan {
        FaultPlan { seed, rules: Vec::new() }
    }

    /// Adds a rule.
    #[must_use]
    pub fn with(mut self, rule: Rule) -> FaultPlan {
        self.rules.push(rule);
        self
    }

    /// Adds a rule by which a fault happens to `ppm` of a million packets, at random.
    #[must_use]
    pub fn by_chance(self, name: &str, ppm: u32, fault: Fault) -> FaultPlan {
        let when = RuleConditions { chance_ppm: Some(ppm), ..RuleConditions::default() };
        let rule = PacketRule { selector: PacketSelector::default(), fault };
        let (name, what) = (name.to_owned(), What::Packet(Box::new(rule)));
        self.with(Rule { name, device: None, after: None, when, what })
    }

    /// Adds a rule of the name "loss", by which `ppm` of a million packets are lost.
    #[must_use]
    pub fn losing(self, ppm: u32) -> FaultPlan {
        self.by_chance(LOSS, ppm, Fault::Drop)
    }

    /// Returns the same plan with another seed.
    #[must_use]
    pub fn reseeded(self, seed: u64) -> FaultPlan {
        FaultPlan { seed, ..self }
    }

    /// Returns the seed of random draws.
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the rules, in the order in which they were added.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Reports whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns the part of the plan that is about a device of this name.
    #[must_use]
    pub fn of_device(&self, name: &str) -> FaultPlan {
        let own = self.rules.iter().filter(|rule| rule.is_of(name)).map(|rule| match &rule.what {
            What::Recorded(recording) => {
                Rule { what: What::Recorded(recording.of_device(name)), ..rule.clone() }
            }
            _ => rule.clone(),
        });
        FaultPlan { seed: self.seed, rules: own.collect() }
    }

    /// Returns the plan without incidents: for a device that is back after it was unplugged, because
    /// incidents happen once in a process.
    #[must_use]
    pub fn without_events(&self) -> FaultPlan {
        let is_event = |rule: &Rule| match &rule.what {
            What::Packet(rule) => matches!(rule.fault, Fault::Happen(_)),
            What::Recorded(recording) => {
                recording.packets.iter().any(|packet| packet.incident.is_some())
                    || recording.calls.iter().any(|call| call.fate.incident.is_some())
            }
            _ => false,
        };
        let others = self.rules.iter().filter(|rule| !is_event(rule)).cloned();
        FaultPlan { seed: self.seed, rules: others.collect() }
    }

    /// Returns the triggers that the rules wait for.
    pub(super) fn triggers(&self) -> impl Iterator<Item = &Trigger> {
        self.rules.iter().flat_map(Rule::triggers)
    }

    /// Checks that the plan makes sense.
    ///
    /// # Errors
    /// Two rules have one name, conditions exclude each other, a rule can apply to nothing, or it waits for a
    /// rule that does not exist or that waits for it.
    pub fn check(&self) -> Result<(), PlanError> {
        self.check_rules()?;
        self.check_waiting()
    }

    /// Checks that every rule that is waited for can apply first.
    pub fn check_waiting(&self) -> Result<(), PlanError> {
        let awaited = |rule: &Rule| match &rule.after {
            Some(Trigger::Rule(name)) => Some(name.clone()),
            _ => None,
        };
        for rule in &self.rules {
            let wrong = |problem: String| Err(PlanError { rule: rule.name.clone(), problem });
            for trigger in rule.triggers() {
                let Trigger::Rule(name) = trigger else { continue };
                if *name == rule.name {
                    return wrong("it waits for itself, so it never begins: name another rule".to_owned());
                }
                if !self.rules.iter().any(|other| other.name == *name) {
                    return wrong(format!(
                        "it waits for rule \"{name}\", which the plan lacks: {KNOWN_RULE}"
                    ));
                }
                if self.rules.iter().any(|other| other.name == *name && other.is_of_other_processes(rule)) {
                    return wrong(format!(
                        "it waits for rule \"{name}\", which is about processes of another tag, and rules \
                         wait within a process: give both the same tag"
                    ));
                }
            }
            let mut next = awaited(rule);
            for _ in 0..self.rules.len() {
                let Some(name) = next else { break };
                if name == rule.name {
                    return wrong(
                        "rules that wait for it in turn are what it waits for: break the circle".to_owned(),
                    );
                }
                next = self.rules.iter().find(|other| other.name == name).and_then(awaited);
            }
        }
        Ok(())
    }

    /// Checks that each rule makes sense by itself. Rules that are waited for may be added later.
    pub fn check_rules(&self) -> Result<(), PlanError> {
        let mut names = BTreeSet::new();
        for rule in &self.rules {
            let wrong = |problem: String| PlanError { rule: rule.name.clone(), problem };
            if !names.insert(rule.name.as_str()) {
                return Err(wrong("two rules have this name: give each its own".to_owned()));
            }
            rule.when.check().map_err(wrong)?;
            if let What::Packet(packets) = &rule.what {
                packets.selector.check().map_err(wrong)?;
                check_fault(packets).map_err(wrong)?;
                packets.check_reach(&rule.when).map_err(wrong)?;
            }
            match &rule.what {
                What::Call(calls) => calls.check().map_err(wrong)?,
                What::Completion(completions) => {
                    completions.check().map_err(wrong)?;
                    completions.check_count(&rule.when).map_err(wrong)?;
                }
                What::CompletionEvent(events) => events.check().map_err(wrong)?,
                What::Packet(_) | What::Recorded(_) => {}
            }
            if rule.device.is_some() && matches!(rule.what, What::Call(_)) {
                return Err(wrong(
                    "calls are counted in the process: remove device, or write qp=0".to_owned(),
                ));
            }
            if rule.when.bursts.is_some() && !matches!(rule.what, What::Packet(_)) {
                return Err(wrong(
                    "bad stretches are of packets: remove burst-begin and burst-end".to_owned(),
                ));
            }
        }
        Ok(())
    }
}

impl Rule {
    /// Returns the tag of the processes that the rule is about, or a pattern of it; `None`: all processes, or
    /// those that a report names.
    pub(super) fn tag(&self) -> Option<&str> {
        match &self.what {
            What::Packet(rule) => rule.selector.tag.as_deref(),
            What::Call(rule) => rule.selector.tag.as_deref(),
            What::Completion(rule) => rule.selector.tag.as_deref(),
            What::CompletionEvent(rule) => rule.selector.tag.as_deref(),
            What::Recorded(_) => None,
        }
    }

    /// Reports whether the rule is about a device of this name.
    pub(super) fn is_of(&self, device: &str) -> bool {
        self.device.as_deref().is_none_or(|wanted| wanted == device)
    }

    /// Returns the incident that the rule causes after a call has returned, if it is such a rule.
    pub(super) fn incident_after_call(&self) -> Option<Incident> {
        self.incident_alone().filter(|_| matches!(self.after, Some(Trigger::Calls { .. })))
    }

    /// Returns the incident that the rule causes after a time has passed, and that time in ns, if it is such
    /// a rule.
    pub fn incident_after_time(&self) -> Option<(u64, Incident)> {
        let Some(Trigger::Time { ns }) = self.after else { return None };
        Some((ns, self.incident_alone()?))
    }

    /// Returns the rule's incident, if the rule does not depend on packets.
    fn incident_alone(&self) -> Option<Incident> {
        let What::Packet(rule) = &self.what else { return None };
        let of_any_packet =
            PacketSelector { tag: None, ..rule.selector.clone() } == PacketSelector::default();
        let once = RuleConditions { times: None, ..self.when } == RuleConditions::default()
            && self.when.times.is_none_or(|n| n == 1);
        match rule.fault {
            Fault::Happen(incident) if incident.is_of_device() && of_any_packet && once => Some(incident),
            _ => None,
        }
    }

    /// Returns the trigger that the rule waits for, and the one that it makes completions wait for.
    pub(super) fn triggers(&self) -> Vec<&Trigger> {
        let until = match &self.what {
            What::Completion(rule) => match &rule.fault {
                CompletionFault::Late { until, .. } => until.iter().collect(),
                CompletionFault::End { .. } => Vec::new(),
            },
            What::Recorded(recording) => {
                recording.completions.iter().filter_map(|one| one.fate.until.as_ref()).collect()
            }
            What::Packet(_) | What::Call(_) | What::CompletionEvent(_) => Vec::new(),
        };
        self.after.iter().chain(until).collect()
    }
}

/// Checks that the fault does something, and is possible for the packets that it is about.
fn check_fault(rule: &PacketRule) -> Result<(), String> {
    let PacketRule { selector, fault } = rule;
    let acks = !selector.opcode.is_empty() && selector.opcode.iter().all(|class| *class == PacketClass::Ack);
    match fault {
        Fault::Duplicate { copies: 0 } => Err("0 copies are none: write at least 1".to_owned()),
        Fault::Reorder { packets: 0, .. } => {
            Err("a packet that 0 packets overtake stays where it is: write at least 1".to_owned())
        }
        Fault::Corrupt { bits: 0, .. } => Err("0 bits are none: write at least 1".to_owned()),
        Fault::Corrupt { sealed: true, .. } if acks => {
            Err("an ACK has no payload: silent corruption needs one".to_owned())
        }
        Fault::Delay(delay) if delay.is_none() => {
            Err("a delay of 0 is none: write a time above 0".to_owned())
        }
        Fault::Reorder { within_ns: 0, .. } => {
            Err("a packet that waits for 0 ns is not overtaken: write within=10ms".to_owned())
        }
        Fault::Partition { for_ns: Some(0) } => {
            Err("a partition of 0 ns cuts nothing off: write a time above 0, or none".to_owned())
        }
        Fault::Refuse { .. } | Fault::Notify => rule.check_answer(),
        Fault::Happen(_) => rule.check_incident(),
        Fault::Reject { .. } => rule.check_rejection(&[PacketClass::Req]),
        Fault::Unreachable => rule.check_rejection(&[PacketClass::Req, PacketClass::SidrReq]),
        _ => Ok(()),
    }
}
