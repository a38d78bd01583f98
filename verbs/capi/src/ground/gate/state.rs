//! Counting calls, and asking the rules about them.

use std::cell::OnceCell;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pumice_calls::Call;
use pumice_device::event::Event;
use pumice_device::faults::Triggers;
use pumice_device::faults::calls::{CallFate, CallFaults, CallKey};
use pumice_device::ground::clock::Clock;
use pumice_device::ground::order;
use pumice_device::outside;
use pumice_device::outside::lineage::PerProcess;
use pumice_device::settings::Log;

use super::about::About;
use super::counts::{self, counted, take_back as take_back_count};
use super::current::Made;
use super::evidence::Evidence;
use super::inventory;
use super::report::GateReport;
use super::watch::{Watch, lets_pass, look_at};
use crate::ground::check;
use crate::ground::connections;
use crate::ground::environment;
use crate::ground::listeners;
use crate::ground::log::{log_always, log_at, logs, print_always};
use crate::ground::own_devices::name_of;
use crate::ground::waits;

/// What is known of the calls of this process.
struct State {
    faults: CallFaults,
    /// What rules of the plan wait for.
    triggers: Arc<Triggers>,
    report: Option<GateReport>,
    /// The report of faults, once there are rules about calls.
    evidence: Option<Evidence>,
}

static STATE: PerProcess<Mutex<Option<State>>> = PerProcess::new(|_| Mutex::new(None));

fn lock() -> MutexGuard<'static, Option<State>> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A call of the program's enters: its ordinal, and what happens to it. Without rules and without a report it
/// is counted, and that is all.
pub(super) fn enter(call: Call, about: About) -> (Made, CallFate) {
    if lets_pass() {
        let made = Made { call: Some(call), ordinal: counted(call), qp: None, is_met: false };
        return (made, CallFate::default());
    }
    let mut told = Vec::new();
    let entered = {
        let mut guard = lock();
        let state = State::of(&mut guard);
        look_at(state.watch());
        state.enter(call, about, &mut told)
    };
    // Without the lock: standard error may be slow.
    for sentence in told {
        log_at(Log::Warn, || sentence);
    }
    entered
}

/// A call does not count after all.
pub(super) fn take_back(call: Call, made: &Made) {
    if made.is_met {
        return;
    }
    if lets_pass() {
        return take_back_count(call, made.ordinal);
    }
    let mut guard = lock();
    take_back_count(call, made.ordinal);
    if let Some(state) = guard.as_mut() {
        state.faults.take_back(&CallKey { call: call.name(), ordinal: made.ordinal, qp: made.qp });
    }
}

/// What rules of the plan wait for in this process.
pub(crate) fn triggers() -> Arc<Triggers> {
    Arc::clone(&State::of(&mut lock()).triggers)
}

/// Changes the rules about calls while the program runs.
pub(super) fn change(change: &mut dyn FnMut(&mut CallFaults)) {
    let mut guard = lock();
    let state = State::of(&mut guard);
    change(&mut state.faults);
    state.begin_evidence();
    look_at(state.watch());
}

/// A call has returned that counts.
pub(super) fn returned(call: Call, made: &Made) {
    if lets_pass() {
        return;
    }
    let triggers =
        lock().as_ref().filter(|state| state.counts_calls()).map(|state| Arc::clone(&state.triggers));
    if let Some(triggers) = triggers {
        triggers.called(call.name(), made.ordinal);
    }
}

/// Looks again which calls have to stop here.
pub(crate) fn look_anew() {
    let mut guard = lock();
    look_at(State::of(&mut guard).watch());
}

/// Peers can connect from now on.
pub(super) fn listens() {
    if let Some(report) = lock().as_mut().and_then(|state| state.report.as_mut()) {
        report.listens();
    }
}

