//! The background thread: drives the engine while the application does not.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use super::Core;
use crate::addresses::address_watch::AddressWatch;
use crate::engine::Acknowledge;
use crate::ground::error::ResourceError;
use crate::port::wait_readable;

/// How long the application may be silent before the thread takes over: also how often the thread
/// looks whether it is.
const TICK: Duration = Duration::from_millis(1);
/// The same while the application spins: each look costs it about 10 µs, which shows in its p99 if
/// looks are a percent of its messages.
const SPINNING_TICK: Duration = Duration::from_millis(10);
/// The same while a completion queue is armed: the application may sleep by now, although it polled a moment ago.
const ARMED_TICK: Duration = Duration::from_micros(500);
/// Empty polls between two looks that make it spinning.
const SPINNING_POLLS: u64 = 500;

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
        let shared = Arc::clone(&core);
        let thread = std::thread::Builder::new()
            .name("pumice-engine".to_owned())
            .spawn(move || run(&shared, Addresses { watch, next_look_ns: 0 }))
            .map_err(|error| ResourceError::Os {
                what: "start the engine's background thread",
                errno: error.raw_os_error().unwrap_or(libc::EAGAIN),
            })?;
        Ok(Background { core, thread })
    }

    /// Stops the thread and waits for it.
    pub(crate) fn stop(self) {
        self.core.stopping.store(true, Ordering::Release);
        self.core.wake_background();
        // A panic in the thread has been reported where it happened.
        let _ = self.thread.join();
    }
}

/// Looks in a row that found packets waiting although the application polls, before the thread keeps watch.
const STRIKES: u32 = 2;
/// Wake-ups for nothing in a row of which the thread stops keeping watch.
const WATCH: u32 = 16;
/// How long the application must not have polled for packets to count as left lying.
const SILENCE: Duration = Duration::from_micros(50);
/// How long the thread watches at most before it has to find packets left lying anew.
const WATCH_NS: u64 = 50_000_000;
/// What a wake-up that was needed is worth in wake-ups for nothing.
const WORTH: u32 = 2;

/// Whether the thread watches the port although the application polls now and then. A program that polls
/// its completion queue and then spins on memory which its peer writes (`ib_write_lat`) leaves packets
/// lying: nobody can see that it has stopped polling, except by what it leaves.
#[derive(Debug, Default)]
struct Watch {
    strikes: u32,
    left: u32,
    until_ns: u64,
}

impl Watch {
    /// The result of a look while standing by.
    fn looked(&mut self, found: bool, now_ns: u64) {
        self.strikes = if found { self.strikes + 1 } else { 0 };
        if self.strikes >= STRIKES {
            self.left = WATCH;
            self.until_ns = now_ns.saturating_add(WATCH_NS);
            self.strikes = 0;
        }
    }

    /// The result of a wake-up while watching.
    fn woke(&mut self, found: bool, now_ns: u64) {
        self.left = match found {
            _ if now_ns >= self.until_ns => 0,
            true => (self.left + WORTH).min(WATCH),
            false => self.left.saturating_sub(1),
        };
    }

    fn keeps(&self) -> bool {
        self.left > 0
    }
}

/// The host's addresses, which the GID table follows.
struct Addresses {
    watch: Option<AddressWatch>,
    next_look_ns: u64,
}

/// Between two looks whether addresses changed: a look costs a system call.
const ADDRESS_LOOK_NS: u64 = 1_000_000;

impl Addresses {
    fn descriptor(&self) -> Option<RawFd> {
        self.watch.as_ref().map(AddressWatch::descriptor)
    }

    /// Brings the GID table up to date, if it is time to look and something changed.
    fn look(&mut self, core: &Core) {
        let Some(watch) = &mut self.watch else { return };
        let now_ns = core.clock.now_ns();
        if now_ns < self.next_look_ns {
            return;
        }
        self.next_look_ns = now_ns.saturating_add(ADDRESS_LOOK_NS);
        if let Some(entries) = watch.changed() {
            core.lock().resources.set_gids(entries);
        }
    }
}

/// How long the thread leaves packets to the application whose receive requests run out.
const RESTRAINT_NS: u64 = 250_000_000;

