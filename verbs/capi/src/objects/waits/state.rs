//! The devices and the completion queues of the program.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use pumice_device::counters::Counters;
use pumice_device::ground::clock::Clock;
use pumice_device::inspect::Collected;
use pumice_device::objects::completion_queue::CompletionQueue;
use pumice_device::outside::lineage::PerProcess;
use pumice_device::waits::{ArmedNow, QueueNow, Waits};

/// A device that is open.
#[derive(Clone)]
pub(super) struct Watched {
    pub(super) device: usize,
    pub(super) waits: Weak<Waits>,
    pub(super) clock: Clock,
    pub(super) counters: Arc<Counters>,
    pub(super) objects: Objects,
}

/// What the device with an index has in this process; `None` if it is not open.
pub(super) type Objects = fn(usize) -> Option<Collected>;

/// A completion queue of the program.
pub(super) struct Queue {
    pub(super) device: usize,
    pub(super) address: usize,
    pub(super) channel: usize,
    pub(super) queue: Weak<CompletionQueue>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) devices: Vec<Watched>,
    pub(super) queues: Vec<Queue>,
    pub(super) has_thread: bool,
}

static STATE: PerProcess<Mutex<State>> = PerProcess::new(|_| Mutex::default());

pub(super) fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The completion queues of a device, as they are now.
pub(super) fn queues_of(device: usize) -> Vec<QueueNow> {
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
