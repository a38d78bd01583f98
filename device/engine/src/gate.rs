//! The gate at the entry of calls: calls are counted by name, rules of a fault plan make them fail or take
//! longer, and a lost device refuses them.
//!
//! Programs that are linked with the device have one for each device. The C ABI, whose calls begin before a
//! device is opened, has one for the process, and other subscribers.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pumice_calls::{Call, Ordinals};
use pumice_faults::calls::{CallFaults, CallRules};
use pumice_faults::{FaultPlan, Triggers};
use pumice_model::event::{Event, Subscriber, Subscribers, Topics};
use pumice_model::fates::CallKey;
use pumice_platform::clock::Clock;
use pumice_transport::types::{AsyncEventType, QpState};

/// The flags that calls check first.
#[derive(Debug, Clone, Default)]
pub struct CallWatch(Arc<GateFlags>);

#[derive(Debug, Default)]
struct GateFlags {
    /// True if calls of the data path have to stop at the gate.
    is_everything: AtomicBool,
    /// True if the device is lost.
    is_lost: AtomicBool,
}

impl Subscriber for CallWatch {
    fn topics(&self) -> Topics {
        Topics::ASYNC_EVENTS
    }

    fn on_event(&self, _at_ns: u64, event: &Event<'_>) {
        if matches!(event, Event::AsyncEventRaised { event: AsyncEventType::DeviceFatal, .. }) {
            self.0.is_lost.store(true, Ordering::SeqCst);
            self.0.is_everything.store(true, Ordering::SeqCst);
        }
    }
}

/// The gate of a device, or of a process.
pub struct CallGate {
    shared: Arc<GateState>,
    ordinals: Box<dyn CallNumbers>,
    events: Arc<Subscribers>,
}

impl fmt::Debug for CallGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallGate").field("lets_pass", &self.lets_pass()).finish_non_exhaustive()
    }
}

/// Assigns ordinals to calls.
pub trait CallNumbers: Send + Sync {
    /// Counts a call, and returns its ordinal among the calls of its name, from 1.
    fn add(&self, call: Call) -> u64;

    /// Takes back the count of a call that this thread counted.
    fn take_back(&self, call: Call, ordinal: u64);
}

impl CallNumbers for Ordinals {
    fn add(&self, call: Call) -> u64 {
        Ordinals::add(self, call)
    }

    fn take_back(&self, call: Call, _ordinal: u64) {
        Ordinals::take_back(self, call);
    }
}

/// The state that the gate shares with those who change its rules.
struct GateState {
    watch: CallWatch,
    faults: Mutex<CallFaults>,
    triggers: Arc<Triggers>,
}

impl GateState {
    fn lock(&self) -> MutexGuard<'_, CallFaults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Updates whether calls of the data path have to stop.
    fn update_flags(&self, faults: &CallFaults) {
        let GateFlags { is_everything, is_lost } = &*self.watch.0;
        let watches = faults.is_active() || self.triggers.count_calls();
        is_everything.store(watches, Ordering::SeqCst);
        if is_lost.load(Ordering::SeqCst) {
            is_everything.store(true, Ordering::SeqCst);
        }
    }
}

impl CallRules for GateState {
    fn change(&self, change: &mut dyn FnMut(&mut CallFaults)) {
        let mut faults = self.lock();
        change(&mut faults);
        self.update_flags(&faults);
    }
}

/// A call that has entered the gate, and has to leave it.
#[derive(Debug, Clone, Copy)]
#[must_use = "the call has to leave"]
pub struct EnteredCall {
    call: Call,
    key: CallKey<'static>,
    is_met: bool,
    /// The errno with which the call fails instead of being carried out.
    pub refused: Option<i32>,
    /// True if the call does nothing because the device is lost.
    pub is_lost: bool,
    /// Additional time that the call takes, in ns.
    pub delay_ns: u64,
}

impl EnteredCall {
    /// Returns the entered call.
    pub const fn call(&self) -> Call {
        self.call
    }

    /// Returns the ordinal of the call among those of this name, from 1.
    pub const fn ordinal(&self) -> u64 {
        self.key.ordinal
    }
}

