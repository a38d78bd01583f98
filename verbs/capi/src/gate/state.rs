//! The gate of this process, the counts of calls, and the byte that calls of the data path read first.
//!
//! It is the gate of programs that are linked with the device ([`CallGate`]), with the rules of this
//! process's settings and with subscribers of its own ([`super::fired`]).

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use pumice_calls::{Call, Ordinals};
use pumice_device::event::{CallMade, CallPhase, Event, Subscribers};
use pumice_device::faults::calls::{CallFaults, CallRules};
use pumice_device::faults::{FaultPlan, Triggers};
use pumice_device::hca::{CallEnd, CallGate, CallNumbers, CallWatch, EnteredCall, Hca};
use pumice_device::outside;
use pumice_device::outside::fork_generation::{InheritedOnce, PerProcess};
use pumice_device::outside::thread::ThreadName;
use pumice_device::outside::world;
use pumice_device::performance::{Cost, Costs};
use pumice_device::platform::clock::Clock;
use pumice_device::platform::order;
use pumice_device::platform::ordinal::CallOrdinal;
use pumice_device::settings::LogLevel;

use super::fired::CallSubject;
use super::{fired, report};
use crate::call_sites::preload;
use crate::log::{log_at, logs, print_always};
use crate::{check, platform, waits};

/// Counts of all calls of this process: a forked process counts from the beginning.
pub(super) static ALL: PerProcess<Ordinals> = PerProcess::new(|_| Ordinals::new());
/// Counts of the first thread, and of threads without a name.
static OTHER_THREADS: PerProcess<Ordinals> = PerProcess::new(|_| Ordinals::new());

thread_local! {
    /// Counts of this thread, if it has a name and is not the first one.
    static OWN: RefCell<Option<Box<Ordinals>>> = const { RefCell::new(None) };
}

/// Counts calls by thread: racing threads get the same ordinals in every run.
pub(super) struct ThreadCallCounts;

impl CallNumbers for ThreadCallCounts {
    fn add(&self, call: Call) -> u64 {
        ALL.add(call);
        let thread = ThreadName::own().filter(|name| *name != ThreadName::MAIN);
        let own = |thread: ThreadName| {
            let nth = OWN.try_with(|own| Some(own.try_borrow_mut().ok()?.get_or_insert_default().add(call)));
            Some(CallOrdinal::of_thread(thread, nth.ok().flatten()?).0)
        };
        // A thread that is ending has no count of its own any more.
        thread.and_then(own).unwrap_or_else(|| OTHER_THREADS.add(call))
    }

    fn take_back(&self, call: Call, ordinal: u64) {
        ALL.take_back(call);
        if CallOrdinal(ordinal).parts().0.is_none() {
            return OTHER_THREADS.take_back(call);
        }
        let _ = OWN.try_with(|own| {
            if let Some(own) = own.try_borrow().ok().as_ref().and_then(|own| own.as_ref()) {
                own.take_back(call);
            }
        });
    }
}

/// Calls that the process examines.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum WatchLevel {
    /// The value is not determined yet.
    Unknown = 0,
    /// Calls off the data path, and no others.
    ControlPath = 1,
    /// All calls.
    Everything = 2,
    /// All calls, of which only the checker examines those of the data path.
    Checks = 3,
}

static WATCH: AtomicU8 = AtomicU8::new(WatchLevel::Unknown as u8);
/// True if a device was lost.
static LOST: AtomicBool = AtomicBool::new(false);

/// Reports whether calls of the data path need not stop at the gate.
#[inline]
pub(crate) fn lets_pass() -> bool {
    WATCH.load(Ordering::Relaxed) == WatchLevel::ControlPath as u8
}

/// Reports whether only the checker examines calls of the data path.
#[inline]
pub(super) fn is_for_checks() -> bool {
    WATCH.load(Ordering::Relaxed) == WatchLevel::Checks as u8
}

/// Sets the calls to examine; the caller holds the state's lock. A device lost meanwhile keeps its effect.
fn set_watch_level(watch: WatchLevel) {
    WATCH.store(watch as u8, Ordering::SeqCst);
    if LOST.load(Ordering::SeqCst) {
        WATCH.store(WatchLevel::Everything as u8, Ordering::SeqCst);
    }
}

