//! The waits of the program's threads: their present activity, the devices and queues they wait for, and
//! reports.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use pumice_device::counters::Counters;
use pumice_device::inspect::{InspectedObjects, ThreadActivityView, ThreadView, WaitsView};
use pumice_device::objects::completion_queue::CompletionQueue;
use pumice_device::outside;
use pumice_device::outside::fork_generation::PerProcess;
use pumice_device::platform::clock::Clock;
use pumice_device::platform::error::printable;
use pumice_device::waits::{CqArming, CqSnapshot, StalledWait, ThreadActivity, Waiter, Waits};

use crate::log::print_always;
use crate::objects::events::AsyncQueue;
use crate::platform::system_call::{ThreadInfo, threads};
use crate::waits::{self, ThreadWait, WaitNote, connected_at};
use crate::{check, gate};

/// Interval while the device makes progress.
const PERIOD: Duration = Duration::from_millis(250);
/// Interval while the device makes none, and posted requests may complete.
const IDLE_PERIOD: Duration = Duration::from_millis(500);
/// Number of idle checks after which calls of the program wake the thread, so that a program that polls an
/// empty queue does not do so all the time; and number of idle checks after which the thread sleeps.
const IDLE_CHECKS: (u32, u32) = (8, 9);

/// The current interval of the thread.
pub(super) struct WatchInterval {
    /// Interval; `None` if it sleeps until it is stirred.
    period: Option<Duration>,
    /// Number of checks in sequence at which no thread could be waiting.
    idle: u32,
}

impl WatchInterval {
    pub(super) const fn new() -> WatchInterval {
        WatchInterval { period: Some(PERIOD), idle: 0 }
    }

    /// Sleeps for the interval. Returns whether another process asks what the threads wait for.
    pub(super) fn wait_for_wake(&mut self) -> bool {
        let woken = waits::wait_for_wake(self.period);
        if woken.is_woken {
            self.idle = 0;
        }
        woken.is_queried
    }

    /// Sets the next interval after a check. `is_idle` means that no thread can be waiting, `is_at_rest` that
    /// the device makes no progress.
    pub(super) fn next(&mut self, is_idle: bool, is_at_rest: bool) {
        self.idle = if is_idle { self.idle.saturating_add(1) } else { 0 };
        waits::set_wake_on_call(self.idle >= IDLE_CHECKS.0);
        if self.idle == IDLE_CHECKS.0 || self.idle == 0 {
            gate::refresh_watch();
        }
        self.period = match is_at_rest {
            _ if self.idle >= IDLE_CHECKS.1 => None,
            true => Some(IDLE_PERIOD),
            false => Some(PERIOD),
        };
    }
}

/// A device that is open.
#[derive(Clone)]
pub(super) struct WatchedDevice {
    pub(super) device: usize,
    pub(super) waits: Weak<Waits>,
    pub(super) clock: Clock,
    pub(super) counters: Arc<Counters>,
    pub(super) objects: CollectObjects,
}

/// Returns the objects of the device with an index in this process; `None` if it is not open.
pub(super) type CollectObjects = fn(usize) -> Option<InspectedObjects>;

/// A completion queue of the program.
pub(super) struct WatchedQueue {
    pub(super) device: usize,
    pub(super) address: usize,
    pub(super) channel: usize,
    pub(super) queue: Weak<CompletionQueue>,
}

#[derive(Default)]
pub(super) struct WaitsState {
    pub(super) devices: Vec<WatchedDevice>,
    pub(super) queues: Vec<WatchedQueue>,
    pub(super) has_thread: bool,
}

static STATE: PerProcess<Mutex<WaitsState>> = PerProcess::new(|_| Mutex::default());

pub(super) fn lock() -> MutexGuard<'static, WaitsState> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the completion queues of a device, as they are now.
pub(super) fn queues_of(device: usize) -> Vec<CqSnapshot> {
    let queues = lock();
    let own = queues.queues.iter().filter(|known| known.device == device);
    own.filter_map(|known| {
        let queue = known.queue.upgrade()?;
        let filled = queue.len();
        let armed = match filled > 0 || known.channel != 0 {
            true if queue.is_armed_for_solicited() => CqArming::ForSolicited,
            true if queue.is_armed() => CqArming::ForAll,
            _ => CqArming::No,
        };
        let (number, channel) = (queue.handle().index, known.channel as u64);
        let unread = queue.channel().map_or(0, |channel| channel.queued());
        Some(CqSnapshot { number, channel, filled, armed, unread })
    })
    .collect()
}

/// Beginning of the messages.
const BEGIN: &str = "waits in vain: ";

