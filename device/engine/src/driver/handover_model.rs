//! A model of the hand-over between application threads and the background thread.
//!
//! loom runs `handover.rs`, `policy` and the loop of `background.rs` on its own atomics, in every order of
//! the threads (with a bound on preemptions) and with every value that the memory model lets a load return. A
//! lost wake-up shows as a deadlock: the model's thread sleeps without an end, and no other thread is left to
//! wake it.

use std::cell::Cell;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use loom::sync::{Condvar, Mutex, MutexGuard};
use loom::thread;
use pumice_platform::word::AtomicWord;
use word_model::{ModelWord, NONE, TORN_RESET};

use super::background::{Environment, LockedEngine, run};
use super::handover::{Bell, Handover};
use super::policy::PendingWork;

#[allow(dead_code)] // of the model of the brief lock
#[path = "../../../platform/src/word_model.rs"]
mod word_model;

/// The state of the descriptors that the thread's poll(2) waits on: the bell, and packets that have not been
/// received.
#[derive(Default)]
struct Readable {
    bell: bool,
    packets: u32,
}

#[derive(Clone)]
struct Descriptors(Arc<(Mutex<Readable>, Condvar)>);

impl Descriptors {
    fn change<R>(&self, change: impl FnOnce(&mut Readable) -> R) -> R {
        let (readable, changed) = &*self.0;
        let result = change(&mut readable.lock().unwrap());
        changed.notify_all();
        result
    }

    fn wait(&self) {
        let (readable, changed) = &*self.0;
        let mut readable = readable.lock().unwrap();
        while !readable.bell && readable.packets == 0 {
            readable = changed.wait(readable).unwrap();
        }
    }
}

impl Bell for Descriptors {
    fn set(&self) {
        self.change(|readable| readable.bell = true);
    }

    fn clear(&self) -> bool {
        self.change(|readable| std::mem::take(&mut readable.bell))
    }
}

/// The engine of the model: packets make completions, and a deadline is met once.
#[derive(Default)]
struct Engine {
    received: u32,
    deadline_ns: Option<u64>,
    /// True if an event is wanted with the next completion.
    armed: bool,
}

/// The results that the application's threads wait for.
#[derive(Default)]
struct Done {
    events: u32,
    deadlines: u32,
}

struct Device<const MISTAKE: u8> {
    handover: Handover<ModelWord<MISTAKE>, Descriptors>,
    descriptors: Descriptors,
    engine: Mutex<Engine>,
    /// Number of threads that drive now.
    drivers: loom::sync::atomic::AtomicU32,
    done: Mutex<Done>,
    happened: Condvar,
}

impl<const MISTAKE: u8> Device<MISTAKE> {
    fn new() -> Arc<Device<MISTAKE>> {
        let descriptors = Descriptors(Arc::new((Mutex::new(Readable::default()), Condvar::new())));
        Arc::new(Device {
            handover: Handover::new(descriptors.clone()),
            descriptors,
            engine: Mutex::new(Engine::default()),
            drivers: loom::sync::atomic::AtomicU32::new(0),
            done: Mutex::new(Done::default()),
            happened: Condvar::new(),
        })
    }

    /// Drives the engine, in any thread.
    fn drive(&self, engine: &mut Engine, now_ns: u64) -> bool {
        assert_eq!(self.drivers.fetch_add(1, Ordering::AcqRel), 0, "two threads drive");
        let packets = self.descriptors.change(|readable| std::mem::take(&mut readable.packets));
        engine.received += packets;
        let fires = packets > 0 && std::mem::take(&mut engine.armed);
        let due = engine.deadline_ns.is_some_and(|at_ns| at_ns <= now_ns);
        if due {
            engine.deadline_ns = None;
        }
        if fires || due {
            let mut done = self.done.lock().unwrap();
            done.events += u32::from(fires);
            done.deadlines += u32::from(due);
            self.happened.notify_all();
        }
        self.drivers.fetch_sub(1, Ordering::AcqRel);
        packets > 0 || due
    }

    /// Makes the application sleep, as in poll(2) on its completion channel.
    fn wait_until(&self, enough: impl Fn(&Done) -> bool) {
        let mut done = self.done.lock().unwrap();
        while !enough(&done) {
            done = self.happened.wait(done).unwrap();
        }
    }

    /// Polls an empty queue as the application. The time is 0 for it: every deadline is to come.
    fn poll(&self) {
        self.handover.polled();
        if let Ok(mut engine) = self.engine.try_lock() {
            self.drive(&mut engine, 0);
            self.handover.leave(0, || left(&engine));
        }
    }

    /// Sends a packet from another host.
    fn send(&self) {
        self.descriptors.change(|readable| readable.packets += 1);
    }
}

fn left(engine: &Engine) -> PendingWork {
    PendingWork { deadline_ns: engine.deadline_ns, backlog: false }
}

/// The background thread in the model. Its clock makes large steps, so that no spin lasts.
struct ModelThread<const MISTAKE: u8> {
    device: Arc<Device<MISTAKE>>,
    now_ns: Cell<u64>,
}

struct ModelEngine<'a, const MISTAKE: u8> {
    device: &'a Device<MISTAKE>,
    engine: MutexGuard<'a, Engine>,
}