/// The end of a call.
#[derive(Debug, Clone, Copy)]
pub enum CallEnd<'a> {
    /// The call was carried out.
    Done,
    /// The call found nothing. How often programs poll depends on time, so the call does not count.
    Idle,
    /// The call was refused.
    Refused {
        /// The errno with which the call ends.
        errno: i32,
        /// The reason, in words.
        why: &'a str,
    },
}

impl CallGate {
    /// Returns the gate of a device without rules about calls.
    pub fn open(events: Arc<Subscribers>, device: &str, clock: &Clock) -> CallGate {
        let triggers = Triggers::new(&FaultPlan::new(), clock);
        let faults = CallFaults::new(&FaultPlan::new(), device, &triggers);
        CallGate::new(CallWatch::default(), faults, triggers, events)
    }

    /// Returns the gate of a device with these rules about calls.
    pub fn new(
        watch: CallWatch,
        faults: CallFaults,
        triggers: Arc<Triggers>,
        events: Arc<Subscribers>,
    ) -> CallGate {
        let shared = GateState { watch, faults: Mutex::new(faults), triggers };
        shared.update_flags(&shared.lock());
        CallGate { shared: Arc::new(shared), ordinals: Box::new(Ordinals::new()), events }
    }

    /// Returns the gate with another source of ordinals than a count of all calls that come here.
    #[must_use]
    pub fn numbered_by(self, ordinals: Box<dyn CallNumbers>) -> CallGate {
        CallGate { ordinals, ..self }
    }

    /// Returns the rules, for those who change them.
    pub fn rules(&self) -> Arc<dyn CallRules> {
        Arc::<GateState>::clone(&self.shared)
    }

    /// Reports whether calls of the data path need not stop here.
    #[inline]
    pub fn lets_pass(&self) -> bool {
        !self.shared.watch.0.is_everything.load(Ordering::Relaxed)
    }

    /// Calls `look` with the rules; returns `None` if another thread has them locked, because programs also
    /// end in signal handlers.
    pub fn look<T>(&self, look: impl FnOnce(&CallFaults) -> T) -> Option<T> {
        Some(look(&*self.shared.faults.try_lock().ok()?))
    }

    /// Returns the subscribers of events at the gate.
    pub(crate) fn events(&self) -> &Arc<Subscribers> {
        &self.events
    }

    /// Records that a call enters: it is counted, and the rules are asked. `qp` returns the ordinal of its
    /// queue pair; `to` is the state to which the call moves that queue pair.
    pub fn enter(&self, call: Call, to: Option<QpState>, qp: impl FnOnce() -> Option<u32>) -> EnteredCall {
        if self.lets_pass() {
            let key = CallKey { call: call.name(), ordinal: self.ordinals.add(call), qp: None, to };
            return EnteredCall { call, key, is_met: false, refused: None, is_lost: false, delay_ns: 0 };
        }
        let asks = self.shared.lock().need_queue_pairs();
        let qp = if asks { qp() } else { None };
        let is_lost = self.shared.watch.0.is_lost.load(Ordering::Acquire) && !call.outlives_device();
        // The lock makes rules count in the order of ordinals.
        let mut faults = self.shared.lock();
        let key = CallKey { call: call.name(), ordinal: self.ordinals.add(call), qp, to };
        let refused = is_lost.then_some(libc::EIO);
        let mut entered = EnteredCall { call, key, is_met: false, refused, is_lost, delay_ns: 0 };
        if !is_lost {
            let fate = faults.decide(&key, &mut |fired| {
                entered.is_met = true;
                self.events.emit(&Event::CallFaultApplied { fault: fired });
            });
            (entered.refused, entered.delay_ns) = (fate.errno, fate.delay_ns);
        }
        entered
    }

    /// Records that a call that has entered leaves.
    pub fn leave(&self, entered: &EnteredCall, end: CallEnd<'_>) {
        let EnteredCall { call, key, is_met, .. } = entered;
        match end {
            CallEnd::Idle if !is_met => return self.take_back(*call, key),
            CallEnd::Idle | CallEnd::Done => {}
            CallEnd::Refused { errno, why } => self.refused(*call, Some(key.ordinal), errno, why),
        }
        let triggers = &self.shared.triggers;
        if triggers.count_calls() {
            triggers.called(key.call, key.ordinal);
        }
    }

