//! The counting of what the rules of a plan wait for.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, Weak};

use pumice_platform::clock::Clock;

use super::plan::{FaultPlan, Rule, What};
use pumice_model::fates::CallKey;
use pumice_model::fates::trigger::{Occurrence, Trigger};

/// The triggers of a plan in one process, shared by all parts that ask the plan.
#[derive(Debug)]
pub struct Triggers {
    conditions: RwLock<Vec<Arc<TriggerCondition>>>,
    /// True if incidents can follow the return of calls.
    has_hooks: AtomicBool,
    hooks: CallHooks,
    clock: Clock,
}

/// A closure that is called after each call that has returned, with the call's name and ordinal. The device
/// owns it.
pub type CallHook = Arc<CallHookFn>;
/// The function that a device runs after each call.
type CallHookFn = dyn Fn(&CallKey<'_>) + Send + Sync;

/// The attendants: one for each device of the process, and perhaps some of devices that were closed.
#[derive(Default)]
struct CallHooks(Mutex<Vec<Weak<CallHookFn>>>);

impl fmt::Debug for CallHooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Attendants")
    }
}

impl CallHooks {
    fn lock(&self) -> MutexGuard<'_, Vec<Weak<CallHookFn>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct TriggerCondition {
    trigger: Trigger,
    /// The amount that is missing; 0: the trigger has happened.
    left: AtomicU64,
    /// True if the trigger belongs to a rule that was added while the program ran; it is removed with the
    /// rule.
    is_live: bool,
    begin_ns: u64,
    clock: Clock,
}

/// The state of one trigger in a process: open once the trigger has happened.
#[derive(Debug, Clone)]
pub struct TriggerGate(Arc<TriggerCondition>);

impl Triggers {
    /// Returns the triggers of a plan, none of which has happened; `clock` is for those that are about time.
    pub fn new(plan: &FaultPlan, clock: &Clock) -> Arc<Triggers> {
        let triggers = Triggers {
            conditions: RwLock::default(),
            has_hooks: AtomicBool::new(plan.rules().iter().any(is_of_calls)),
            hooks: CallHooks::default(),
            clock: clock.clone(),
        };
        for trigger in plan.triggers() {
            if triggers.gate(trigger).is_none() {
                triggers.begin(trigger, false);
            }
        }
        Arc::new(triggers)
    }

    fn conditions(&self) -> RwLockReadGuard<'_, Vec<Arc<TriggerCondition>>> {
        self.conditions.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn has(&self, is_wanted: impl Fn(&Trigger) -> bool) -> bool {
        let is_in_use = |one: &Arc<TriggerCondition>| !one.is_live || Arc::strong_count(one) > 1;
        self.conditions().iter().any(|one| is_in_use(one) && is_wanted(&one.trigger))
    }

    /// Begins to count what this trigger waits for.
    fn begin(&self, trigger: &Trigger, is_live: bool) -> TriggerGate {
        let (left, clock) = (AtomicU64::new(trigger.amount()), self.clock.clone());
        let begin_ns = clock.now_ns();
        let condition =
            Arc::new(TriggerCondition { trigger: trigger.clone(), left, is_live, begin_ns, clock });
        let mut conditions = self.conditions.write().unwrap_or_else(PoisonError::into_inner);
        // Triggers whose rules were cleared are removed here.
        conditions.retain(|one| !one.is_live || Arc::strong_count(one) > 1);
        conditions.push(Arc::clone(&condition));
        TriggerGate(condition)
    }

    /// Reports whether executed work requests have to be reported here.
    pub fn count_work(&self) -> bool {
        self.has(|trigger| matches!(trigger, Trigger::Completions { .. } | Trigger::Bytes { .. }))
    }

    /// Reports whether returned calls have to be reported here.
    pub fn count_calls(&self) -> bool {
        self.has_hooks.load(Ordering::Relaxed) || self.has(|trigger| matches!(trigger, Trigger::Calls { .. }))
    }

    /// Records that a call of this name has returned, with its ordinal among those of its name.
    pub fn called(&self, call: &str, ordinal: u64) {
        self.note(Occurrence::Call(call));
        if !self.has_hooks.load(Ordering::Relaxed) {
            return;
        }
        // The attendants run without the lock: they apply incidents to a device.
        let hooks: Vec<CallHook> = self.hooks.lock().iter().filter_map(Weak::upgrade).collect();
        let key = CallKey { call, ordinal, qp: None, to: None };
        hooks.iter().for_each(|hook| hook(&key));
    }

    /// Registers an attendant, which is called after each call that has returned, in the thread that made it,
    /// if incidents can follow calls. It stays registered until its device drops it, for a program may open
    /// and close a device often.
    pub fn add_hook(&self, hook: &CallHook) {
        let mut hooks = self.hooks.lock();
        hooks.retain(|one| one.strong_count() > 0);
        hooks.push(Arc::downgrade(hook));
    }