/// Makes all calls check whether their device is the lost one.
pub(super) fn lose_device() {
    LOST.store(true, Ordering::SeqCst);
    WATCH.store(WatchLevel::Everything as u8, Ordering::SeqCst);
}

/// Reports whether a device was lost.
pub(super) fn is_lost() -> bool {
    LOST.load(Ordering::SeqCst)
}

/// The costs of the world's model; `None` without a model.
static COSTS: InheritedOnce<Option<Costs>> = InheritedOnce::new();
/// The devices that were opened.
static OPENED: PerProcess<Mutex<Vec<Weak<Hca>>>> = PerProcess::new(|_| Mutex::default());

fn costs() -> Option<&'static Costs> {
    COSTS.get_or_init(|| Costs::parse(&world::model()?)).as_ref()
}

/// Adds a device, whose arrivals polls in vain wait for.
pub(crate) fn device_opened(hca: &Arc<Hca>) {
    if world::is_in_world() && costs().is_some() {
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        opened.retain(|hca| hca.strong_count() > 0);
        opened.push(Arc::downgrade(hca));
    }
}

/// Lets the time of a call pass, or the time until a poll in vain can find something. Returns false if the
/// world has no model.
pub(super) fn pass(event: &Event<'_>) -> bool {
    let Some(costs) = costs() else { return false };
    match event {
        Event::Call { phase: CallPhase::Returns, made: CallMade { call, .. } } => {
            world::charge_call(call_ns(costs, *call), next_change_ns);
        }
        Event::Idle { made } => world::idle_poll_until(next_change_ns(), made.on, drives(made.call)),
        Event::Call { phase: CallPhase::Enters, made: CallMade { call, .. } } => {
            world::begin_call(call_ns(costs, *call) > 0);
        }
        _ => {}
    }
    true
}

/// Reports whether a call drives the device if it finds nothing.
const fn drives(call: Call) -> bool {
    matches!(call, Call::ibv_poll_cq | Call::ibv_start_poll)
}

/// Returns the time that the processor needs for a call, in ns.
fn call_ns(costs: &Costs, call: Call) -> u64 {
    let cost = match call {
        Call::ibv_post_send | Call::ibv_wr_complete => Cost::Post,
        Call::ibv_poll_cq | Call::ibv_start_poll | Call::ibv_next_poll => Cost::Poll,
        Call::ibv_reg_mr | Call::ibv_reg_mr_iova2 => Cost::Register,
        _ => return 0,
    };
    costs.get(cost) / 1000
}

/// Returns when the next of this process's devices does something, by the clock that all processes share.
fn next_change_ns() -> Option<u64> {
    let opened: Vec<Arc<Hca>> = {
        let opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        opened.iter().filter_map(Weak::upgrade).collect()
    };
    let next_ns = |hca: &Arc<Hca>| Some(hca.next_change_ns()?.saturating_add(hca.clock().origin_ns()));
    opened.iter().filter(|hca| hca.is_own()).filter_map(next_ns).min()
}

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
        report::begin_fault_report(faults);
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
        report::end_fault_report(faults);
        faults.unfired().map(|name| format!("\"{name}\"")).collect::<Vec<_>>()
    });
    let Some(never) = never else { return };
    if !never.is_empty() && logs(LogLevel::Warn) {
        print_always(&format!("these rules of the fault plan never applied: {}", never.join(", ")));
    }
    report::ended(&ALL);
}

impl Gate {
    fn new() -> Gate {
        let settings = platform::settings().ok();
        if settings.and_then(|settings| settings.call_report.as_deref()).is_some_and(report::begin) {
            report::enable();
        }
        // A plan that cannot be used is reported when the device is opened, which fails.
        let plan = settings.and_then(|settings| FaultPlan::of_settings(settings).ok()).unwrap_or_default();
        let tag =
            settings.map(|settings| settings.tag_of(outside::environment::arguments())).unwrap_or_default();
        if let Some(folder) = settings.and_then(|settings| settings.record.as_deref()) {
            order::begin(folder, &tag);
            fired::watch();
        }
        // In exact time a lock costs nothing, and threads change when time passes.
        if outside::world::is_in_world() && outside::world::model().is_none() {
            preload::watch_locks();
        }
        let clock = Clock::monotonic();
        let triggers = Triggers::new(&plan, &clock);
        let faults = CallFaults::new(&plan, &tag, &triggers);
        report::begin_fault_report(&faults);
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
