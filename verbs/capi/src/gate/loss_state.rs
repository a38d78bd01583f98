//! Contexts of lost devices: calls on them fail with EIO.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pumice_calls::Call;
use pumice_device::outside::fork_generation::PerProcess;

use super::watch;
use crate::call_sites::current_call::current;
use crate::call_sites::own_devices;
use crate::call_sites::register::context_at;
use crate::platform::errno::Errno;

/// State of an opened device: lost or not. A lost device stays lost.
pub(crate) struct LossState {
    lost: AtomicU8,
    /// Index of the device among the devices.
    device: usize,
}

/// Way in which a device was lost.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum DeviceLoss {
    /// The device has failed.
    Failed = 1,
    /// The device was removed: programs still find flushed completions.
    Removed = 2,
}

impl LossState {
    /// Creates the state of the device with this index among the devices.
    pub(crate) const fn of(device: usize) -> LossState {
        LossState { lost: AtomicU8::new(0), device }
    }

    /// Marks the device as lost.
    pub(crate) fn end(&self, loss: DeviceLoss) {
        self.lost.store(loss as u8, Ordering::SeqCst);
        watch::lose_device();
    }

    /// Returns how the device was lost, if it was.
    pub(crate) fn loss(&self) -> Option<DeviceLoss> {
        match self.lost.load(Ordering::SeqCst) {
            0 => None,
            1 => Some(DeviceLoss::Failed),
            _ => Some(DeviceLoss::Removed),
        }
    }
}

/// State of each open context's device, by the address of the context.
static CONTEXTS: PerProcess<Mutex<BTreeMap<usize, Arc<LossState>>>> = PerProcess::new(|_| Mutex::default());

fn contexts() -> MutexGuard<'static, BTreeMap<usize, Arc<LossState>>> {
    CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records that a context was opened.
pub(crate) fn context_opened(address: usize, loss_state: &Arc<LossState>) {
    own_devices::context_opened(address, loss_state.device);
    contexts().insert(address, Arc::clone(loss_state));
}

/// Records that a context was closed.
pub(crate) fn context_closed(address: usize) {
    own_devices::context_closed(address);
    contexts().remove(&address);
}

/// Reports whether a call on the object at this address fails because its device is lost. If the device is
/// not known, the call fails if all devices are lost.
pub(super) fn refuses(call: Call, address: usize) -> bool {
    if !watch::is_lost() || call.outlives_device() {
        return false;
    }
    let own = context_at(address).unwrap_or(address);
    let contexts = contexts();
    match contexts.get(&own) {
        Some(loss_state) => match loss_state.loss() {
            None => false,
            Some(DeviceLoss::Failed) => true,
            Some(DeviceLoss::Removed) => !call.polls(),
        },
        None => {
            !contexts.is_empty()
                && contexts.values().all(|loss_state| loss_state.loss() == Some(DeviceLoss::Failed))
        }
    }
}

/// Checks whether the call that this thread is in may use the context at this address, or an object in it.
///
/// # Errors
/// Fails with EIO if the device is lost.
pub(crate) fn permits(context: usize) -> Result<(), Errno> {
    if !watch::is_lost() {
        return Ok(());
    }
    let call = current().and_then(|made| made.call());
    if call.is_none_or(Call::outlives_device) {
        return Ok(());
    }
    let is_lost = contexts().get(&context).is_some_and(|loss_state| loss_state.loss().is_some());
    if is_lost { Err(Errno(libc::EIO)) } else { Ok(()) }
}