/// Whether the thread keeps its hands off: an application that is kept from running for a moment has not stopped, and
/// taking UC and UD messages for which it would post receives in time would lose them. In the socket they are safe.
#[derive(Debug, Default)]
struct Restraint {
    since_ns: Option<u64>,
}

impl Restraint {
    fn holds(&mut self, short_of_receives: bool, now_ns: u64) -> bool {
        if !short_of_receives {
            self.since_ns = None;
            return false;
        }
        now_ns.saturating_sub(*self.since_ns.get_or_insert(now_ns)) < RESTRAINT_NS
    }
}

/// How long the thread looks for the next packet before it sleeps, when the last ones came that fast.
const SPIN_NS: u64 = 30_000;
/// A sleep that ended this soon would better have been a look: a wake-up alone takes 10 µs and more.
const SHORT_SLEEP_NS: u64 = 60_000;
/// A yield that took longer let somebody run who needs the processor.
const LONG_YIELD_NS: u64 = 5_000;

/// Whether the thread looks again before it sleeps. The peer of a passive target waits for its answers: as long as its
/// next requests come at once, a sleep between them is most of their time.
#[derive(Debug, Default)]
struct Spin {
    eager: bool,
    until_ns: u64,
}

impl Spin {
    /// Something was done.
    fn progressed(&mut self, now_ns: u64) {
        self.until_ns = if self.eager { now_ns.saturating_add(SPIN_NS) } else { 0 };
    }

    fn looks_again(&self, now_ns: u64) -> bool {
        now_ns < self.until_ns
    }

    /// Another thread had the processor for this long.
    fn yielded(&mut self, taken_ns: u64) {
        if taken_ns > LONG_YIELD_NS {
            (self.eager, self.until_ns) = (false, 0);
        }
    }

    fn slept(&mut self, taken_ns: u64) {
        self.eager = taken_ns < SHORT_SLEEP_NS;
    }
}

/// How long the thread stands by, after so many polls since it last looked; `may_sleep`: no application thread drives while it
/// waits, and a completion queue is armed.
fn tick(polls: u64, may_sleep: bool) -> Duration {
    match may_sleep {
        true => ARMED_TICK,
        false if polls > SPINNING_POLLS => SPINNING_TICK,
        false => TICK,
    }
}

