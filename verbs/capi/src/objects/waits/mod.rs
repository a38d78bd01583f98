//! Searches for threads of the program whose wait will never end, and logs why ([`pumice_device::waits`]).
//!
//! A thread checks how many completions wait and whether the device makes progress, without a lock of the
//! device: four times a second, twice while it makes none, and not at all while no thread can be waiting.
//! Only when a wait is long, or `pumice hang` asks, it examines the threads of the program, and asks the
//! device and other processes.

mod query_threads;

use std::sync::Arc;
use std::time::Duration;

use pumice_device::counters::Counters;
use pumice_device::event::Subscriber;
use pumice_device::hca::Hca;
use pumice_device::inspect::{InspectedObjects, WaitReporter};
use pumice_device::objects::completion_queue::CompletionQueue;
use pumice_device::outside;
use pumice_device::process_statuses;
use pumice_device::settings::LogLevel;
use pumice_device::waits::{ProcessStatus, StalledWait, Waits, WaitsDue, WaitsSubscriber, graph};
use pumice_transport::host::Counter;
use pumice_transport::path::ROCE_PORT;

use crate::check;
use crate::log::{logs, print_due_floods, print_due_siblings};
use crate::platform::{current_pid, settings};
use crate::waits::{query_threads as query_watcher, wake_watcher};
use query_threads::{
    CollectObjects, ThreadSnapshot, WatchInterval, WatchedDevice, WatchedQueue, lock, queues_of,
};

/// Longest time to wait for answers of other processes.
const ANSWERS: Duration = Duration::from_millis(300);

/// Time between questions to processes that have not examined their threads yet, and the number of questions.
const BETWEEN: Duration = Duration::from_millis(100);
const MAX_QUERIES: u32 = 10;

/// Returns the duration of a wait after which it is reported; `None` if none is. In a world, which knows when
/// all threads wait for ever and in which a further thread would be another run, waits are reported only if
/// the user asks.
fn patience() -> Option<Duration> {
    let settings = settings().ok()?;
    let is_reported = logs(LogLevel::Warn) || check::is_on();
    let is_wanted = settings.hang_after.is_some() || !outside::world::is_in_world();
    settings.patience().filter(|_| is_reported && is_wanted)
}

/// Returns the wait state of a device that is being opened, if waits are reported.
pub(super) fn waits() -> Option<Arc<Waits>> {
    Some(Arc::new(Waits::new(patience()?.as_nanos() as u64)))
}

/// Returns the subscriber for it.
pub(super) fn subscriber(waits: &Arc<Waits>) -> Box<dyn Subscriber> {
    Box::new(WaitsSubscriber(Arc::clone(waits)))
}

/// Returns the function that answers other processes about the waits of a device.
pub(super) fn wait_reporter(device: usize) -> WaitReporter {
    Arc::new(move |is_queried| {
        if is_queried {
            query_watcher();
        }
        // A device without a result yet will have one later.
        Some(query_threads::view_of(device).unwrap_or_default())
    })
}

/// Starts to watch the device with this index among the devices, which is open. The caller has signals
/// blocked.
pub(super) fn opened(device: usize, waits: &Arc<Waits>, hca: &Hca, objects: CollectObjects) {
    let (clock, counters) = (hca.clock().clone(), Arc::clone(hca.counters()));
    let watched = WatchedDevice { device, waits: Arc::downgrade(waits), clock, counters, objects };
    let mut state = lock();
    state.devices.retain(|watched| watched.waits.strong_count() > 0);
    state.devices.push(watched);
    let has_thread = std::mem::replace(&mut state.has_thread, true);
    drop(state);
    if has_thread {
        return wake_watcher();
    }
    // Without a thread no waits are reported.
    let _ = outside::thread::start("pumice-waits", None, || {
        let mut interval = WatchInterval::new();
        loop {
            let snapshot = interval.wait_for_wake();
            look(&mut interval, snapshot);
        }
    });
}

/// Records that the program has a completion queue at this address, whose channel is at another one; 0 if it
/// has none.
pub(super) fn cq_made(device: usize, address: usize, channel: usize, queue: &Arc<CompletionQueue>) {
    let mut state = lock();
    if state.has_thread {
        state.queues.retain(|known| known.queue.strong_count() > 0);
        state.queues.push(WatchedQueue { device, address, channel, queue: Arc::downgrade(queue) });
    }
}