    /// Returns the gate of a trigger of the plan; `None` if the plan does not have it.
    pub(crate) fn gate(&self, trigger: &Trigger) -> Option<TriggerGate> {
        let conditions = self.conditions();
        let known = conditions.iter().find(|one| one.trigger == *trigger && !one.is_live)?;
        Some(TriggerGate(Arc::clone(known)))
    }

    /// Returns the gate of a rule's trigger: for a rule that is added while the program runs a new one, which
    /// counts from then on.
    pub(super) fn gate_for(&self, trigger: &Trigger, is_live: bool) -> Option<TriggerGate> {
        if is_live { Some(self.begin(trigger, true)) } else { self.gate(trigger) }
    }

    /// Takes note of a rule that is added while the program runs.
    pub fn admit(&self, rule: &Rule) {
        if is_of_calls(rule) {
            self.has_hooks.store(true, Ordering::Relaxed);
        }
    }

    /// Counts an occurrence for every trigger.
    pub fn note(&self, occurrence: Occurrence<'_>) {
        for condition in self.conditions().iter() {
            let amount = condition.trigger.amount_of(occurrence);
            if amount > 0 {
                let missing = |left: u64| Some(left.saturating_sub(amount));
                // The closure always returns `Some`, so the update is never refused.
                let _ = condition.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, missing);
            }
        }
    }
}

/// Reports whether a rule causes an incident after a call has returned.
fn is_of_calls(rule: &Rule) -> bool {
    match &rule.what {
        What::Recorded(recording) => recording.calls.iter().any(|call| call.fate.incident.is_some()),
        _ => rule.incident_after_call().is_some(),
    }
}

impl TriggerGate {
    /// Returns how much of the time that the trigger waits for is left, in ns.
    pub fn time_left_ns(&self) -> u64 {
        let TriggerCondition { trigger, begin_ns, clock, .. } = &*self.0;
        match trigger {
            Trigger::Time { ns } => ns.saturating_sub(clock.now_ns().saturating_sub(*begin_ns)),
            _ => 0,
        }
    }

    /// Reports whether the trigger has happened.
    pub fn is_open(&self) -> bool {
        let TriggerCondition { trigger, left, begin_ns, clock, .. } = &*self.0;
        match trigger {
            Trigger::Time { ns } => clock.now_ns().saturating_sub(*begin_ns) >= *ns,
            _ => left.load(Ordering::Acquire) == 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use pumice_platform::clock::VirtualTime;
    use pumice_transport::types::AsyncEventType;

    use super::*;

    #[test]
    fn a_trigger_counts_what_it_names_and_stays_open() {
        let lines = [
            "drop name=a",
            "drop after=\"rule a\"",
            "mark after=\"completions 2 qp=1\"",
            "mark after=\"bytes 10\"",
        ];
        let plan = lines.iter().try_fold(FaultPlan::seeded(7), |plan, line| plan.with_line(line)).unwrap();
        let triggers = Triggers::new(&plan, &Clock::monotonic());
        let gates: Vec<TriggerGate> =
            plan.triggers().map(|trigger| triggers.gate(trigger).unwrap()).collect();
        let open = || gates.iter().map(TriggerGate::is_open).collect::<Vec<_>>();
        assert_eq!(open(), [false, false, false]);
        triggers.note(Occurrence::Rule("b"));
        triggers.note(Occurrence::WorkRequest { qp: 0, length_bytes: 4 });
        triggers.note(Occurrence::WorkRequest { qp: 1, length_bytes: 5 });
        assert_eq!(open(), [false, false, false]);
        triggers.note(Occurrence::Rule("a"));
        triggers.note(Occurrence::WorkRequest { qp: 1, length_bytes: 1 });
        triggers.note(Occurrence::WorkRequest { qp: 1, length_bytes: u32::MAX });
        assert_eq!(open(), [true, true, true]);
    }

    #[test]
    fn calls_events_and_time_are_waited_for() {
        let lines =
            ["drop after=\"call ibv_post_* 2\"", "mark after=\"event srq-limit\"", "mark after=\"time 1ms\""];
        let plan = lines.iter().try_fold(FaultPlan::seeded(7), |plan, line| plan.with_line(line)).unwrap();
        let time = VirtualTime::default();
        let triggers = Triggers::new(&plan, &Clock::Virtual(time.clone()));
        assert!(triggers.count_calls() && !triggers.count_work());
        let gates: Vec<TriggerGate> =
            plan.triggers().map(|trigger| triggers.gate(trigger).unwrap()).collect();
        let open = || gates.iter().map(TriggerGate::is_open).collect::<Vec<_>>();
        triggers.called("ibv_post_send", 1);
        triggers.called("ibv_poll_cq", 1);
        triggers.note(Occurrence::Event(AsyncEventType::CqErr));
        time.advance_to(999_999);
        assert_eq!(open(), [false, false, false]);
        triggers.called("ibv_post_recv", 1);
        triggers.note(Occurrence::Event(AsyncEventType::SrqLimitReached));
        time.advance_to(1_000_000);
        assert_eq!(open(), [true, true, true]);
    }
}