impl<const MISTAKE: u8> Environment for ModelThread<MISTAKE> {
    type AtomicWord = ModelWord<MISTAKE>;
    type Bell = Descriptors;
    type Engine<'a> = ModelEngine<'a, MISTAKE>;

    fn handover(&self) -> &Handover<ModelWord<MISTAKE>, Descriptors> {
        &self.device.handover
    }

    fn now_ns(&self) -> u64 {
        self.now_ns.set(self.now_ns.get() + 1_000_000);
        self.now_ns.get()
    }

    fn maintain(&mut self, _: u64) {}

    fn is_armed(&self) -> bool {
        false
    }

    fn lock(&self) -> ModelEngine<'_, MISTAKE> {
        ModelEngine { device: &self.device, engine: self.device.engine.lock().unwrap() }
    }

    fn try_lock(&self) -> Option<ModelEngine<'_, MISTAKE>> {
        Some(ModelEngine { device: &self.device, engine: self.device.engine.try_lock().ok()? })
    }

    fn yield_processor(&self) {
        thread::yield_now();
    }

    /// Lets time pass, if the bell does not end the wait before.
    fn wait_for_bell(&self, _: u64, _: bool) {
        thread::yield_now();
    }

    fn wait_for_packets(&self, _: Vec<RawFd>, for_ns: Option<u64>) -> bool {
        match for_ns {
            Some(_) => thread::yield_now(),
            None => self.device.descriptors.wait(),
        }
        true
    }
}

impl<const MISTAKE: u8> LockedEngine for ModelEngine<'_, MISTAKE> {
    fn drive(&mut self, now_ns: u64) -> bool {
        self.device.drive(&mut self.engine, now_ns)
    }

    fn left(&self) -> PendingWork {
        left(&self.engine)
    }

    fn received(&self) -> u64 {
        u64::from(self.engine.received)
    }

    fn is_short_of_receives(&mut self) -> bool {
        false
    }

    fn descriptors(&self) -> Vec<RawFd> {
        Vec::new()
    }

    fn woken(&mut self) {}
}

/// Runs the application beside a background thread, which is stopped afterwards, in all orders.
fn model<const MISTAKE: u8>(application: fn(&Arc<Device<MISTAKE>>)) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(move || {
        let device = Device::<MISTAKE>::new();
        let background = thread::spawn({
            let device = Arc::clone(&device);
            move || run(&mut ModelThread { device, now_ns: Cell::new(0) })
        });
        application(&device);
        device.handover.stop();
        background.join().unwrap();
    });
}

/// Posts a request that has to be sent again at 1 ns, unless an answer comes.
fn post(device: &Device<NONE>) {
    let mut engine = device.engine.lock().unwrap();
    engine.deadline_ns = Some(1);
    device.handover.leave(0, || left(&engine));
}

#[test]
fn what_a_call_leaves_for_later_is_done_by_the_thread() {
    model::<NONE>(|device| {
        post(device);
        device.wait_until(|done| done.deadlines == 1);
    });
}

#[test]
fn what_a_poll_leaves_for_later_is_done_by_the_thread() {
    model::<NONE>(|device| {
        device.engine.lock().unwrap().deadline_ns = Some(1);
        device.send();
        device.poll();
        device.wait_until(|done| done.deadlines == 1);
    });
}

#[test]
fn a_completion_of_an_armed_queue_wakes_the_application() {
    model::<NONE>(|device| {
        let network = thread::spawn({
            let device = Arc::clone(device);
            move || device.send()
        });
        device.poll();
        device.engine.lock().unwrap().armed = true;
        device.handover.armed();
        // As with ibv_req_notify_cq, a completion that came before the arming is found by polling.
        let armed = device.engine.lock().unwrap().received == 0;
        if armed {
            device.wait_until(|done| done.events == 1);
        }
        network.join().unwrap();
    });
}

#[test]
fn an_application_that_has_waited_by_driving_may_sleep_elsewhere() {
    model::<NONE>(|device| {
        device.handover.wait_begins();
        device.handover.wait_ends();
        device.engine.lock().unwrap().armed = true;
        device.handover.armed();
        device.send();
        device.wait_until(|done| done.events == 1);
    });
}

#[test]
fn the_thread_ends_although_another_thread_rings_at_the_same_time() {
    model::<NONE>(|device| {
        let other = thread::spawn({
            let device = Arc::clone(device);
            move || device.handover.armed()
        });
        device.handover.stop();
        other.join().unwrap();
    });
}

/// A planted mistake: the announcement is read before the engine's lock is held.
#[test]
#[should_panic(expected = "deadlock")]
fn the_model_finds_a_call_that_looks_too_early() {
    model::<NONE>(|device| {
        let later = PendingWork { deadline_ns: Some(1), backlog: false };
        device.handover.leave(0, || later);
        device.engine.lock().unwrap().deadline_ns = Some(1);
        device.wait_until(|done| done.deadlines == 1);
    });
}

/// A planted mistake: the flag of the bell is reset by a load and a store, so a ring between the two is lost.
#[test]
#[should_panic(expected = "deadlock")]
fn the_model_finds_a_bell_whose_flag_is_torn() {
    model::<TORN_RESET>(|device| {
        let other = thread::spawn({
            let device = Arc::clone(device);
            move || device.handover.armed()
        });
        device.handover.stop();
        other.join().unwrap();
    });
}
