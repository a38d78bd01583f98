//! The background thread: it executes the actions of the policy, and drives the engine while the application
//! does not.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use pumice_model::addresses::address_handle::AddressWatch;
use pumice_platform::error::ResourceError;
use pumice_platform::outside;
use pumice_platform::outside::event_fd::EventFd;
use pumice_platform::outside::system_call::wait_readable;
use pumice_platform::outside::world::EndlessWait;
use pumice_platform::word::AtomicWord;

use super::core::Core;
use super::handover::{Bell, Handover};
use super::policy::{PendingWork, Policy, PolicyAction, PolicyInput};
use crate::engine::{Acknowledge, Engine};
use crate::resources::MappingCheckPolicy;

/// The handle of the background thread.
pub(crate) struct Background {
    core: Arc<Core>,
    thread: JoinHandle<()>,
}

impl Background {
    /// Starts the thread.
    ///
    /// # Errors
    /// The operating system cannot create a thread.
    pub(crate) fn start(core: Arc<Core>, watch: Option<AddressWatch>) -> Result<Background, ResourceError> {
        let descriptor = watch.as_ref().map(AddressWatch::descriptor);
        let mut host = HostThread { core: Arc::clone(&core), watch, descriptor, next_check_ns: 0 };
        let thread =
            outside::thread::start("pumice-engine", None, move || run(&mut host)).map_err(|error| {
                ResourceError::Os {
                    what: "start the engine's background thread",
                    errno: error.raw_os_error().unwrap_or(libc::EAGAIN),
                }
            })?;
        Ok(Background { core, thread })
    }

    /// Stops the thread and waits for it.
    pub(crate) fn stop(self) {
        self.core.handover.stop();
        // A panic in the thread has been reported where it happened.
        let _ = self.thread.join();
    }
}

/// The environment of the thread: a clock, a processor, something to wait on, and the engine behind its lock.
/// The model of the hand-over has one of its own.
pub(super) trait Environment {
    type AtomicWord: AtomicWord;
    type Bell: Bell;
    type Engine<'a>: LockedEngine
    where
        Self: 'a;

    fn handover(&self) -> &Handover<Self::AtomicWord, Self::Bell>;
    fn now_ns(&self) -> u64;
    /// Does the thread's work that is not the engine's. Each turn begins with it.
    fn maintain(&mut self, now_ns: u64);
    /// Reports whether a completion queue is armed.
    fn is_armed(&self) -> bool;
    fn lock(&self) -> Self::Engine<'_>;
    /// Locks the engine, unless another thread holds the lock.
    fn try_lock(&self) -> Option<Self::Engine<'_>>;
    fn yield_processor(&self);
    /// Waits for the bell and, if `maintains`, for the descriptors of [`Environment::maintain`].
    fn wait_for_bell(&self, for_ns: u64, maintains: bool);
    /// Waits for packets, for the bell, and for the descriptors of [`Environment::maintain`]. Returns whether
    /// packets came.
    fn wait_for_packets(&self, port: Vec<RawFd>, for_ns: Option<u64>) -> bool;
}

/// The engine while this thread holds its lock.
pub(super) trait LockedEngine {
    /// Receives, runs timers, sends. Returns whether anything was done.
    fn drive(&mut self, now_ns: u64) -> bool;
    /// Returns what the engine has to do later.
    fn left(&self) -> PendingWork;
    /// Returns a number that changes with every packet received.
    fn received(&self) -> u64;
    /// Reports whether unacknowledged messages would find no receive request.
    fn is_short_of_receives(&mut self) -> bool;
    /// Returns the descriptors on which to wait for packets.
    fn descriptors(&self) -> Vec<RawFd>;
    /// Notes that a wait on these descriptors has ended because one is readable.
    fn woken(&mut self);
}

/// Runs the thread until it is told to stop.
pub(super) fn run<E: Environment>(environment: &mut E) {
    let mut policy = Policy::new(environment.handover().polls());
    let mut action = PolicyAction::BeginTurn;
    while !environment.handover().is_stopping() {
        action = act(environment, &mut policy, action);
    }
}

