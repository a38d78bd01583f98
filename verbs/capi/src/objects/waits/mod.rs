//! Looks for threads of the program that wait in vain, and says why ([`pumice_device::waits`]).
//!
//! A thread looks how many completions wait and whether the device gets on, without a lock of the device:
//! four times a second, twice while nothing moves, and not at all while nothing can be waited for. Only when
//! something has waited for long, or `pumice hang` asks, it looks what the threads of the program do, and
//! asks what the device and other processes know.

mod ask;
mod pace;
mod state;
mod tell;

use std::sync::Arc;
use std::time::Duration;

use pumice_device::counters::Counters;
use pumice_device::event::Subscriber;
use pumice_device::hca::Hca;
use pumice_device::inspect::{Collected, TellsWaits};
use pumice_device::objects::completion_queue::CompletionQueue;
use pumice_device::outside;
use pumice_device::settings::Log;
use pumice_device::standings;
use pumice_device::waits::{Due, Standing, Vain, Waits, WaitsSubscriber, graph};
use pumice_transport::host::Counter;
use pumice_transport::path::ROCE_PORT;

use crate::ground::check;
use crate::ground::environment::settings;
use crate::ground::log::{logs, tell_siblings};
use crate::ground::process::own_process;
use crate::ground::waits::{ask as asks, stir};
use ask::Asked;
use pace::Pace;
use state::{Objects, Queue, Watched, lock, queues_of};

/// How long answers of other processes are waited for.
const ANSWERS: Duration = Duration::from_millis(300);

/// Between questions to processes that have not looked at their threads yet, and how many questions there
/// are.
const BETWEEN: Duration = Duration::from_millis(100);
const LOOKS: u32 = 10;

/// How long something waits until it is told; `None`: nothing is. In a world, which knows when all threads
/// wait for ever and in which a thread more is another run, only if the user asks.
fn patience() -> Option<Duration> {
    let settings = settings().ok()?;
    let is_told = logs(Log::Warn) || check::is_on();
    let is_wanted = settings.hang_after.is_some() || !outside::world::is_here();
    settings.patience().filter(|_| is_told && is_wanted)
}

/// What hears of a device that is being opened, if waits are told.
pub(super) fn waits() -> Option<Arc<Waits>> {
    Some(Arc::new(Waits::new(patience()?.as_nanos() as u64)))
}

/// It listens.
pub(super) fn subscriber(waits: &Arc<Waits>) -> Box<dyn Subscriber> {
    Box::new(WaitsSubscriber(Arc::clone(waits)))
}

/// What tells other processes of the waits of a device.
pub(super) fn tells(device: usize) -> TellsWaits {
    Arc::new(move |is_asked| {
        if is_asked {
            asks();
        }
        // One that has not looked yet will.
        Some(ask::view_of(device).unwrap_or_default())
    })
}

/// The device with this index among the devices is open. The caller has signals blocked.
pub(super) fn opened(device: usize, waits: &Arc<Waits>, hca: &Hca, objects: Objects) {
    let (clock, counters) = (hca.clock().clone(), Arc::clone(hca.counters()));
    let watched = Watched { device, waits: Arc::downgrade(waits), clock, counters, objects };
    let mut state = lock();
    state.devices.retain(|watched| watched.waits.strong_count() > 0);
    state.devices.push(watched);
    let has_thread = std::mem::replace(&mut state.has_thread, true);
    drop(state);
    if has_thread {
        return stir();
    }
    // Without a thread nothing is told.
    let _ = outside::thread::start("pumice-waits", None, || {
        let mut pace = Pace::new();
        loop {
            let asked = pace.rest();
            look(&mut pace, asked);
        }
    });
}

/// The program has a completion queue at this address, whose channel is at another one; 0 if it has none.
pub(super) fn cq_made(device: usize, address: usize, channel: usize, queue: &Arc<CompletionQueue>) {
    let mut state = lock();
    if state.has_thread {
        state.queues.retain(|known| known.queue.strong_count() > 0);
        state.queues.push(Queue { device, address, channel, queue: Arc::downgrade(queue) });
    }
}