    /// Records a refusal of a call that did not stop here, or has an ordinal.
    pub fn refused(&self, call: Call, ordinal: Option<u64>, errno: i32, why: &str) {
        let call = call.name();
        self.events.emit(&Event::CallRefused { call, ordinal, errno, why });
    }

    fn take_back(&self, call: Call, key: &CallKey<'static>) {
        if self.lets_pass() {
            return self.ordinals.take_back(call, key.ordinal);
        }
        let mut faults = self.shared.lock();
        self.ordinals.take_back(call, key.ordinal);
        faults.take_back(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Told(Arc<Mutex<Vec<String>>>);

    impl Subscriber for Told {
        fn topics(&self) -> Topics {
            Topics::CALLS | Topics::FAULTS
        }

        fn on_event(&self, _at_ns: u64, event: &Event<'_>) {
            self.0.lock().unwrap().push(match event {
                Event::CallFaultApplied { fault } => fault.sentence(),
                Event::CallRefused { call, ordinal, errno, why } => {
                    format!("{call} {ordinal:?} {errno} {why}")
                }
                other => format!("{other:?}"),
            });
        }
    }

    /// Returns a gate with this rule, and the events that it emits.
    fn gate(rule: Option<&str>) -> (CallGate, CallWatch, Arc<Mutex<Vec<String>>>) {
        let plan = rule.iter().fold(FaultPlan::seeded(1), |plan, line| plan.with_line(line).unwrap());
        let listener = Told::default();
        let (heard, clock) = (Arc::clone(&listener.0), Clock::monotonic());
        let events = Arc::new(Subscribers::new(vec![Box::new(listener)], clock.clone()));
        let triggers = Triggers::new(&plan, &clock);
        let faults = CallFaults::new(&plan, "one", &triggers);
        let watch = CallWatch::default();
        (CallGate::new(watch.clone(), faults, triggers, events), watch, heard)
    }

    #[test]
    fn calls_that_rules_meet_and_calls_that_are_refused_are_events() {
        let (gate, _, heard) = gate(Some("fail call=ibv_alloc_pd nth=2"));
        assert!(!gate.lets_pass());
        for wanted in [None, Some(libc::ENOMEM)] {
            let entered = gate.enter(Call::ibv_alloc_pd, None, || None);
            assert_eq!((entered.refused, entered.is_lost), (wanted, false));
            let end = match entered.refused {
                Some(errno) => CallEnd::Refused { errno, why: "planned" },
                None => CallEnd::Done,
            };
            gate.leave(&entered, end);
        }
        let met = "fault \"fail\" fails ibv_alloc_pd with ENOMEM (call 2 of this name)";
        assert_eq!(*heard.lock().unwrap(), [met, "ibv_alloc_pd Some(2) 12 planned"]);
    }

    #[test]
    fn calls_that_find_nothing_do_not_count() {
        let (gate, _, heard) = gate(Some("fail call=ibv_poll_cq nth=2"));
        for _ in 0..3 {
            let entered = gate.enter(Call::ibv_poll_cq, None, || None);
            gate.leave(&entered, CallEnd::Idle);
        }
        gate.leave(&gate.enter(Call::ibv_poll_cq, None, || None), CallEnd::Done);
        assert_eq!(gate.enter(Call::ibv_poll_cq, None, || None).refused, Some(libc::EIO));
        assert_eq!(heard.lock().unwrap().len(), 1);
    }

    #[test]
    fn a_lost_device_refuses_all_but_its_events() {
        use pumice_model::event::async_event::AsyncElement;
        let (gate, watch, _) = gate(None);
        assert!(gate.lets_pass() && gate.enter(Call::ibv_alloc_pd, None, || None).refused.is_none());
        let (event, element) = (AsyncEventType::DeviceFatal, AsyncElement::Device);
        watch.on_event(0, &Event::AsyncEventRaised { event, element });
        let entered = gate.enter(Call::ibv_alloc_pd, None, || None);
        assert!(!gate.lets_pass() && entered.is_lost && entered.refused == Some(libc::EIO));
        assert_eq!(gate.enter(Call::ibv_get_async_event, None, || None).refused, None);
    }
}