/// Executes one action, and returns the next.
fn act<E: Environment>(environment: &mut E, policy: &mut Policy, action: PolicyAction) -> PolicyAction {
    let input = match action {
        PolicyAction::BeginTurn => {
            let now_ns = environment.now_ns();
            environment.maintain(now_ns);
            let signals = environment.handover().take_signals(|| environment.is_armed());
            let next = policy.next(now_ns, PolicyInput::Turn(signals));
            environment.handover().note_density(policy.polls_are_dense());
            return next;
        }
        PolicyAction::StandBy { for_ns } => {
            environment.wait_for_bell(for_ns, true);
            environment.handover().clear_bell();
            PolicyInput::StandByEnded { polls: environment.handover().polls() }
        }
        PolicyAction::Listen { for_ns } => {
            environment.wait_for_bell(for_ns, false);
            let polls = environment.handover().polls();
            PolicyInput::Listened { polls, short_of_receives: is_short_of_receives(environment) }
        }
        PolicyAction::Peek => PolicyInput::Peeked { found: peek(environment) },
        PolicyAction::CheckReceives => PolicyInput::Receives { short: is_short_of_receives(environment) },
        PolicyAction::Abstain { for_ns } => {
            environment.wait_for_bell(for_ns, false);
            environment.handover().clear_bell();
            PolicyInput::Abstained
        }
        PolicyAction::Drive | PolicyAction::Sleep { .. } => return drive(environment, policy),
        PolicyAction::Yield => {
            let before_ns = environment.now_ns();
            environment.yield_processor();
            let now_ns = environment.now_ns();
            return policy.next(now_ns, PolicyInput::Yielded { took_ns: now_ns.saturating_sub(before_ns) });
        }
    };
    policy.next(environment.now_ns(), input)
}

fn is_short_of_receives<E: Environment>(environment: &E) -> bool {
    environment.try_lock().is_some_and(|mut engine| engine.is_short_of_receives())
}

fn peek<E: Environment>(environment: &E) -> bool {
    let Some(mut engine) = environment.try_lock() else { return false };
    let before = engine.received();
    engine.drive(environment.now_ns());
    engine.received() != before
}

/// Drives the engine. If there is nothing to do, returns the action of sleeping until there is, as far as the
/// policy allows it.
fn drive<E: Environment>(environment: &E, policy: &mut Policy) -> PolicyAction {
    environment.handover().take_over();
    let mut engine = environment.lock();
    let now_ns = environment.now_ns();
    if engine.drive(now_ns) {
        return policy.next(now_ns, PolicyInput::Progressed);
    }
    let PendingWork { deadline_ns, backlog } = engine.left();
    let next = policy.next(now_ns, PolicyInput::Idle { deadline_ns, backlog });
    let PolicyAction::Sleep { until_ns, for_ns } = next else { return next };
    environment.handover().announce_sleep(until_ns);
    let port = engine.descriptors();
    drop(engine);
    sleep(environment, policy, port, for_ns)
}

/// Sleeps, and drives once: what woke this thread is handled here even if the application has begun to poll,
/// because the application may have stopped again.
fn sleep<E: Environment>(
    environment: &E,
    policy: &mut Policy,
    port: Vec<RawFd>,
    for_ns: Option<u64>,
) -> PolicyAction {
    let before_ns = environment.now_ns();
    let woken = environment.wait_for_packets(port, for_ns);
    let slept_ns = environment.now_ns().saturating_sub(before_ns);
    environment.handover().wake_up();
    let mut engine = environment.lock();
    if woken {
        engine.woken();
    }
    let now_ns = environment.now_ns();
    let before = engine.received();
    let progressed = engine.drive(now_ns);
    policy.next(now_ns, PolicyInput::Woke { slept_ns, progressed, found: engine.received() != before })
}

/// Interval between two checks whether addresses changed, in ns: a check costs a system call.
const ADDRESS_CHECK_INTERVAL_NS: u64 = 1_000_000;

/// The environment of a real thread. It also updates the GID table to the host's addresses.
struct HostThread {
    core: Arc<Core>,
    watch: Option<AddressWatch>,
    /// A descriptor that is readable when addresses may have changed.
    descriptor: Option<RawFd>,
    next_check_ns: u64,
}

struct HostEngine<'a> {
    core: &'a Core,
    engine: MutexGuard<'a, Engine>,
}

impl Environment for HostThread {
    type AtomicWord = AtomicU64;
    type Bell = EventFd;
    type Engine<'a> = HostEngine<'a>;

