//! The one place where it is counted what the rules of a plan wait for.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use pumice_ground::clock::Clock;

use super::calls::CallKey;
use super::plan::{FaultPlan, Rule, What};
use super::trigger::{Occurrence, Trigger};

/// The triggers of a plan at work in one process: shared by all that asks the plan.
#[derive(Debug)]
pub struct Triggers {
    conditions: RwLock<Vec<Arc<Condition>>>,
    /// Something happens to the device when calls have returned.
    attends: AtomicBool,
    attendants: Attendants,
    clock: Clock,
}

/// Is told of each call that has returned, by its name and ordinal. False: its device is gone.
pub type CallAttendant = Arc<dyn Fn(&CallKey<'_>) -> bool + Send + Sync>;

/// One for each device of the process.
#[derive(Default)]
struct Attendants(Mutex<Vec<CallAttendant>>);

impl fmt::Debug for Attendants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Attendants")
    }
}

impl Attendants {
    fn lock(&self) -> MutexGuard<'_, Vec<CallAttendant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Condition {
    trigger: Trigger,
    /// How much is missing; 0: it has happened.
    left: AtomicU64,
    /// It is of a rule that was added while the program ran, and goes with it.
    is_live: bool,
    begin_ns: u64,
    clock: Clock,
}

/// Whether one trigger of a process has happened.
#[derive(Debug, Clone)]
pub struct Gate(Arc<Condition>);

impl Triggers {
    /// The triggers of a plan, none of which has happened; `clock` is for those that are about time.
    pub fn new(plan: &FaultPlan, clock: &Clock) -> Arc<Triggers> {
        let triggers = Triggers {
            conditions: RwLock::default(),
            attends: AtomicBool::new(plan.rules().iter().any(is_of_calls)),
            attendants: Attendants::default(),
            clock: clock.clone(),
        };
        for trigger in plan.triggers() {
            if triggers.gate(trigger).is_none() {
                triggers.begin(trigger, false);
            }
        }
        Arc::new(triggers)
    }

    fn conditions(&self) -> RwLockReadGuard<'_, Vec<Arc<Condition>>> {
        self.conditions.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn has(&self, is_wanted: impl Fn(&Trigger) -> bool) -> bool {
        let is_in_use = |one: &Arc<Condition>| !one.is_live || Arc::strong_count(one) > 1;
        self.conditions().iter().any(|one| is_in_use(one) && is_wanted(&one.trigger))
    }

    /// From now on it is counted what this trigger waits for.
    fn begin(&self, trigger: &Trigger, is_live: bool) -> Gate {
        let (left, clock) = (AtomicU64::new(trigger.amount()), self.clock.clone());
        let begin_ns = clock.now_ns();
        let condition = Arc::new(Condition { trigger: trigger.clone(), left, is_live, begin_ns, clock });
        let mut conditions = self.conditions.write().unwrap_or_else(PoisonError::into_inner);
        // Those of rules that are gone go now.
        conditions.retain(|one| !one.is_live || Arc::strong_count(one) > 1);
        conditions.push(Arc::clone(&condition));
        Gate(condition)
    }

    /// Whether work requests that are carried out have to be told of.
    pub fn count_work(&self) -> bool {
        self.has(|trigger| matches!(trigger, Trigger::Completions { .. } | Trigger::Bytes { .. }))
    }

    /// Whether calls that return have to be told of.
    pub fn count_calls(&self) -> bool {
        self.attends.load(Ordering::Relaxed) || self.has(|trigger| matches!(trigger, Trigger::Calls { .. }))
    }

    /// A call of this name has returned, which had this ordinal among those of its name.
    pub fn called(&self, call: &str, ordinal: u64) {
        self.note(Occurrence::Call(call));
        if !self.attends.load(Ordering::Relaxed) {
            return;
        }
        // Without the lock: something happens to a device.
        let attendants = self.attendants.lock().clone();
        let key = CallKey { call, ordinal, qp: None };
        let gone: Vec<_> = attendants.iter().filter(|attendant| !attendant(&key)).collect();
        if !gone.is_empty() {
            let is_gone = |one: &CallAttendant| gone.iter().any(|gone| Arc::ptr_eq(gone, one));
            self.attendants.lock().retain(|one| !is_gone(one));
        }
    }

    /// From now on this is told of each call that has returned, in the thread that made it, if something
    /// happens to the device then.
    pub fn attend(&self, attendant: CallAttendant) {
        self.attendants.lock().push(attendant);
    }

    /// Where a trigger of the plan stands; `None` if the plan does not have it.
    pub(crate) fn gate(&self, trigger: &Trigger) -> Option<Gate> {
        let conditions = self.conditions();
        let known = conditions.iter().find(|one| one.trigger == *trigger && !one.is_live)?;
        Some(Gate(Arc::clone(known)))
    }

    /// Where a trigger of a rule stands: one that comes while the program runs waits for what happens from
    /// then on.
    pub(super) fn gate_for(&self, trigger: &Trigger, is_live: bool) -> Option<Gate> {
        if is_live { Some(self.begin(trigger, true)) } else { self.gate(trigger) }
    }

    /// A rule comes while the program runs.
    pub fn admit(&self, rule: &Rule) {
        if is_of_calls(rule) {
            self.attends.store(true, Ordering::Relaxed);
        }
    }

    /// Something happened.
    pub fn note(&self, occurrence: Occurrence<'_>) {
        for condition in self.conditions().iter() {
            let amount = condition.trigger.amount_of(occurrence);
            if amount > 0 {
                let missing = |left: u64| Some(left.saturating_sub(amount));
                // It is never refused.
                let _ = condition.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, missing);
            }
        }
    }
}

/// Whether something happens to the device by it when a call has returned.
fn is_of_calls(rule: &Rule) -> bool {
    match &rule.what {
        What::Recorded(recording) => recording.calls.iter().any(|call| call.fate.incident.is_some()),
        _ => rule.incident_after_call().is_some(),
    }
}

impl Gate {
    /// How much of the time is left that it waits for, in ns.
    pub fn time_left_ns(&self) -> u64 {
        let Condition { trigger, begin_ns, clock, .. } = &*self.0;
        match trigger {
            Trigger::Time { ns } => ns.saturating_sub(clock.now_ns().saturating_sub(*begin_ns)),
            _ => 0,
        }
    }

    /// Whether it has happened.
    pub fn is_open(&self) -> bool {
        let Condition { trigger, left, begin_ns, clock, .. } = &*self.0;
        match trigger {
            Trigger::Time { ns } => clock.now_ns().saturating_sub(*begin_ns) >= *ns,
            _ => left.load(Ordering::Acquire) == 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use pumice_ground::clock::VirtualTime;
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
        let gates: Vec<Gate> = plan.triggers().map(|trigger| triggers.gate(trigger).unwrap()).collect();
        let open = || gates.iter().map(Gate::is_open).collect::<Vec<_>>();
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
        let gates: Vec<Gate> = plan.triggers().map(|trigger| triggers.gate(trigger).unwrap()).collect();
        let open = || gates.iter().map(Gate::is_open).collect::<Vec<_>>();
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