fn run(core: &Core, mut addresses: Addresses) {
    let wake = core.wake.as_fd().as_raw_fd();
    let mut seen_polls = core.polls.load(Ordering::Relaxed);
    let mut watch = Watch::default();
    let mut restraint = Restraint::default();
    let address_fd: Vec<RawFd> = addresses.descriptor().into_iter().collect();
    let mut spin = Spin::default();
    while !core.stopping.load(Ordering::Acquire) {
        addresses.look(core);
        let polls = core.polls.load(Ordering::Relaxed);
        let waiters = core.waiters.load(Ordering::Acquire);
        let tick = tick(polls.wrapping_sub(seen_polls), waiters == 0 && core.armed_queues.any());
        let application_drives = polls != seen_polls || waiters > 0;
        seen_polls = polls;
        let watching = watch.keeps() && waiters == 0;
        if application_drives && !watching && !core.takeover.swap(false, Ordering::AcqRel) {
            // Stand by: only the wake descriptor (and that of addresses), never the port's. A failing poll(2) (no memory
            // in the kernel) makes this a busy tick, nothing worse.
            let _ = wait_readable(&address_fd, Some(wake), Some(tick));
            core.clear_wake();
            // Packets prove nothing while the application is kept from polling by this very thread:
            // it must have been silent for a moment in which it could run.
            let before = core.polls.load(Ordering::Relaxed);
            let _ = wait_readable(&[], Some(wake), Some(SILENCE));
            let silent = core.polls.load(Ordering::Relaxed) == before;
            let now_ns = core.clock.now_ns();
            let restrained = restraint.holds(core.short_of_receives(), now_ns);
            watch.looked(silent && !restrained && core.look(), now_ns);
            continue;
        }
        if restraint.holds(core.short_of_receives(), core.clock.now_ns()) {
            let _ = wait_readable(&[], Some(wake), Some(TICK));
            core.clear_wake();
            core.takeover.store(true, Ordering::Release);
            continue;
        }
        core.takeover.store(false, Ordering::Release);
        core.waits_here.store(false, Ordering::Relaxed);
        let (mut fds, timeout) = {
            let mut engine = core.lock();
            let now_ns = core.clock.now_ns();
            if core.drive_locked(&mut engine, now_ns, Acknowledge::WithReply) {
                spin.progressed(now_ns);
                continue;
            }
            if !watching && spin.looks_again(now_ns) {
                drop(engine);
                let before_ns = core.clock.now_ns();
                std::thread::yield_now();
                spin.yielded(core.clock.now_ns().saturating_sub(before_ns));
                continue;
            }
            let deadline_ns = engine.deadline_ns();
            core.sleeping_until_ns.store(deadline_ns.unwrap_or(u64::MAX), Ordering::Release);
            let busy = engine.has_backlog();
            let timeout = if busy {
                Some(Duration::from_millis(1))
            } else {
                deadline_ns.map(|at_ns| Duration::from_nanos(at_ns.saturating_sub(now_ns)))
            };
            (engine.port.descriptors(), timeout)
        };
        fds.extend(&address_fd);
        let slept_ns = core.clock.now_ns();
        let woken = wait_readable(&fds, Some(wake), timeout).unwrap_or(false);
        spin.slept(core.clock.now_ns().saturating_sub(slept_ns));
        core.sleeping_until_ns.store(0, Ordering::Release);
        core.clear_wake();
        // What woke this thread is handled here even if the application has begun to poll: it may
        // have stopped again.
        let mut engine = core.lock();
        if woken {
            engine.woken();
        }
        let now_ns = core.clock.now_ns();
        let trains_before = engine.received_trains();
        if core.drive_locked(&mut engine, now_ns, Acknowledge::WithReply) {
            spin.progressed(now_ns);
        }
        if watching {
            watch.woke(engine.received_trains() != trains_before, now_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_looks_again_while_packets_come_fast_and_nobody_else_wants_to_run() {
        let mut spin = Spin::default();
        spin.progressed(100);
        assert!(!spin.looks_again(100));
        spin.slept(SHORT_SLEEP_NS - 1);
        spin.progressed(200);
        assert!(spin.looks_again(199 + SPIN_NS) && !spin.looks_again(200 + SPIN_NS));
        spin.progressed(300);
        spin.yielded(LONG_YIELD_NS + 1);
        assert!(!spin.looks_again(300));
        spin.slept(SHORT_SLEEP_NS - 1);
        spin.slept(SHORT_SLEEP_NS);
        spin.progressed(400);
        assert!(!spin.looks_again(400));
    }

    #[test]
    fn an_application_that_armed_a_queue_and_polled_much_is_looked_after_soon() {
        assert_eq!(tick(SPINNING_POLLS + 1, false), SPINNING_TICK);
        assert_eq!(tick(SPINNING_POLLS, false), TICK);
        for polls in [0, SPINNING_POLLS + 1] {
            assert!(tick(polls, true) < Duration::from_millis(1), "{polls}");
        }
    }

    #[test]
    fn a_queue_that_runs_out_of_receives_stops_the_thread_for_a_while_only() {
        let mut restraint = Restraint::default();
        assert!(!restraint.holds(false, 5));
        assert!(restraint.holds(true, 10) && restraint.holds(true, 9 + RESTRAINT_NS));
        assert!(!restraint.holds(true, 10 + RESTRAINT_NS) && !restraint.holds(true, 99 * RESTRAINT_NS));
        assert!(!restraint.holds(false, 100 * RESTRAINT_NS));
        assert!(restraint.holds(true, 101 * RESTRAINT_NS));
    }

    #[test]
    fn packets_left_lying_twice_make_it_watch_until_it_wakes_in_vain() {
        let mut watch = Watch::default();
        watch.looked(true, 0);
        watch.looked(false, 0);
        watch.looked(true, 0);
        assert!(!watch.keeps(), "two in a row are needed");
        watch.looked(true, 0);
        assert!(watch.keeps());
        // Every other wake-up is needed: the application polls for its own completions in between.
        for _ in 0..100 {
            watch.woke(true, 1);
            watch.woke(false, 1);
        }
        assert!(watch.keeps());
        for _ in 0..WATCH {
            watch.woke(false, 1);
        }
        assert!(!watch.keeps());
        watch.looked(true, 0);
        watch.looked(true, 0);
        watch.woke(true, WATCH_NS);
        assert!(!watch.keeps(), "not for ever");
    }
}