/// A number that changes when a device gets on: packets that only repeat what was, or refuse it, do not
/// count.
fn moved(counters: &Counters) -> u64 {
    let count = |counter| counters.value(counter);
    let packets = count(Counter::TxPackets).wrapping_add(count(Counter::RxPackets));
    let of_sender = count(Counter::RetransmittedPackets).wrapping_add(count(Counter::RxRnrNak));
    let of_receiver = count(Counter::TxRnrNak).wrapping_add(count(Counter::RxDuplicateRequest));
    packets.wrapping_sub(of_sender).wrapping_sub(of_receiver.wrapping_mul(2))
}

/// Looks at all devices. `is_asked`: another process asks for it.
fn look(pace: &mut Pace, is_asked: bool) {
    let devices: Vec<Watched> = lock().devices.clone();
    let open: Vec<(Watched, Arc<Waits>)> =
        devices.into_iter().filter_map(|one| Some((one.clone(), one.waits.upgrade()?))).collect();
    let (mut is_idle, mut is_at_rest) = (true, true);
    let mut found = Vec::new();
    for (watched, waits) in &open {
        let now_ns = watched.clock.now_ns();
        let due = waits.look(now_ns, &queues_of(watched.device), moved(&watched.counters));
        if due != Due::default() {
            found.extend(judge(watched, waits, due, is_asked));
        } else if is_asked {
            let asked = Asked::now(watched.device);
            ask::keep(watched.device, &asked, waits, now_ns, true);
        }
        is_at_rest &= waits.is_at_rest(now_ns);
        is_idle &= is_at_rest && waits.is_idle() && has_nothing(watched);
    }
    tell_siblings();
    // Before it is told: who reads the sentence may end the process at once.
    tell::still_holds(open.iter().map(|(_, waits)| waits.as_ref()));
    found.iter().for_each(tell::tell);
    pace.next(is_idle, is_at_rest);
}

/// Whether nothing is posted that could complete.
fn has_nothing(watched: &Watched) -> bool {
    let Some(objects) = (watched.objects)(watched.device) else { return true };
    let has_none = |qp: &pumice_device::inspect::QpView| {
        qp.posted == qp.ended && (qp.receives_posted == Some(0) || qp.state == "RESET")
    };
    objects.qps_left_out() == 0
        && objects.qps.iter().all(has_none)
        && objects.listens.is_empty()
        && objects.cqs.iter().all(|cq| cq.filled == 0)
}

/// Finds out what threads and other processes do, and what is waited for in vain.
fn judge(watched: &Watched, waits: &Arc<Waits>, due: Due, is_asked: bool) -> Vec<Vain> {
    let device = watched.device;
    // The others look at their threads while this process looks at its own.
    let before = others(due.is_at_rest);
    let asked = Asked::now(device);
    let now_ns = watched.clock.now_ns();
    ask::keep(device, &asked, waits, now_ns, is_asked);
    let Some(objects) = (watched.objects)(device) else { return Vec::new() };
    let now = if due.is_at_rest { after(&before) } else { before.clone() };
    let queues = queues_of(device);
    let mut found = waits.judge(now_ns, &queues, &asked.waiters, &objects, &now);
    if due.is_at_rest {
        let all = graph(&before, &now);
        found.extend(waits.judge_all(now_ns, &is_own(&objects), &now, &all, &asked.waiters));
    }
    if !found.is_empty() {
        ask::keep(device, &asked, waits, now_ns, is_asked);
    }
    found
}

/// Whether a process as it stands is this one, by its device and its objects.
fn is_own(objects: &Collected) -> impl Fn(&Standing) -> bool {
    let (pid, numbers) = (own_process(), objects.qps.iter().map(|qp| qp.qpn).collect::<Vec<_>>());
    move |one: &Standing| {
        let known = one.objects.iter().flat_map(|objects| &objects.qps);
        one.pid == pid && known.map(|qp| qp.qpn).eq(numbers.iter().copied())
    }
}

/// What they say once they have looked at their threads, which a machine with much to do delays.
fn after(before: &[Standing]) -> Vec<Standing> {
    let mut now = others(false);
    for _ in 0..LOOKS {
        if !now.iter().any(|one| one.has_to_look(before)) {
            break;
        }
        outside::sleep(BETWEEN);
        now = others(false);
    }
    now
}

/// What all processes of this user say, this one included. `look`: they look at their threads, too.
fn others(look: bool) -> Vec<Standing> {
    standings::standings(ROCE_PORT, None, ANSWERS, look).unwrap_or_default()
}
