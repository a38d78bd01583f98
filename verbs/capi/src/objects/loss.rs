//! The loss of a device, which a fault plan can bring about: it fails, or it is pulled out, and perhaps comes
//! back. What was opened before stays dead.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use pumice_device::event::{Event, Subscriber, Topics};
use pumice_device::ground::clock::Clock;
use pumice_device::hca::{Hca, Presence};
use pumice_device::outside;
use pumice_device::outside::lineage::{PerProcess, Settled};
use pumice_device::settings::MAX_DEVICES;
use pumice_transport::types::AsyncEventType;

use crate::ground::gate::{Life, Loss};

/// Since when a device was away, and until when.
#[derive(Clone, Copy)]
enum Absence {
    Until(Instant),
    ForEver,
}

/// The last absence of each device. One that was pulled out of a parent is away from its child, too.
static ABSENT: PerProcess<Mutex<[Option<Absence>; MAX_DEVICES]>> = PerProcess::new(|before| {
    let known = before.and_then(|before| before.try_lock().ok().map(|absent| *absent));
    Mutex::new(known.unwrap_or([None; MAX_DEVICES]))
});

fn absent() -> MutexGuard<'static, [Option<Absence>; MAX_DEVICES]> {
    ABSENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the device with this index among the devices is there.
pub(crate) fn is_present(index: usize) -> bool {
    match absent().get(index).copied().flatten() {
        None => true,
        Some(Absence::Until(back)) => outside::now() >= back,
        Some(Absence::ForEver) => false,
    }
}

/// Whether it was ever away.
pub(crate) fn has_been_away(index: usize) -> bool {
    absent().get(index).is_some_and(Option::is_some)
}

/// Hears of DEVICE_FATAL: from then on calls on the device fail.
#[derive(Clone)]
pub(crate) struct LossWatch(Arc<Watched>);

struct Watched {
    index: usize,
    life: Arc<Life>,
    opened: OnceLock<(Arc<Presence>, Clock)>,
}

impl LossWatch {
    /// Of the device with this index among the devices, which is being opened.
    pub(crate) fn new(index: usize) -> LossWatch {
        LossWatch(Arc::new(Watched { index, life: Arc::new(Life::of(index)), opened: OnceLock::new() }))
    }

    /// The device is open.
    pub(crate) fn opened(&self, hca: &Hca) {
        let _ = self.0.opened.set((Arc::clone(hca.presence()), hca.clock().clone()));
        if self.0.life.loss().is_some() {
            // It was lost at once.
            self.lost();
        }
    }

    /// Whether the device is lost.
    pub(crate) fn life(&self) -> &Arc<Life> {
        &self.0.life
    }

    fn lost(&self) {
        let Watched { index, life, opened } = &*self.0;
        let removed = opened.get().and_then(|(presence, clock)| Some((presence.back_ns()?, clock.now_ns())));
        let Some((back_ns, now_ns)) = removed else { return life.end(Loss::Failed) };
        let back = outside::now().checked_add(Duration::from_nanos(back_ns.saturating_sub(now_ns)));
        let absence = match back {
            Some(back) if back_ns != u64::MAX => Absence::Until(back),
            _ => Absence::ForEver,
        };
        if let Some(last) = absent().get_mut(*index) {
            *last = Some(absence);
        }
        life.end(Loss::Removed);
    }
}

impl Subscriber for LossWatch {
    fn topics(&self) -> Topics {
        Topics::ASYNC_EVENTS
    }

    fn hear(&self, _at_ns: u64, event: &Event<'_>) {
        if matches!(event, Event::AsyncEventRaised { event: AsyncEventType::DeviceFatal, .. }) {
            self.lost();
        }
    }
}

/// Told what happened to a device, by its index among the devices.
pub(crate) struct Told {
    /// It was pulled out.
    pub(crate) removed: fn(usize),
    /// The network's addresses lead to another adapter.
    pub(crate) address_changed: fn(usize),
}

static TOLD: Settled<Told> = Settled::new();

/// From now on these are told, in a thread that holds no lock.
pub(crate) fn tell(told: Told) {
    TOLD.set(told);
}

/// The network's addresses lead to another adapter.
pub(super) fn address_changed(index: usize) {
    if let Some(told) = TOLD.get() {
        (told.address_changed)(index);
    }
}

/// A device was pulled out.
pub(super) fn removed(index: usize) {
    if let Some(told) = TOLD.get() {
        (told.removed)(index);
    }
}