/// Reports such a wait.
pub(super) fn report(stalled_wait: &StalledWait) {
    let is_unknown = stalled_wait.stack.is_empty() && stalled_wait.is_of_connection();
    let stack = if is_unknown { connected_at() } else { stalled_wait.stack.clone() };
    if check::is_on() {
        return check::wait_stalled(stalled_wait, &stack);
    }
    print_always(&format!("{BEGIN}{}", stalled_wait.sentence));
    check::call_site_lines(&stack).iter().for_each(|frame| print_always(frame));
}

/// Stores the reports about these devices that still hold, which are printed again when the process is ended.
/// If programs are checked, findings contain them, and their summary comes last.
pub(super) fn still_holds<'a>(devices: impl Iterator<Item = &'a Waits>) {
    if check::is_on() {
        return;
    }
    let sentences = devices.flat_map(Waits::reported);
    let lines: String = sentences
        .map(|sentence| format!("pumice: the program is ended while it {BEGIN}{}\n", printable(&sentence)))
        .collect();
    check::set_last_message(&lines);
}

/// Time for which it asks: calls that sleep make an attempt each tenth of a second.
const SAMPLING_TIME: Duration = Duration::from_millis(250);
/// Number of times that it reads meanwhile in which system calls the threads are.
const SAMPLES: u32 = 5;
/// System calls of a polling thread with which a program also waits for something else. Other calls may be
/// this library's.
const FOREIGN: [&str; 8] = ["poll", "select", "epoll_wait", "read", "accept", "wait", "connect", "sigwait"];

/// State of each device for other processes, by its index.
static VIEWS: PerProcess<Mutex<BTreeMap<usize, WaitsView>>> = PerProcess::new(|_| Mutex::default());

/// Result of a question to the threads.
pub(super) struct ThreadSnapshot {
    /// Threads that wait.
    pub(super) waiters: Vec<Waiter>,
    /// All threads of the program, and return addresses of their frames.
    threads: Vec<(ThreadView, Vec<u64>)>,
}

impl ThreadSnapshot {
    /// Finds what the threads do with objects of a device.
    pub(super) fn now(device: usize) -> ThreadSnapshot {
        waits::begin();
        gate::refresh_watch();
        let looks = (0..SAMPLES).map(|_| {
            outside::sleep(SAMPLING_TIME / SAMPLES);
            threads()
        });
        let looks: Vec<Vec<ThreadInfo>> = looks.collect();
        let notes = waits::end();
        gate::refresh_watch();
        let device_queues = DeviceQueues::of(device);
        let mut snapshot = ThreadSnapshot { waiters: Vec::new(), threads: Vec::new() };
        for note in &notes {
            snapshot.waiters.extend(device_queues.waiter_of(note));
        }
        for thread in looks.last().into_iter().flatten() {
            let own: Vec<&WaitNote> = notes.iter().filter(|note| note.thread == thread.number).collect();
            let samples: Vec<&ThreadInfo> =
                looks.iter().flatten().filter(|one| one.number == thread.number).collect();
            let view = device_queues.view_of(thread, &samples, &own);
            if let (ThreadActivityView::SleepsOn { cqs }, true) = (&view.doing, own.is_empty()) {
                // The thread sleeps in poll(2), and has no stack that could be read.
                let within = thread.call.map(|call| call.name());
                snapshot.waiters.extend(device_queues.channel_of(cqs).map(|channel| Waiter {
                    doing: ThreadActivity::SleepsOn(channel),
                    within,
                    stack: Vec::new(),
                }));
            }
            snapshot.threads.push((view, own.first().map(|note| note.stack.clone()).unwrap_or_default()));
        }
        snapshot
    }
}

/// Stores the result for other processes. `has_stacks` includes the lines of the program, which takes some
/// ms.
pub(super) fn store_view(
    device: usize,
    snapshot: &ThreadSnapshot,
    waits: &Arc<Waits>,
    now_ns: u64,
    has_stacks: bool,
) {
    let threads = snapshot.threads.iter().map(|(view, stack)| {
        let stack = if has_stacks { check::frames_of(stack) } else { Vec::new() };
        ThreadView { stack, ..view.clone() }
    });
    let view = WaitsView {
        looks: view_of(device).map_or(1, |view| view.looks.saturating_add(1)),
        threads: threads.collect(),
        threads_left_out: 0,
        connects: waits.connects(now_ns),
        vain: waits.local_reports(),
    };
    VIEWS.lock().unwrap_or_else(PoisonError::into_inner).insert(device, view.clipped());
}

/// Returns the state of a device for other processes.
pub(super) fn view_of(device: usize) -> Option<WaitsView> {
    VIEWS.lock().unwrap_or_else(PoisonError::into_inner).get(&device).cloned()
}

/// A completion queue of the device.
struct DeviceQueue {
    number: u32,
    address: usize,
    channel: usize,
    /// Descriptor of its channel.
    descriptor: Option<i32>,
}

