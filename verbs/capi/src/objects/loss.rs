//! The loss of a device, which a fault plan can inject: it fails, or it is removed, and perhaps comes back.
//! Objects that were opened before stay unusable.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use pumice_device::event::{Event, Subscriber, Topics};
use pumice_device::hca::{Hca, Presence};
use pumice_device::outside;
use pumice_device::outside::fork_generation::{InheritedOnce, PerProcess};
use pumice_device::platform::clock::Clock;
use pumice_device::settings::MAX_DEVICES;
use pumice_transport::types::AsyncEventType;

use crate::gate::{DeviceLoss, LossState};

/// End of a device's absence.
#[derive(Clone, Copy)]
enum Absence {
    Until(Instant),
    ForEver,
}

/// The last absence of each device. A device that was removed from a parent is absent in its child, too.
static ABSENT: PerProcess<Mutex<[Option<Absence>; MAX_DEVICES]>> = PerProcess::new(|before| {
    let known = before.and_then(|before| before.try_lock().ok().map(|absent| *absent));
    Mutex::new(known.unwrap_or([None; MAX_DEVICES]))
});

fn absent() -> MutexGuard<'static, [Option<Absence>; MAX_DEVICES]> {
    ABSENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reports whether the device with this index among the devices is present.
pub(crate) fn is_present(index: usize) -> bool {
    match absent().get(index).copied().flatten() {
        None => true,
        Some(Absence::Until(back)) => outside::now() >= back,
        Some(Absence::ForEver) => false,
    }
}

/// Reports whether it was ever absent.
pub(crate) fn was_absent(index: usize) -> bool {
    absent().get(index).is_some_and(Option::is_some)
}

/// A subscriber to DEVICE_FATAL: after that event calls on the device fail.
#[derive(Clone)]
pub(crate) struct LossSubscriber(Arc<WatchedLoss>);

struct WatchedLoss {
    index: usize,
    loss_state: Arc<LossState>,
    opened: OnceLock<(Arc<Presence>, Clock)>,
}

impl LossSubscriber {
    /// Creates the subscriber of the device with this index among the devices, which is being opened.
    pub(crate) fn new(index: usize) -> LossSubscriber {
        LossSubscriber(Arc::new(WatchedLoss {
            index,
            loss_state: Arc::new(LossState::of(index)),
            opened: OnceLock::new(),
        }))
    }

    /// Records that the device is open.
    pub(crate) fn opened(&self, hca: &Hca) {
        let _ = self.0.opened.set((Arc::clone(hca.presence()), hca.clock().clone()));
        if self.0.loss_state.loss().is_some() {
            // The device was lost at once.
            self.lost();
        }
    }

    /// Returns the state that says whether the device is lost.
    pub(crate) fn loss_state(&self) -> &Arc<LossState> {
        &self.0.loss_state
    }

    fn lost(&self) {
        let WatchedLoss { index, loss_state, opened } = &*self.0;
        let removed = opened.get().and_then(|(presence, clock)| Some((presence.back_ns()?, clock.now_ns())));
        let Some((back_ns, now_ns)) = removed else { return loss_state.end(DeviceLoss::Failed) };
        let back = outside::now().checked_add(Duration::from_nanos(back_ns.saturating_sub(now_ns)));
        let absence = match back {
            Some(back) if back_ns != u64::MAX => Absence::Until(back),
            _ => Absence::ForEver,
        };
        if let Some(last) = absent().get_mut(*index) {
            *last = Some(absence);
        }
        loss_state.end(DeviceLoss::Removed);
    }
}

impl Subscriber for LossSubscriber {
    fn topics(&self) -> Topics {
        Topics::ASYNC_EVENTS
    }

    fn on_event(&self, _at_ns: u64, event: &Event<'_>) {
        if matches!(event, Event::AsyncEventRaised { event: AsyncEventType::DeviceFatal, .. }) {
            self.lost();
        }
    }
}

/// Callbacks that are notified of changes of a device, with its index among the devices.
pub(crate) struct LossCallbacks {
    /// The device was removed.
    pub(crate) removed: fn(usize),
    /// The network's addresses lead to another adapter.
    pub(crate) address_changed: fn(usize),
}

static CALLBACKS: InheritedOnce<LossCallbacks> = InheritedOnce::new();

/// Sets the callbacks, which are called in a thread that holds no lock.
pub(crate) fn set_callbacks(callbacks: LossCallbacks) {
    CALLBACKS.set(callbacks);
}

/// Reports that the network's addresses lead to another adapter.
pub(super) fn address_changed(index: usize) {
    if let Some(callbacks) = CALLBACKS.get() {
        (callbacks.address_changed)(index);
    }
}

/// Reports that a device was removed.
pub(super) fn removed(index: usize) {
    if let Some(callbacks) = CALLBACKS.get() {
        (callbacks.removed)(index);
    }
}
