//! The one place where it is counted what the rules of a plan wait for.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::calls::CallKey;
use super::plan::{FaultPlan, What};
use super::trigger::{Occurrence, Trigger};
use crate::ground::clock::Clock;

/// The triggers of a plan at work in one process: shared by all that asks the plan.
#[derive(Debug)]
pub struct Triggers {
    conditions: Vec<Condition>,
    /// Something happens to the device at calls that a report names.
    has_calls: bool,
    attendant: Attendant,
    clock: Clock,
    begin_ns: u64,
}

/// Is told of each call that has returned, by its name and ordinal.
type Attends = dyn Fn(&CallKey<'_>) + Send + Sync;

#[derive(Default)]
struct Attendant(Mutex<Option<Arc<Attends>>>);

impl fmt::Debug for Attendant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Attendant")
    }
}

impl Attendant {
    fn lock(&self) -> MutexGuard<'_, Option<Arc<Attends>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Condition {
    trigger: Trigger,
    /// How much is missing; 0: it has happened.
    left: AtomicU64,
}

/// Whether one trigger of a process has happened.
#[derive(Debug, Clone)]
pub(crate) struct Gate {
    triggers: Arc<Triggers>,
    index: usize,
}

impl Triggers {
    /// The triggers of a plan, none of which has happened; `clock` is for those that are about time.
    pub fn new(plan: &FaultPlan, clock: &Clock) -> Arc<Triggers> {
        let mut conditions: Vec<Condition> = Vec::new();
        for trigger in plan.triggers() {
            if !conditions.iter().any(|known| known.trigger == *trigger) {
                let left = AtomicU64::new(trigger.amount());
                conditions.push(Condition { trigger: trigger.clone(), left });
            }
        }
        let has_calls = plan.rules().iter().any(|rule| match &rule.what {
            What::Recorded(recording) => recording.calls.iter().any(|call| call.fate.incident.is_some()),
            _ => false,
        });
        let (attendant, begin_ns) = (Attendant::default(), clock.now_ns());
        Arc::new(Triggers { conditions, has_calls, attendant, clock: clock.clone(), begin_ns })
    }

    /// Whether work requests that are carried out have to be told of.
    pub(crate) fn count_work(&self) -> bool {
        self.conditions
            .iter()
            .any(|one| matches!(one.trigger, Trigger::Completions { .. } | Trigger::Bytes { .. }))
    }

    /// Whether calls that return have to be told of.
    pub fn count_calls(&self) -> bool {
        self.has_calls || self.conditions.iter().any(|one| matches!(one.trigger, Trigger::Calls { .. }))
    }

    /// A call of this name has returned, which had this ordinal among those of its name.
    pub fn called(&self, call: &str, ordinal: u64) {
        self.note(Occurrence::Call(call));
        let attendant = self.attendant.lock().clone();
        if let Some(attendant) = attendant {
            attendant(&CallKey { call, ordinal, qp: None });
        }
    }

    /// From now on this is told of each call that has returned, in the thread that made it.
    pub(crate) fn attend(&self, attendant: Arc<Attends>) {
        *self.attendant.lock() = Some(attendant);
    }

    /// Whether asynchronous events that the program gets have to be told of.
    pub(crate) fn count_events(&self) -> bool {
        self.conditions.iter().any(|one| matches!(one.trigger, Trigger::Event(_)))
    }

    /// Where a trigger of the plan stands; `None` if the plan does not have it.
    pub(crate) fn gate(self: &Arc<Triggers>, trigger: &Trigger) -> Option<Gate> {
        let index = self.conditions.iter().position(|one| one.trigger == *trigger)?;
        Some(Gate { triggers: Arc::clone(self), index })
    }

    /// Something happened.
    pub(crate) fn note(&self, occurrence: Occurrence<'_>) {
        for condition in &self.conditions {
            let amount = condition.trigger.amount_of(occurrence);
            if amount > 0 {
                let missing = |left: u64| Some(left.saturating_sub(amount));
                // It is never refused.
                let _ = condition.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, missing);
            }
        }
    }
}

impl Gate {
    /// Whether calls open it.
    pub(crate) fn is_of_calls(&self) -> bool {
        let condition = self.triggers.conditions.get(self.index);
        condition.is_some_and(|one| matches!(one.trigger, Trigger::Calls { .. }))
    }

    /// Whether it has happened.
    pub(crate) fn is_open(&self) -> bool {
        let Triggers { conditions, clock, begin_ns, .. } = &*self.triggers;
        conditions.get(self.index).is_none_or(|one| match one.trigger {
            Trigger::Time { ns } => clock.now_ns().saturating_sub(*begin_ns) >= ns,
            _ => one.left.load(Ordering::Acquire) == 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::clock::VirtualTime;
    use pumice_transport::types::AsyncEventType;

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
        assert!(triggers.count_calls() && triggers.count_events() && !triggers.count_work());
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