/// Returns a number that changes when a device makes progress: packets that only repeat or refuse earlier
/// ones do not count.
fn progress_count(counters: &Counters) -> u64 {
    let count = |counter| counters.value(counter);
    let packets = count(Counter::TxPackets).wrapping_add(count(Counter::RxPackets));
    let of_sender = count(Counter::RetransmittedPackets).wrapping_add(count(Counter::RxRnrNak));
    let of_receiver = count(Counter::TxRnrNak).wrapping_add(count(Counter::RxDuplicateRequest));
    packets.wrapping_sub(of_sender).wrapping_sub(of_receiver.wrapping_mul(2))
}

/// Checks all devices. `is_queried` is true if another process asks for it.
fn look(interval: &mut WatchInterval, is_queried: bool) {
    let devices: Vec<WatchedDevice> = lock().devices.clone();
    let open: Vec<(WatchedDevice, Arc<Waits>)> =
        devices.into_iter().filter_map(|one| Some((one.clone(), one.waits.upgrade()?))).collect();
    let (mut is_idle, mut is_at_rest) = (true, true);
    let mut found = Vec::new();
    for (watched, waits) in &open {
        let now_ns = watched.clock.now_ns();
        let due = waits.look(now_ns, &queues_of(watched.device), progress_count(&watched.counters));
        if due != WaitsDue::default() {
            found.extend(judge(watched, waits, due, is_queried));
        } else if is_queried {
            let snapshot = ThreadSnapshot::now(watched.device);
            query_threads::store_view(watched.device, &snapshot, waits, now_ns, true);
        }
        is_at_rest &= waits.is_at_rest(now_ns);
        is_idle &= is_at_rest && waits.is_idle() && has_nothing(watched);
    }
    print_due_siblings();
    print_due_floods();
    // The result is stored before it is logged: a user who reads the message may end the process at once.
    query_threads::still_holds(open.iter().map(|(_, waits)| waits.as_ref()));
    found.iter().for_each(query_threads::report);
    interval.next(is_idle, is_at_rest);
}

/// Reports whether no posted request could complete.
fn has_nothing(watched: &WatchedDevice) -> bool {
    let Some(objects) = (watched.objects)(watched.device) else { return true };
    let has_none = |qp: &pumice_device::inspect::QpView| {
        qp.posted == qp.ended && (qp.receives_posted == Some(0) || qp.state == "RESET")
    };
    objects.qps_left_out() == 0
        && objects.qps.iter().all(has_none)
        && objects.listens.is_empty()
        && objects.cqs.iter().all(|cq| cq.filled == 0)
}

/// Finds what threads and other processes do, and which waits will never end.
fn judge(watched: &WatchedDevice, waits: &Arc<Waits>, due: WaitsDue, is_queried: bool) -> Vec<StalledWait> {
    let device = watched.device;
    // The others examine their threads while this process examines its own.
    let before = others(due.is_at_rest);
    let snapshot = ThreadSnapshot::now(device);
    let now_ns = watched.clock.now_ns();
    query_threads::store_view(device, &snapshot, waits, now_ns, is_queried);
    let Some(objects) = (watched.objects)(device) else { return Vec::new() };
    let now = if due.is_at_rest { after(&before) } else { before.clone() };
    let queues = queues_of(device);
    let mut found = waits.judge(now_ns, &queues, &snapshot.waiters, &objects, &now);
    if due.is_at_rest {
        let all = graph(&before, &now);
        found.extend(waits.judge_all(now_ns, &is_own(&objects), &now, &all, &snapshot.waiters));
    }
    if !found.is_empty() {
        query_threads::store_view(device, &snapshot, waits, now_ns, is_queried);
    }
    found
}

/// Returns a function that recognises this process among the statuses, by its device and its objects.
fn is_own(objects: &InspectedObjects) -> impl Fn(&ProcessStatus) -> bool {
    let (pid, numbers) = (current_pid(), objects.qps.iter().map(|qp| qp.qpn).collect::<Vec<_>>());
    move |one: &ProcessStatus| {
        let known = one.objects.iter().flat_map(|objects| &objects.qps);
        one.pid == pid && known.map(|qp| qp.qpn).eq(numbers.iter().copied())
    }
}

/// Returns the statuses of the processes once they have examined their threads, which a busy machine delays.
fn after(before: &[ProcessStatus]) -> Vec<ProcessStatus> {
    let mut now = others(false);
    for _ in 0..MAX_QUERIES {
        if !now.iter().any(|one| one.must_examine_threads(before)) {
            break;
        }
        outside::sleep(BETWEEN);
        now = others(false);
    }
    now
}

/// Returns the statuses of all processes of this user, this one included. With `look` they examine their
/// threads, too.
fn others(look: bool) -> Vec<ProcessStatus> {
    process_statuses::process_statuses(ROCE_PORT, None, ANSWERS, look).unwrap_or_default()
}
