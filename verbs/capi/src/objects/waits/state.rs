//! The devices and the completion queues of the program.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use pumice_device::counters::Counters;
use pumice_device::inspect::InspectedObjects;
use pumice_device::objects::completion_queue::CompletionQueue;
use pumice_device::outside::fork_generation::PerProcess;
use pumice_device::platform::clock::Clock;
use pumice_device::waits::{CqArming, CqSnapshot, Waits};

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
