//! Looks for threads of the program that wait in vain, and says why ([`pumice_device::waits`]).
//!
//! A thread looks four times a second how many completions wait, without a lock of the device. Only when
//! something has waited for long it asks what the threads of the program do, and what the device knows.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use pumice_device::event::Subscriber;
use pumice_device::ground::clock::Clock;
use pumice_device::inspect::Collected;
use pumice_device::objects::completion_queue::CompletionQueue;
use pumice_device::outside;
use pumice_device::outside::lineage::PerProcess;
use pumice_device::settings::Log;
use pumice_device::waits::{ArmedNow, Doing, QueueNow, Vain, Waiter, Waits, WaitsSubscriber};

use crate::ground::check;
use crate::ground::gate;
use crate::ground::log::{logs, print_always};
use crate::ground::waits::{self, Note, Waiting, connected_at};

/// How long something waits before it is told.
const PATIENCE_NS: u64 = 2_000_000_000;
/// How often the thread looks.
const PERIOD: Duration = Duration::from_millis(250);
/// How long it asks what threads do: calls that sleep make an attempt each tenth of a second.
const WITHIN: Duration = Duration::from_millis(250);

/// A device that is open.
struct Watched {
    device: usize,
    waits: Weak<Waits>,
    clock: Clock,
    objects: Objects,
}

/// What the device with an index has in this process; `None` if it is not open.
type Objects = fn(usize) -> Option<Collected>;

/// A completion queue of the program.
struct Queue {
    device: usize,
    address: usize,
    channel: usize,
    queue: Weak<CompletionQueue>,
}

#[derive(Default)]
struct State {
    devices: Vec<Watched>,
    queues: Vec<Queue>,
    has_thread: bool,
}

static STATE: PerProcess<Mutex<State>> = PerProcess::new(|_| Mutex::default());

fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What hears of a device that is being opened, if waits are told. In a world nothing is: there the order of
/// threads is part of the run.
pub(super) fn waits() -> Option<Arc<Waits>> {
    let is_told = (logs(Log::Warn) || check::is_on()) && !outside::world::is_here();
    is_told.then(|| Arc::new(Waits::new(PATIENCE_NS)))
}

/// It listens.
pub(super) fn subscriber(waits: &Arc<Waits>) -> Box<dyn Subscriber> {
    Box::new(WaitsSubscriber(Arc::clone(waits)))
}

/// The device with this index among the devices is open. The caller has signals blocked.
pub(super) fn opened(device: usize, waits: &Arc<Waits>, clock: &Clock, objects: Objects) {
    let mut state = lock();
    state.devices.retain(|watched| watched.waits.strong_count() > 0);
    state.devices.push(Watched { device, waits: Arc::downgrade(waits), clock: clock.clone(), objects });
    if !std::mem::replace(&mut state.has_thread, true) {
        // Without a thread nothing is told.
        let _ = outside::thread::start("pumice-waits", None, || {
            loop {
                outside::sleep(PERIOD);
                look();
            }
        });
    }
}

/// The program has a completion queue at this address, whose channel is at another one; 0 if it has none.
pub(super) fn cq_made(device: usize, address: usize, channel: usize, queue: &Arc<CompletionQueue>) {
    let mut state = lock();
    if state.has_thread {
        state.queues.retain(|known| known.queue.strong_count() > 0);
        state.queues.push(Queue { device, address, channel, queue: Arc::downgrade(queue) });
    }
}

/// The completion queues of a device, as they are now.
fn queues_of(device: usize) -> Vec<QueueNow> {
    let queues = lock();
    let own = queues.queues.iter().filter(|known| known.device == device);
    own.filter_map(|known| {
        let queue = known.queue.upgrade()?;
        let filled = queue.len();
        let armed = match filled > 0 || known.channel != 0 {
            true if queue.is_armed_for_solicited() => ArmedNow::ForSolicited,
            true if queue.is_armed() => ArmedNow::ForAll,
            _ => ArmedNow::No,
        };
        Some(QueueNow { number: queue.handle().index, channel: known.channel as u64, filled, armed })
    })
    .collect()
}

fn look() {
    let open = |watched: &Watched| {
        let Watched { device, objects, .. } = *watched;
        Some((device, watched.waits.upgrade()?, watched.clock.now_ns(), objects))
    };
    let open: Vec<_> = lock().devices.iter().filter_map(open).collect();
    for (device, waits, now_ns, objects) in open {
        if !waits.look(now_ns, &queues_of(device)) {
            continue;
        }
        let waiters = waiters_of(device, ask());
        let Some(objects) = objects(device) else { continue };
        let later_ns = now_ns.saturating_add(WITHIN.as_nanos() as u64);
        for vain in waits.judge(later_ns, &queues_of(device), &waiters, &objects) {
            tell(&vain);
        }
    }
}

/// Which threads wait, and for what.
fn ask() -> Vec<Note> {
    waits::begin();
    gate::look_anew();
    outside::sleep(WITHIN);
    let notes = waits::end();
    gate::look_anew();
    notes
}

/// What threads do with objects of a device.
fn waiters_of(device: usize, notes: Vec<Note>) -> Vec<Waiter> {
    let state = lock();
    let number_of = |address: usize| {
        let own = state.queues.iter().filter(|known| known.device == device && known.address == address);
        own.filter_map(|known| known.queue.upgrade()).map(|queue| queue.handle().index).next_back()
    };
    notes
        .into_iter()
        .filter_map(|Note { what, stack }| {
            let doing = match what {
                Waiting::Polls(address) => Doing::Polls(number_of(address)?),
                Waiting::SleepsOn(channel) => Doing::SleepsOn(channel as u64),
                Waiting::SleepsForConnections => Doing::SleepsForConnections,
            };
            Some(Waiter { doing, stack })
        })
        .collect()
}

fn tell(vain: &Vain) {
    let stack =
        if vain.stack.is_empty() && vain.is_of_connection() { connected_at() } else { vain.stack.clone() };
    if check::is_on() {
        return check::waits_in_vain(vain, &stack);
    }
    print_always(&format!("waits in vain: {}", vain.sentence));
    check::place_of(&stack).iter().for_each(|frame| print_always(frame));
}
