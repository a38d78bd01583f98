//! Which contexts are of a device that is lost: calls on them fail with EIO.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pumice_calls::Call;
use pumice_device::outside::lineage::PerProcess;

use super::current::current;
use super::watch;
use crate::ground::errno::Errno;
use crate::ground::own_devices;
use crate::ground::register::context_at;

/// Whether an opened device is lost. It stays so.
pub(crate) struct Life {
    lost: AtomicU8,
    /// Its index among the devices.
    device: usize,
}

/// How a device was lost.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Loss {
    /// It has failed.
    Failed = 1,
    /// It was pulled out: programs still find what was flushed.
    Removed = 2,
}

impl Life {
    /// Of the device with this index among the devices.
    pub(crate) const fn of(device: usize) -> Life {
        Life { lost: AtomicU8::new(0), device }
    }

    /// The device is lost from now on.
    pub(crate) fn end(&self, loss: Loss) {
        self.lost.store(loss as u8, Ordering::SeqCst);
        watch::lose_device();
    }

    /// How it was lost, if it was.
    pub(crate) fn loss(&self) -> Option<Loss> {
        match self.lost.load(Ordering::SeqCst) {
            0 => None,
            1 => Some(Loss::Failed),
            _ => Some(Loss::Removed),
        }
    }
}

/// The life of the device of each open context, by the address of the context.
static CONTEXTS: PerProcess<Mutex<BTreeMap<usize, Arc<Life>>>> = PerProcess::new(|_| Mutex::default());

fn contexts() -> MutexGuard<'static, BTreeMap<usize, Arc<Life>>> {
    CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A context was opened.
pub(crate) fn context_opened(address: usize, life: &Arc<Life>) {
    own_devices::context_opened(address, life.device);
    contexts().insert(address, Arc::clone(life));
}

/// A context was closed.
pub(crate) fn context_closed(address: usize) {
    own_devices::context_closed(address);
    contexts().remove(&address);
}

/// Whether a call on the object at this address fails because its device is lost. If it is not known which
/// device that is, the call fails if all have failed.
pub(super) fn refuses(call: Call, address: usize) -> bool {
    if !watch::is_lost() || call.outlives_device() {
        return false;
    }
    let own = context_at(address).unwrap_or(address);
    let contexts = contexts();
    match contexts.get(&own) {
        Some(life) => match life.loss() {
            None => false,
            Some(Loss::Failed) => true,
            Some(Loss::Removed) => !call.polls(),
        },
        None => !contexts.is_empty() && contexts.values().all(|life| life.loss() == Some(Loss::Failed)),
    }
}

/// Whether the call that this thread is in may use the context at this address, or what is in it.
///
/// # Errors
/// EIO: the device is lost.
pub(crate) fn permits(context: usize) -> Result<(), Errno> {
    if !watch::is_lost() {
        return Ok(());
    }
    let call = current().and_then(|made| made.call());
    if call.is_none_or(Call::outlives_device) {
        return Ok(());
    }
    let is_lost = contexts().get(&context).is_some_and(|life| life.loss().is_some());
    if is_lost { Err(Errno(libc::EIO)) } else { Ok(()) }
}
