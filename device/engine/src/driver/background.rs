//! The background thread: does what the policy answers, and drives the engine while the application does not.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use pumice_ground::error::ResourceError;
use pumice_ground::outside;
use pumice_ground::outside::event_fd::EventFd;
use pumice_ground::outside::wait::wait_readable;
use pumice_ground::word::Word;
use pumice_profile::addresses::address_watch::AddressWatch;

use super::core::Core;
use super::handover::{Bell, Handover};
use super::policy::{Action, Input, Left, Policy};
use crate::engine::{Acknowledge, Engine};
use crate::resources::MappingCheckPolicy;

/// The thread's handle.
pub(crate) struct Background {
    core: Arc<Core>,
    thread: JoinHandle<()>,
}

impl Background {
    /// Starts the thread.
    ///
    /// # Errors
    /// The operating system has no thread to give.
    pub(crate) fn start(core: Arc<Core>, watch: Option<AddressWatch>) -> Result<Background, ResourceError> {
        let descriptor = watch.as_ref().map(AddressWatch::descriptor);
        let mut host = HostThread { core: Arc::clone(&core), watch, descriptor, next_look_ns: 0 };
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

/// What the thread needs: a clock, a processor, something to wait on, and the engine behind its lock. The
/// model of the hand-over has one of its own.
pub(super) trait Environment {
    type Word: Word;
    type Bell: Bell;
    type Engine<'a>: LockedEngine
    where
        Self: 'a;

    fn handover(&self) -> &Handover<Self::Word, Self::Bell>;
    fn now_ns(&self) -> u64;
    /// Work of the thread that is not the engine's. A turn begins with it.
    fn maintain(&mut self, now_ns: u64);
    /// Whether a completion queue is armed.
    fn is_armed(&self) -> bool;
    fn lock(&self) -> Self::Engine<'_>;
    /// The engine, unless another thread has it.
    fn try_lock(&self) -> Option<Self::Engine<'_>>;
    fn yield_processor(&self);
    /// Waits for the bell, and for what [`Environment::maintain`] looks after if `maintains`.
    fn wait_for_bell(&self, for_ns: u64, maintains: bool);
    /// Waits for packets, for the bell, and for what [`Environment::maintain`] looks after. Whether any came.
    fn wait_for_packets(&self, port: Vec<RawFd>, for_ns: Option<u64>) -> bool;
}

/// The engine while this thread has its lock.
pub(super) trait LockedEngine {
    /// Receives, runs timers, sends; whether anything was done.
    fn drive(&mut self, now_ns: u64) -> bool;
    /// What is left for later.
    fn left(&self) -> Left;
    /// A number that moves with every packet received.
    fn received(&self) -> u64;
    /// Whether messages that are not acknowledged would find no receive request.
    fn is_short_of_receives(&mut self) -> bool;
    /// What to wait on for packets.
    fn descriptors(&self) -> Vec<RawFd>;
    /// A wait on these descriptors has ended because one is readable.
    fn woken(&mut self);
}

/// Runs until the hand-over says that the thread is to end.
pub(super) fn run<E: Environment>(environment: &mut E) {
    let mut policy = Policy::new(environment.handover().polls());
    let mut action = Action::Look;
    while !environment.handover().is_stopping() {
        action = act(environment, &mut policy, action);
    }
}

/// Does one thing; the result is the next.
fn act<E: Environment>(environment: &mut E, policy: &mut Policy, action: Action) -> Action {
    let input = match action {
        Action::Look => {
            let now_ns = environment.now_ns();
            environment.maintain(now_ns);
            let signals = environment.handover().take_signals(|| environment.is_armed());
            let next = policy.next(now_ns, Input::Turn(signals));
            environment.handover().note_density(policy.polls_are_dense());
            return next;
        }
        Action::StandBy { for_ns } => {
            environment.wait_for_bell(for_ns, true);
            environment.handover().clear_bell();
            Input::StoodBy { polls: environment.handover().polls() }
        }
        Action::Listen { for_ns } => {
            environment.wait_for_bell(for_ns, false);
            let polls = environment.handover().polls();
            Input::Listened { polls, short_of_receives: is_short_of_receives(environment) }
        }
        Action::Peek => Input::Peeked { found: peek(environment) },
        Action::CheckReceives => Input::Receives { short: is_short_of_receives(environment) },
        Action::Abstain { for_ns } => {
            environment.wait_for_bell(for_ns, false);
            environment.handover().clear_bell();
            Input::Abstained
        }
        Action::Drive | Action::Sleep { .. } => return drive(environment, policy),
        Action::Yield => {
            let before_ns = environment.now_ns();
            environment.yield_processor();
            let now_ns = environment.now_ns();
            return policy.next(now_ns, Input::Yielded { took_ns: now_ns.saturating_sub(before_ns) });
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

/// Drives. If there is nothing to do, the thread sleeps until there is, as far as the policy lets it.
fn drive<E: Environment>(environment: &E, policy: &mut Policy) -> Action {
    environment.handover().take_over();
    let mut engine = environment.lock();
    let now_ns = environment.now_ns();
    if engine.drive(now_ns) {
        return policy.next(now_ns, Input::Progressed);
    }
    let Left { deadline_ns, backlog } = engine.left();
    let next = policy.next(now_ns, Input::Idle { deadline_ns, backlog });
    let Action::Sleep { until_ns, for_ns } = next else { return next };
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
) -> Action {
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
    policy.next(now_ns, Input::Woke { slept_ns, progressed, found: engine.received() != before })
}

/// Between two looks whether addresses changed: a look costs a system call.
const ADDRESS_LOOK_NS: u64 = 1_000_000;

/// The operating system's thread. It also keeps the GID table in line with the host's addresses.
struct HostThread {
    core: Arc<Core>,
    watch: Option<AddressWatch>,
    /// Readable when addresses may have changed.
    descriptor: Option<RawFd>,
    next_look_ns: u64,
}

struct HostEngine<'a> {
    core: &'a Core,
    engine: MutexGuard<'a, Engine>,
}

impl Environment for HostThread {
    type Word = AtomicU64;
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
        if now_ns < self.next_look_ns {
            return;
        }
        self.next_look_ns = now_ns.saturating_add(ADDRESS_LOOK_NS);
        if let Some(entries) = watch.changed() {
            self.core.lock().follow_addresses(entries, now_ns);
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
        outside::idle();
    }

    fn wait_for_bell(&self, for_ns: u64, maintains: bool) {
        let addresses = self.descriptor.as_slice();
        let fds = if maintains { addresses } else { &[] };
        let bell = self.core.handover.bell().as_fd().as_raw_fd();
        // A failing poll(2) (no memory in the kernel) makes this a busy loop, nothing worse.
        let _ = wait_readable(fds, Some(bell), Some(Duration::from_nanos(for_ns)));
    }

    fn wait_for_packets(&self, mut port: Vec<RawFd>, for_ns: Option<u64>) -> bool {
        port.extend(self.descriptor);
        let bell = self.core.handover.bell().as_fd().as_raw_fd();
        wait_readable(&port, Some(bell), for_ns.map(Duration::from_nanos)).unwrap_or(false)
    }
}

impl LockedEngine for HostEngine<'_> {
    fn drive(&mut self, now_ns: u64) -> bool {
        let checks = MappingCheckPolicy::Datagrams;
        self.core.drive_locked(&mut self.engine, now_ns, Acknowledge::WithReply, checks)
    }

    fn left(&self) -> Left {
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
