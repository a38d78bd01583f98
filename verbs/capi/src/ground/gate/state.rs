//! The gate of this process, and what calls of the data path look at first.
//!
//! It is the gate that programs have that are linked with the device ([`CallGate`]), with the rules of this
//! process's settings and with listeners of its own ([`super::fired`]).

use std::sync::{Arc, OnceLock};

use pumice_calls::Call;
use pumice_device::event::{CallMade, CallPhase, Event, Subscribers};
use pumice_device::faults::Triggers;
use pumice_device::faults::calls::{CallFaults, CallRules};
use pumice_device::ground::clock::Clock;
use pumice_device::ground::order;
use pumice_device::hca::{CallEnd, CallGate, CallWatch, Entered};
use pumice_device::outside;
use pumice_device::outside::lineage::PerProcess;
use pumice_device::settings::Log;

use super::about::About;
use super::counts::{self, Counts};
use super::watch::{Watch, look_at};
use super::{evidence, fired, inventory, report};
use crate::ground::check;
use crate::ground::connections;
use crate::ground::environment;
use crate::ground::log::{log_at, logs, print_always};
use crate::ground::waits;

/// The gate, and what it was made of.
struct Gate {
    calls: CallGate,
    rules: Arc<dyn CallRules>,
    /// What rules of the plan wait for.
    triggers: Arc<Triggers>,
}

/// A fork counts from the beginning.
static GATE: PerProcess<OnceLock<Gate>> = PerProcess::new(|_| OnceLock::new());

fn gate() -> &'static Gate {
    GATE.get_or_init(|| {
        let gate = Gate::new();
        gate.look_anew();
        gate
    })
}

/// A call of the program's enters: its ordinal, and what happens to it.
pub(super) fn enter(call: Call, about: About) -> Entered {
    let queue_pair = || about.queue_pair.and_then(|ordinal| ordinal(about.address));
    let (entered, told) = fired::about(about, || gate().calls.enter(call, queue_pair));
    // Without the lock of the rules: standard error may be slow.
    for sentence in told {
        log_at(Log::Warn, || sentence);
    }
    entered
}

/// A call has found nothing, and does not count after all.
pub(super) fn take_back(entered: &Entered) {
    gate().calls.leave(entered, CallEnd::Idle);
}

/// A call has returned that counts.
pub(super) fn returned(entered: &Entered) {
    gate().calls.leave(entered, CallEnd::Done);
}

/// Peers can connect from now on.
pub(super) fn hear(event: &Event<'_>) {
    if let Event::Call { made: CallMade { call, .. }, phase: CallPhase::Returns } = event
        && call.listens()
    {
        report::listens();
    }
}

/// What rules of the plan wait for in this process.
pub(crate) fn triggers() -> Arc<Triggers> {
    Arc::clone(&gate().triggers)
}

/// Changes the rules about calls while the program runs.
pub(super) fn change(change: &mut dyn FnMut(&mut CallFaults)) {
    let gate = gate();
    gate.rules.change(&mut |faults| {
        change(faults);
        evidence::begin(faults);
    });
    gate.look_anew();
}

/// Looks again which calls have to stop here.
pub(crate) fn look_anew() {
    gate().look_anew();
}

/// The process ends. Takes no lock that is held: programs also exit from signal handlers.
pub(super) fn farewell() {
    let Some(gate) = GATE.if_made().and_then(OnceLock::get) else { return };
    let never = gate.calls.look(|faults| {
        evidence::end(faults);
        faults.unfired().map(|name| format!("\"{name}\"")).collect::<Vec<_>>()
    });
    let Some(never) = never else { return };
    if !never.is_empty() && logs(Log::Warn) {
        print_always(&format!("these rules of the fault plan never applied: {}", never.join(", ")));
    }
    report::ended(&counts::ALL);
}

impl Gate {
    fn new() -> Gate {
        let settings = environment::settings().ok();
        if settings.and_then(|settings| settings.call_report.as_deref()).is_some_and(report::begin) {
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
        let clock = Clock::monotonic();
        let triggers = Triggers::new(&plan, &clock);
        let faults = CallFaults::new(&plan, &tag, &triggers);
        evidence::begin(&faults);
        let listeners = Arc::new(Subscribers::new(fired::subscribers(), clock));
        let calls = CallGate::new(CallWatch::default(), faults, Arc::clone(&triggers), listeners);
        let calls = calls.numbered_by(Box::new(Counts));
        Gate { rules: calls.rules(), calls, triggers }
    }

    /// Whether calls of the data path have to stop at the gate is found out anew.
    fn look_anew(&self) {
        let is_asked = !self.calls.lets_pass()
            || report::is_written()
            || outside::world::is_here()
            || order::of_process().is_some()
            || waits::is_asked();
        look_at(match is_asked {
            true => Watch::Everything,
            false if check::is_on() => Watch::Checks,
            false => Watch::Little,
        });
    }
}