/// The process ends. Takes no lock that is held: programs also exit from signal handlers.
pub(super) fn farewell() {
    let Ok(mut guard) = STATE.try_lock() else { return };
    let Some(state) = guard.as_mut() else { return };
    if let Some(evidence) = &mut state.evidence {
        evidence.end(&state.faults);
    }
    let never: Vec<String> = state.faults.unfired().map(|name| format!("\"{name}\"")).collect();
    if !never.is_empty() && logs(Log::Warn) {
        print_always(&format!("these rules of the fault plan never applied: {}", never.join(", ")));
    }
    if let Some(report) = &mut state.report {
        report.ended(&counts::ALL, inventory::leftovers().as_deref());
    }
}

impl State {
    fn new() -> State {
        let settings = environment::settings().ok();
        let report = settings.and_then(|settings| settings.call_report.as_deref()).and_then(open_report);
        if report.is_some() {
            inventory::keep();
        }
        // A plan that cannot be used is said when the device is opened, which fails.
        let plan = settings.and_then(|settings| settings.load_faults().ok()).unwrap_or_default();
        let tag =
            settings.map(|settings| settings.tag_of(outside::environment::arguments())).unwrap_or_default();
        if let Some(folder) = settings.and_then(|settings| settings.record.as_deref()) {
            order::begin(folder, &tag);
            connections::watch();
        }
        let triggers = Triggers::new(&plan, &Clock::monotonic());
        let faults = CallFaults::new(&plan, &tag, &triggers);
        let mut state = State { faults, triggers, report, evidence: None };
        state.begin_evidence();
        state
    }

    /// That of this process: a fork counts from the beginning.
    fn of(known: &mut Option<State>) -> &mut State {
        known.get_or_insert_with(State::new)
    }

    /// Begins the report of faults, if there are rules and it has not begun.
    fn begin_evidence(&mut self) {
        let pattern = environment::settings().ok().and_then(|settings| settings.fault_report.as_deref());
        if let Some(pattern) = pattern.filter(|_| self.evidence.is_none() && self.faults.is_active()) {
            // That it cannot be written is said when the device is opened, too.
            self.evidence = Evidence::begin(pattern, &self.faults).ok();
        }
    }

    fn counts_calls(&self) -> bool {
        self.triggers.count_calls()
    }

    fn watch(&self) -> Watch {
        if self.faults.is_active()
            || self.report.is_some()
            || self.counts_calls()
            || check::is_on()
            || outside::world::is_here()
            || order::of_process().is_some()
            || waits::is_asked()
        {
            Watch::Everything
        } else {
            Watch::Little
        }
    }

    /// The lock of the state keeps the order in which rules count that of ordinals.
    fn enter(&mut self, call: Call, about: About, told: &mut Vec<String>) -> (Made, CallFate) {
        let ordinal = counted(call);
        let asks = self.faults.need_queue_pairs();
        let qp = about.queue_pair.filter(|_| asks).and_then(|ordinal| ordinal(about.address));
        let (mut fate, mut is_met) = (CallFate::default(), false);
        if self.faults.is_active() {
            let device = OnceCell::new();
            let device = || *device.get_or_init(|| about.device());
            let (report, evidence) = (&mut self.report, &mut self.evidence);
            fate = self.faults.decide(&CallKey { call: call.name(), ordinal, qp }, &mut |fired| {
                is_met = true;
                let device = device();
                let named = device.and_then(name_of);
                told.push(named.map_or(String::new(), |name| format!("{name}: ")) + &fired.sentence());
                listeners::emit(device, &Event::CallFaultApplied { fault: fired });
                if let Some(report) = report {
                    report.fired(fired);
                }
                if let Some(evidence) = evidence {
                    evidence.fired(fired, named);
                }
            });
        }
        (Made { call: Some(call), ordinal, qp, is_met }, fate)
    }
}

fn open_report(path: &Path) -> Option<GateReport> {
    GateReport::open(path).map_err(|sentence| log_always(&sentence)).ok()
}