/// The completion queues of a device.
struct DeviceQueues(Vec<DeviceQueue>);

impl DeviceQueues {
    fn of(device: usize) -> DeviceQueues {
        let state = lock();
        let own = state.queues.iter().filter(|device_queues| device_queues.device == device);
        let own = own.filter_map(|device_queues| {
            let queue = device_queues.queue.upgrade()?;
            Some(DeviceQueue {
                number: queue.handle().index,
                address: device_queues.address,
                channel: device_queues.channel,
                descriptor: queue.channel().map(|channel| channel.as_fd().as_raw_fd()),
            })
        });
        DeviceQueues(own.collect())
    }

    /// Returns the newest queue at an address.
    fn at(&self, address: usize) -> Option<u32> {
        self.0.iter().rfind(|queue| queue.address == address).map(|queue| queue.number)
    }

    fn of_channel(&self, channel: usize) -> Vec<u32> {
        let own = self.0.iter().filter(|queue| queue.channel == channel && channel != 0);
        own.map(|queue| queue.number).collect()
    }

    fn channel_of(&self, cqs: &[u32]) -> Option<u64> {
        let first = self.0.iter().find(|queue| cqs.contains(&queue.number))?;
        Some(first.channel as u64).filter(|channel| *channel != 0)
    }

    fn waiter_of(&self, note: &WaitNote) -> Option<Waiter> {
        let doing = match note.what {
            ThreadWait::Polls(address) => ThreadActivity::Polls(self.at(address)?),
            ThreadWait::SleepsOn(channel) => ThreadActivity::SleepsOn(channel as u64),
            ThreadWait::SleepsForConnections { .. } => ThreadActivity::SleepsForConnections,
            ThreadWait::Acknowledges { .. } => ThreadActivity::Acknowledges,
        };
        Some(Waiter { doing, within: None, stack: note.stack.clone() })
    }

    fn view_of(&self, thread: &ThreadInfo, samples: &[&ThreadInfo], notes: &[&WaitNote]) -> ThreadView {
        let polled: Vec<u32> = notes
            .iter()
            .filter_map(
                |note| if let ThreadWait::Polls(address) = note.what { self.at(address) } else { None },
            )
            .collect();
        let slept_on = notes.iter().find_map(|note| match note.what {
            ThreadWait::SleepsOn(channel) => Some(self.of_channel(channel)).filter(|cqs| !cqs.is_empty()),
            _ => None,
        });
        let other = notes.iter().find_map(|note| match note.what {
            ThreadWait::SleepsForConnections { has_none, elsewhere } => {
                Some(ThreadActivityView::SleepsForConnections { has_none, elsewhere })
            }
            ThreadWait::Acknowledges { call, by, events } => {
                let (call, by) = (call.to_string(), by.to_string());
                Some(ThreadActivityView::Acknowledges { call, by, events })
            }
            ThreadWait::Polls(_) | ThreadWait::SleepsOn(_) => None,
        });
        let mut also = None;
        let doing = match slept_on {
            _ if !polled.is_empty() => {
                let names = samples.iter().filter_map(|one| Some(one.call?.name()));
                also = names.into_iter().find(|name| FOREIGN.contains(&name.as_str()));
                ThreadActivityView::Polls { cqs: polled }
            }
            Some(cqs) => ThreadActivityView::SleepsOn { cqs },
            None => other.unwrap_or_else(|| {
                let doing = self.in_the_kernel(thread, samples);
                if let ThreadActivityView::SleepsOn { .. } = doing {
                    // The thread may wait for other descriptors, too.
                    also = thread.call.map(|call| call.name());
                }
                doing
            }),
        };
        ThreadView { thread: thread.number, name: thread.name.clone(), doing, also, stack: Vec::new() }
    }

    /// Returns what a thread does that makes no call of this library.
    fn in_the_kernel(&self, thread: &ThreadInfo, samples: &[&ThreadInfo]) -> ThreadActivityView {
        let Some(call) = thread.call.filter(|call| samples.iter().all(|one| one.call == Some(*call))) else {
            return ThreadActivityView::Runs;
        };
        let awaited = self.0.iter().filter(|queue| queue.descriptor.is_some_and(|fd| call.awaits(fd)));
        let cqs: Vec<u32> = awaited.map(|queue| queue.number).collect();
        if !cqs.is_empty() {
            return ThreadActivityView::SleepsOn { cqs };
        }
        if AsyncQueue::descriptors().iter().any(|fd| call.reads(*fd)) {
            return ThreadActivityView::SleepsForDevice;
        }
        ThreadActivityView::Calls { call: call.name(), awaits: call.awaited_thread() }
    }
}