    fn handover(&self) -> &Handover<AtomicU64, EventFd> {
        &self.core.handover
    }

    fn now_ns(&self) -> u64 {
        self.core.clock.now_ns()
    }

    fn maintain(&mut self, now_ns: u64) {
        let Some(watch) = &mut self.watch else { return };
        if now_ns < self.next_check_ns {
            return;
        }
        self.next_check_ns = now_ns.saturating_add(ADDRESS_CHECK_INTERVAL_NS);
        if let Some(entries) = watch.changed() {
            self.core.lock().port_conditions().follow_addresses(entries, now_ns);
        }
    }

    fn is_armed(&self) -> bool {
        self.core.armed_queues.any()
    }

    fn lock(&self) -> HostEngine<'_> {
        HostEngine { core: &self.core, engine: self.core.lock() }
    }

    fn try_lock(&self) -> Option<HostEngine<'_>> {
        self.core.try_lock().map(|engine| HostEngine { core: &self.core, engine })
    }

    fn yield_processor(&self) {
        if outside::world::has_model() {
            self.idle_until(None);
        } else {
            outside::idle();
        }
    }

    fn wait_for_bell(&self, for_ns: u64, maintains: bool) {
        self.note_work();
        if outside::world::has_model() {
            return self.wait_for_change(for_ns);
        }
        let addresses = self.descriptor.as_slice();
        let fds = if maintains { addresses } else { &[] };
        let bell = self.core.handover.bell().as_fd().as_raw_fd();
        // A failing poll(2) (no memory in the kernel) makes this a busy loop, nothing worse.
        let _ = wait_readable(fds, Some(bell), Some(Duration::from_nanos(for_ns)));
    }

    fn wait_for_packets(&self, mut port: Vec<RawFd>, for_ns: Option<u64>) -> bool {
        port.extend(self.descriptor);
        self.note_work();
        let bell = self.core.handover.bell().as_fd().as_raw_fd();
        wait_readable(&port, Some(bell), for_ns.map(Duration::from_nanos)).unwrap_or(false)
    }
}

impl HostThread {
    /// Lets other threads go on in a world with a performance model, until the device has something to do, or
    /// until a time of its clock.
    fn idle_until(&self, end_ns: Option<u64>) {
        let origin_ns = self.core.clock.origin_ns();
        let shown = |at_ns: u64| at_ns.saturating_add(origin_ns);
        let (end_ns, due_ns) = (end_ns.map(shown), self.core.next_change_ns().map(shown));
        outside::world::idle_device_until(end_ns, due_ns, std::ptr::from_ref(&*self.core).addr());
    }

    /// Waits for the bell in a world with a performance model, and drives the engine whenever it can find
    /// something: an application that looks at memory does not drive it, and driving costs nothing there. The
    /// descriptor of the bell is not polled, because each call of the kernel stops the thread twice.
    fn wait_for_change(&self, for_ns: u64) {
        let end_ns = self.now_ns().saturating_add(for_ns);
        loop {
            if let Some(mut engine) = self.try_lock() {
                engine.drive(self.now_ns());
            }
            self.idle_until(Some(end_ns));
            if self.core.handover.is_rung() || end_ns <= self.now_ns() {
                return;
            }
        }
    }

    /// Tells the supervisor of a world whether the engine has anything to do later.
    fn note_work(&self) {
        if outside::world::is_in_world() {
            let has_none = self.core.try_lock().is_some_and(|engine| engine.is_at_rest());
            outside::world::waits_without_end(has_none.then_some(EndlessWait::Work));
        }
    }
}

impl LockedEngine for HostEngine<'_> {
    fn drive(&mut self, now_ns: u64) -> bool {
        let checks = MappingCheckPolicy::Datagrams;
        self.core.drive_locked(&mut self.engine, now_ns, Acknowledge::WithReply, checks)
    }

    fn left(&self) -> PendingWork {
        self.core.left(&self.engine)
    }

    fn received(&self) -> u64 {
        self.engine.received_batches()
    }

    fn is_short_of_receives(&mut self) -> bool {
        self.engine.resources.short_of_receives()
    }

    fn descriptors(&self) -> Vec<RawFd> {
        self.engine.descriptors()
    }

    fn woken(&mut self) {
        self.engine.woken();
    }
}
