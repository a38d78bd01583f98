//! The gate of this process, and the byte that calls of the data path read first.
//!
//! It is the gate of programs that are linked with the device ([`CallGate`]), with the rules of this
//! process's settings and with subscribers of its own ([`super::fired`]).

use std::sync::{Arc, OnceLock};

use pumice_calls::Call;
use pumice_device::event::{CallMade, CallPhase, Event, Subscribers};
use pumice_device::faults::Triggers;
use pumice_device::faults::calls::{CallFaults, CallRules};
use pumice_device::hca::{CallEnd, CallGate, CallWatch, EnteredCall};
use pumice_device::outside;
use pumice_device::outside::fork_generation::PerProcess;
use pumice_device::platform::clock::Clock;
use pumice_device::platform::order;
use pumice_device::settings::LogLevel;

use super::about::CallSubject;
use super::counts::{self, ThreadCallCounts};
use super::watch::{WatchLevel, set_watch_level};
use super::{fault_report_file, fired, inventory, report};
use crate::call_sites::preload;
use crate::check;
use crate::gate::connections;
use crate::log::{log_at, logs, print_always};
use crate::platform::environment;
use crate::waits;
use pumice_device::faults::FaultPlan;

/// The gate, and its parts.
struct Gate {
    calls: CallGate,
    rules: Arc<dyn CallRules>,
    /// Triggers that rules of the plan wait for.
    triggers: Arc<Triggers>,
}

/// The gate of this process: a forked process counts from the beginning.
static GATE: PerProcess<OnceLock<Gate>> = PerProcess::new(|_| OnceLock::new());

fn gate() -> &'static Gate {
    GATE.get_or_init(|| {
        let gate = Gate::new();
        gate.refresh_watch();
        gate
    })
}

/// Lets a call of the program enter; returns its ordinal and its fate.
pub(super) fn enter(call: Call, about: CallSubject) -> EnteredCall {
    let queue_pair = || about.queue_pair.and_then(|ordinal| ordinal(about.address));
    let (entered, messages) = fired::about(about, || gate().calls.enter(call, about.to, queue_pair));
    // The lock of the rules is not held here: standard error may be slow.
    for sentence in messages {
        log_at(LogLevel::Warn, || sentence);
    }
    entered
}

/// Takes a call back that has found nothing, so that it does not count.
pub(super) fn take_back(entered: &EnteredCall) {
    gate().calls.leave(entered, CallEnd::Idle);
}

/// Records that a call that counts has returned.
pub(super) fn returned(entered: &EnteredCall) {
    gate().calls.leave(entered, CallEnd::Done);
}

/// Reports that peers can connect, after the call that makes this possible.
pub(super) fn on_event(event: &Event<'_>) {
    if let Event::Call { made: CallMade { call, .. }, phase: CallPhase::Returns } = event
        && call.listens()
    {
        report::listens();
    }
}

/// Returns the triggers that rules of the plan wait for in this process.
pub(crate) fn triggers() -> Arc<Triggers> {
    Arc::clone(&gate().triggers)
}

/// Changes the rules about calls while the program runs.
pub(super) fn change(change: &mut dyn FnMut(&mut CallFaults)) {
    let gate = gate();
    gate.rules.change(&mut |faults| {
        change(faults);
        fault_report_file::begin(faults);
    });
    gate.refresh_watch();
}

/// Determines again which calls have to stop here.
pub(crate) fn refresh_watch() {
    gate().refresh_watch();
}

/// Ends the gate at the end of the process. It waits for no lock: programs also exit from signal handlers.
pub(super) fn finish() {
    let Some(gate) = GATE.get_if_created().and_then(OnceLock::get) else { return };
    let never = gate.calls.look(|faults| {
        fault_report_file::end(faults);
        faults.unfired().map(|name| format!("\"{name}\"")).collect::<Vec<_>>()
    });
    let Some(never) = never else { return };
    if !never.is_empty() && logs(LogLevel::Warn) {
        print_always(&format!("these rules of the fault plan never applied: {}", never.join(", ")));
    }
    report::ended(&counts::ALL);
}

impl Gate {
    fn new() -> Gate {
        let settings = environment::settings().ok();
        if settings.and_then(|settings| settings.call_report.as_deref()).is_some_and(report::begin) {
            inventory::enable();
        }
        // A plan that cannot be used is reported when the device is opened, which fails.
        let plan = settings.and_then(|settings| FaultPlan::of_settings(settings).ok()).unwrap_or_default();
        let tag =
            settings.map(|settings| settings.tag_of(outside::environment::arguments())).unwrap_or_default();
        if let Some(folder) = settings.and_then(|settings| settings.record.as_deref()) {
            order::begin(folder, &tag);
            connections::watch();
        }
        // In exact time a lock costs nothing, and threads change when time passes.
        if outside::world::is_in_world() && outside::world::model().is_none() {
            preload::watch_locks();
        }
        let clock = Clock::monotonic();
        let triggers = Triggers::new(&plan, &clock);
        let faults = CallFaults::new(&plan, &tag, &triggers);
        fault_report_file::begin(&faults);
        let listeners = Arc::new(Subscribers::new(fired::subscribers(), clock));
        let calls = CallGate::new(CallWatch::default(), faults, Arc::clone(&triggers), listeners);
        let calls = calls.numbered_by(Box::new(ThreadCallCounts));
        Gate { rules: calls.rules(), calls, triggers }
    }

    /// Determines again whether calls of the data path have to stop at the gate.
    fn refresh_watch(&self) {
        let is_queried = !self.calls.lets_pass()
            || report::is_written()
            || outside::world::is_in_world()
            || order::of_process().is_some()
            || waits::is_queried();
        set_watch_level(match is_queried {
            true => WatchLevel::Everything,
            false if check::is_on() => WatchLevel::Checks,
            false => WatchLevel::ControlPath,
        });
    }
}
